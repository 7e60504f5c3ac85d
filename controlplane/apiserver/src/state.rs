//! What the parts of a server share: what is built once, and data only. Who serves with it stands above.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_api::exposition::Exposition;
use coracle_auth::{
    authn::{Authenticator, service_account::TokenSigner},
    authz::Chain,
};
use coracle_registry::{
    resource::{Registry, Resource},
    service_addresses::ServiceAddresses,
    store::Store,
};
use coracle_telemetry::Health;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    address::may_be_dialled, admission::quota::Quotas, config::ApiServerConfig, limits::Limits, metrics::Metrics,
};

/// The state of one server.
pub(crate) struct State {
    pub(crate) config: ApiServerConfig,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Chain,
    pub(crate) signer: Arc<TokenSigner>,
    /// For requests to nodes.
    pub(crate) node_tls: Arc<rustls::ClientConfig>,
    pub(crate) addresses: Option<ServiceAddresses>,
    pub(crate) quotas: Option<Quotas>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    pub(crate) bootstrapped: AtomicBool,
    pub(crate) metrics: Metrics,
    /// Figures of other parts of this process.
    pub(crate) exposed: Mutex<Vec<Expose>>,
    /// Other parts of this process, and whether they are well.
    pub(crate) health: Health,
}

/// Writes the figures of a part.
pub(crate) type Expose = Box<dyn Fn(&mut Exposition) + Send + Sync>;

impl State {
    /// Whether a node may say that this is an address of its own. One on loopback only to a server that nobody but its
    /// own machine reaches.
    pub(crate) fn may_be_nodes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        may_be_dialled(address) || (address.is_loopback() && self.config.advertise.ip().is_loopback())
    }

    pub(crate) fn is_bootstrapped(&self) -> bool {
        self.bootstrapped.load(Ordering::Acquire)
    }

    /// Ends watches and the cache.
    pub(crate) async fn stop(&self) {
        self.shutdown.cancel();
        self.store.cache.stopped().await;
    }

    /// Whether requests are answered.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_bootstrapped() && !self.shutdown.is_cancelled()
    }

    /// The allocators, if this is the resource they are for.
    pub(crate) fn addresses_of(&self, resource: &Resource) -> Option<&ServiceAddresses> {
        self.addresses.as_ref().filter(|_| resource.is_core("services"))
    }

    /// The quotas, if objects of this resource count.
    pub(crate) fn quotas_of(&self, resource: &Resource) -> Option<&Quotas> {
        self.quotas.as_ref().filter(|_| Quotas::counts(resource))
    }
}
