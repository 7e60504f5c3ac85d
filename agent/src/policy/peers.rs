//! Which pods the tracker is told of: those that the API shows, and those that this node has
//! attached before the API shows their address. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_api::cluster_dns;
use coracle_netfilter::service::Protocol;
use coracle_policy::objects::{Labels, NamedPort, PodKey, PodView};

use crate::runtime::types::SandboxId;

/// A pod's place in this node's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) sandbox: SandboxId,
    pub(crate) pod: PodKey,
    pub(crate) labels: Labels,
    pub(crate) addresses: Vec<IpAddr>,
}

/// What is attached to this node's network, by pod.
#[derive(Debug)]
pub(super) struct Attached {
    node: String,
    pods: BTreeMap<PodKey, BTreeMap<SandboxId, Attachment>>,
}

impl Attached {
    pub(super) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            pods: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, attachment: Attachment) {
        let of_pod = self.pods.entry(attachment.pod.clone()).or_default();
        of_pod.insert(attachment.sandbox.clone(), attachment);
    }

    /// Returns the addresses that others may have from now on.
    pub(super) fn remove(&mut self, pod: &PodKey, sandbox: &SandboxId) -> Vec<IpAddr> {
        let Some(of_pod) = self.pods.get_mut(pod) else {
            return Vec::new();
        };
        let removed = of_pod.remove(sandbox);
        if of_pod.is_empty() {
            self.pods.remove(pod);
        }
        removed.map(|one| one.addresses).unwrap_or_default()
    }

    /// The pod as policies shall see it, `seen` being what the API shows. One that ends keeps its
    /// policies until it is detached, also when the API has forgotten it; of one of this node that
    /// is detached, the address may be the next one's, whatever the API still shows.
    pub(super) fn view(&self, key: &PodKey, seen: Option<&PodView>) -> Option<PodView> {
        let elsewhere = seen.filter(|seen| *seen.node != *self.node);
        let Some(of_pod) = self.pods.get(key) else {
            return elsewhere.cloned();
        };
        let own = of_pod.values().flat_map(|one| &one.addresses);
        let seen_addresses = elsewhere.into_iter().flat_map(|seen| &seen.addresses);
        let addresses: BTreeSet<IpAddr> = own.chain(seen_addresses).copied().collect();
        if addresses.is_empty() {
            return None;
        }
        let latest = of_pod.values().next_back();
        let labels = match seen {
            Some(seen) => seen.labels.clone(),
            None => latest.map(|one| one.labels.clone()).unwrap_or_default(),
        };
        Some(PodView {
            key: key.clone(),
            labels,
            addresses: addresses.into_iter().collect(),
            node: (*self.node).into(),
            ports: seen.map(|seen| seen.ports.clone()).unwrap_or_default(),
        })
    }
}

/// The label of what answers names in every cluster.
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");

/// What this node serves as cluster DNS, as a pod.
pub(super) fn answers_names(address: IpAddr) -> PodView {
    let port = |name: &str, protocol| NamedPort {
        name: name.into(),
        protocol,
        port: cluster_dns::PORT,
    };
    PodView {
        // No pod can be called so.
        key: PodKey::new(cluster_dns::NAMESPACE, "(this node)"),
        labels: Labels::new([DNS_LABEL]),
        addresses: vec![address],
        node: "".into(),
        ports: vec![port("dns", Protocol::Udp), port("dns-tcp", Protocol::Tcp)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(sandbox: &str, address: u8) -> Attachment {
        Attachment {
            sandbox: SandboxId(sandbox.to_owned()),
            pod: PodKey::new("ns", "a"),
            labels: Labels::new([("app", "a")]),
            addresses: vec![[10, 1, 0, address].into()],
        }
    }

    fn seen(address: u8, app: &str) -> PodView {
        PodView {
            key: PodKey::new("ns", "a"),
            labels: Labels::new([("app", app)]),
            addresses: vec![[10, 1, 0, address].into()],
            node: "other".into(),
            ports: Vec::new(),
        }
    }

    #[test]
    fn what_is_attached_is_known_before_the_api_shows_it_and_after() {
        let key = PodKey::new("ns", "a");
        let mut attached = Attached::new("here");
        assert_eq!(attached.view(&key, None), None);
        assert_eq!(attached.view(&key, Some(&seen(9, "b"))), Some(seen(9, "b")));
        attached.add(attachment("1", 5));
        let view = attached.view(&key, None).unwrap();
        assert_eq!((&*view.node, view.labels.get("app")), ("here", Some("a")));
        let view = attached.view(&key, Some(&seen(9, "b"))).unwrap();
        let both: [IpAddr; 2] = [[10, 1, 0, 5].into(), [10, 1, 0, 9].into()];
        assert_eq!((&*view.node, view.labels.get("app")), ("here", Some("b")));
        assert_eq!(view.addresses, both);
        let sandbox = SandboxId("1".to_owned());
        let freed: [IpAddr; 1] = [[10, 1, 0, 5].into()];
        assert_eq!(attached.remove(&key, &sandbox), freed);
        assert!(attached.remove(&key, &sandbox).is_empty());
        assert_eq!(attached.view(&key, None), None);
        let mut own = seen(9, "b");
        own.node = "here".into();
        assert_eq!(attached.view(&key, Some(&own)), None);
        attached.add(attachment("3", 7));
        let view = attached.view(&key, Some(&own)).unwrap();
        let now: [IpAddr; 1] = [[10, 1, 0, 7].into()];
        assert_eq!(
            (view.labels.get("app"), &*view.addresses),
            (Some("b"), &now[..])
        );
    }

    #[test]
    fn a_new_sandbox_does_not_take_the_old_ones_policies() {
        let key = PodKey::new("ns", "a");
        let mut attached = Attached::new("here");
        attached.add(attachment("1", 5));
        attached.add(attachment("2", 6));
        assert_eq!(attached.view(&key, None).unwrap().addresses.len(), 2);
        attached.remove(&key, &SandboxId("1".to_owned()));
        let left: [IpAddr; 1] = [[10, 1, 0, 6].into()];
        assert_eq!(attached.view(&key, None).unwrap().addresses, left);
    }
}
