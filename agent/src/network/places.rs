//! Which addresses this node's pods have, and which they had: what the kernel still knows of
//! connections of those that are gone leads nowhere.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{NetworkError, PodNetwork, PodNetworkRequest};
use crate::runtime::types::{PodRef, SandboxId};

/// So many addresses are remembered that nobody has any more.
const MOST_LEFT: usize = 4096;

/// Addresses of this node's pods. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Held>>);

/// Who has which address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pods: BTreeMap<SandboxId, (PodRef, Vec<IpAddr>)>,
    /// The last come last.
    left: VecDeque<IpAddr>,
}

impl Held {
    fn add(&mut self, request: &PodNetworkRequest, addresses: &[IpAddr]) {
        self.left.retain(|ip| !addresses.contains(ip));
        let pod = (request.pod.clone(), addresses.to_vec());
        self.pods.insert(request.sandbox_id.clone(), pod);
    }

    fn remove(&mut self, sandbox: &SandboxId) {
        let Some((_, addresses)) = self.pods.remove(sandbox) else {
            return;
        };
        // The next one may have it already.
        let taken: BTreeSet<IpAddr> = self
            .pods
            .values()
            .flat_map(|(_, ips)| ips)
            .copied()
            .collect();
        let left = addresses.into_iter().filter(|ip| !taken.contains(ip));
        self.left.extend(left);
        while self.left.len() > MOST_LEFT {
            self.left.pop_front();
        }
    }

    /// Addresses that pods had, and nobody has now.
    pub(crate) fn left(&self) -> BTreeSet<IpAddr> {
        self.left.iter().copied().collect()
    }

    /// Whose address it is.
    pub(crate) fn pod(&self, address: IpAddr) -> Option<&PodRef> {
        let mut pods = self.pods.values();
        pods.find_map(|(pod, ips)| ips.contains(&address).then_some(pod))
    }
}

impl Places {
    /// A pod was attached, by this agent or one before it.
    pub(crate) fn add(&self, request: &PodNetworkRequest, addresses: &[IpAddr]) {
        self.0.lock().add(request, addresses);
    }

    /// It is detached.
    pub(crate) fn remove(&self, sandbox: &SandboxId) {
        self.0.lock().remove(sandbox);
    }

    /// As of now.
    pub(crate) fn held(&self) -> Held {
        self.0.lock().clone()
    }
}

/// A network that says who has which address.
#[derive(Debug, Clone)]
pub(crate) struct PlacingNetwork<N> {
    network: N,
    places: Places,
}

impl<N> PlacingNetwork<N> {
    pub(crate) fn new(network: N, places: Places) -> Self {
        Self { network, places }
    }
}

#[async_trait]
impl<N: PodNetwork> PodNetwork for PlacingNetwork<N> {
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        let addresses = self.network.setup(request).await?;
        self.places.add(request, &addresses);
        Ok(addresses)
    }

    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.teardown(request).await?;
        self.places.remove(&request.sandbox_id);
        Ok(())
    }

    async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.check(request).await
    }

    fn ready(&self) -> Result<(), NetworkError> {
        self.network.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_left_until_the_next_has_it() {
        let ip = |last| IpAddr::from([10, 1, 0, last]);
        let mut held = Held::default();
        held.add(&PodNetworkRequest::named("a"), &[ip(5)]);
        held.add(&PodNetworkRequest::named("b"), &[ip(6)]);
        assert_eq!(held.pod(ip(5)).unwrap().name, "a");
        held.remove(&SandboxId("a".to_owned()));
        assert_eq!((held.left(), held.pod(ip(5))), ([ip(5)].into(), None));
        held.add(&PodNetworkRequest::named("c"), &[ip(5)]);
        assert_eq!(held.left(), BTreeSet::new());
        // Its successor came before it was said to be gone.
        held.add(&PodNetworkRequest::named("d"), &[ip(6)]);
        held.remove(&SandboxId("b".to_owned()));
        assert_eq!(held.left(), BTreeSet::new());
        for number in 0..=u16::try_from(MOST_LEFT).unwrap() {
            let one = PodNetworkRequest::named(&number.to_string());
            let [high, low] = number.to_be_bytes();
            held.add(&one, &[[10, 2, high, low].into()]);
            held.remove(&one.sandbox_id);
        }
        assert_eq!(held.left().len(), MOST_LEFT);
        assert!(!held.left().contains(&IpAddr::from([10, 2, 0, 0])));
    }
}
