//! All Services at once, for whoever asks for the plan.

use coracle_client::cache::Key;
use coracle_netfilter::service::{ServiceKey, ServiceView};

use super::{super::plan::ServicePlan, SeenSlice, Sources, translated, view};

impl Sources {
    /// The plan, once the proxy has a moment; `None` if there will be none. Looks at all Services:
    /// some microseconds each.
    pub async fn plan(&self) -> Option<ServicePlan> {
        let owned = self.inquiries().ask().await?;
        Some(ServicePlan::new(owned, self.views()))
    }

    /// Each Service as it is, or why there is nothing to write for it.
    fn views(&self) -> Vec<(ServiceKey, Result<ServiceView, &'static str>)> {
        let own = self.nodes.filter(|node| node.part.own.is_some()).pop();
        let zone = own.as_ref().and_then(|node| node.part.own_zone());
        let translated = own.as_ref().and_then(|node| translated(node));
        let is_proxied = |slice: &SeenSlice| slice.part.is_proxied;
        let all = self.services.all().into_iter().map(|service| {
            let key = Key::of(service.as_ref());
            let slices = self.slices.filter(&key.to_string(), is_proxied);
            let mut found = match (&service.part.external_name, service.part.cluster_ip) {
                _ if self.is_answered_here(&key, &service) => Err("the node answers there itself"),
                (Some(_), _) => Err("it is another name (ExternalName)"),
                (None, None) => Err("it is headless: names lead to its endpoints"),
                _ => view(&service, &slices, zone)
                    .ok_or("another proxy takes care of it, or it has no IPv4 address"),
            };
            if let (Ok(view), Some(translated)) = (&mut found, &translated) {
                translated.complete(view);
            }
            let key = ServiceKey {
                namespace: key.namespace,
                name: key.name,
            };
            (key, found)
        });
        all.collect()
    }
}
