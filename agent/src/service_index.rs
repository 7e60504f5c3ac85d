//! The Services of the cluster, as far as containers' environments need them.
//!
//! A watch keeps a few bytes a Service; the proxy has its own, richer view.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coracle_telemetry::Chain;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, runtime::watcher};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePort {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) protocol: String,
}

/// A Service with a cluster IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceEntry {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) cluster_ip: String,
    pub(crate) ports: Arc<[ServicePort]>,
}

/// All Services by namespace and name.
pub(crate) struct ServiceIndex {
    entries: RwLock<BTreeMap<(String, String), ServiceEntry>>,
    synced: watch::Sender<bool>,
}

impl ServiceIndex {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { entries: RwLock::default(), synced: watch::Sender::new(false) })
    }

    /// Waits, but not forever, until the Services have been listed once.
    pub(crate) async fn wait_synced(&self, limit: Duration) {
        let mut synced = self.synced.subscribe();
        // Too late is not fatal: the container gets fewer variables than it could.
        let _ = tokio::time::timeout(limit, synced.wait_for(|synced| *synced)).await;
    }

    /// The Services that a pod of this namespace may see, the API's among them.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Vec<ServiceEntry> {
        let entries = self.entries.read();
        let start = (namespace.to_owned(), String::new());
        let mut found: Vec<ServiceEntry> =
            entries.range(start..).take_while(|((ns, _), _)| ns == namespace).map(|(_, entry)| entry.clone()).collect();
        if namespace != "default" {
            found.extend(entries.get(&("default".to_owned(), "kubernetes".to_owned())).cloned());
        }
        found
    }

    /// Watches until `shutdown`.
    pub(crate) async fn run(
        self: Arc<Self>,
        client: kube::Client,
        pulse: crate::watch::Pulse,
        shutdown: CancellationToken,
    ) {
        let stream = crate::watch::events(Api::<Service>::all(client), watcher::Config::default(), &pulse);
        let mut stream = std::pin::pin!(stream);
        let mut listing = BTreeMap::new();
        loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => listing = BTreeMap::new(),
                Some(Ok(watcher::Event::InitApply(service))) => {
                    if let Some((key, entry)) = entry(&service) {
                        listing.insert(key, entry);
                    }
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    // All at once: who reads meanwhile sees the list before, not half of this one.
                    *self.entries.write() = std::mem::take(&mut listing);
                    self.synced.send_replace(true);
                }
                Some(Ok(watcher::Event::Apply(service))) => self.apply(&service),
                Some(Ok(watcher::Event::Delete(service))) => {
                    self.entries.write().remove(&key(&service));
                }
                Some(Err(error)) => tracing::warn!(error = %Chain(&error), "watch Services"),
                None => return,
            }
        }
    }

    fn apply(&self, service: &Service) {
        match entry(service) {
            Some((key, entry)) => self.entries.write().insert(key, entry),
            None => self.entries.write().remove(&key(service)),
        };
    }
}

fn key(service: &Service) -> (String, String) {
    let meta = &service.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// `None` for Services without an address of their own.
fn entry(service: &Service) -> Option<((String, String), ServiceEntry)> {
    let spec = service.spec.as_ref()?;
    let cluster_ip = spec.cluster_ip.clone().filter(|ip| !ip.is_empty() && ip != "None")?;
    let (namespace, name) = key(service);
    let ports = spec
        .ports
        .iter()
        .flatten()
        .map(|port| ServicePort {
            name: port.name.clone().unwrap_or_default(),
            port: u16::try_from(port.port).unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        })
        .collect();
    Some(((namespace.clone(), name.clone()), ServiceEntry { namespace, name, cluster_ip, ports }))
}
