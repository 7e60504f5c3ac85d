//! The API servers as they tell of themselves: the EndpointSlice `kubernetes` in `default`.
//!
//! By its name, which the servers write, not by the label of its Service, which everybody may give
//! a slice in `default`. What is wrong there costs no more than a question that nobody answers:
//! TLS tells a server from all others.

use std::{net::SocketAddr, sync::Arc};

use coracle_client::{
    cache::{Cache, Key},
    feed::Feed,
};
use coracle_netfilter::service::Protocol;

use super::address::ServerAddress;
use crate::informers::{Informers, SeenSlice, SlicePart};

/// The slice's name, and its Service's.
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const PORT: &str = "https";

/// What is followed.
pub(crate) struct Endpoints {
    feed: Feed,
    slices: Arc<Cache<SeenSlice>>,
}

impl Endpoints {
    pub(crate) fn new(informers: &mut Informers) -> Self {
        let mut feed = Feed::default();
        feed.follow(&mut informers.slices, |change| {
            let metadata = &change.latest().metadata;
            let is_it = metadata.name.as_deref() == Some(NAME)
                && metadata.namespace.as_deref() == Some(NAMESPACE);
            is_it.then(slice)
        });
        Self {
            feed,
            slices: informers.slices.cache(),
        }
    }

    /// Returns once they may be others than before. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.feed.changed().await;
    }

    /// All that are there; none if nobody says so.
    pub(super) fn servers(&self) -> Vec<ServerAddress> {
        // One slice is followed: which one has changed is no question.
        let _ = self.feed.take();
        let slice = self.slices.get(&slice());
        slice.map_or_else(Vec::new, |slice| servers(&slice.part))
    }
}

fn slice() -> Key {
    Key::new(NAMESPACE, NAME)
}

fn servers(slice: &SlicePart) -> Vec<ServerAddress> {
    let is_port =
        |(name, protocol, _): &&(String, Protocol, u16)| name == PORT && *protocol == Protocol::Tcp;
    let Some((_, _, port)) = slice.ports.iter().find(is_port) else {
        return Vec::new();
    };
    let ready = slice.endpoints.iter().filter(|endpoint| endpoint.ready);
    ready
        .map(|endpoint| SocketAddr::new(endpoint.address, *port).into())
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ready_ones_are_servers_at_the_port_of_https() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["198.18.0.1"], "conditions": {"ready": true}},
                {"addresses": ["198.18.0.2"], "conditions": {"ready": false}},
                {"addresses": ["198.18.0.3"]},
                {"addresses": ["nonsense"]},
            ],
            "ports": [{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "https", "protocol": "TCP", "port": 6443}],
        }))
        .expect("a slice");
        let found = servers(&slice.into());
        let found: Vec<&str> = found.iter().map(ServerAddress::as_str).collect();
        assert_eq!(found, ["198.18.0.1:6443", "198.18.0.3:6443"]);
    }
}
