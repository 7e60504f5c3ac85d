//! What the parts of a server share: what is built once, and data only. Who serves with it stands
//! above.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_admission as admission;
use coracle_api::address;
use coracle_auth::{
    authn::{Authenticator, service_account::TokenSigner},
    authz::UnionAuthorizer,
};
use coracle_registry::{resource::Registry, service_allocator::Allocators, store::Store};
use coracle_telemetry::Health;
use coracle_webhook::Webhooks;
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::Catalogs, config::ApiServerConfig, first_address::FirstAddress,
    joining::attempts::Attempts, limits::Limits, metrics::Metrics, slow::SlowRequests,
};

/// The state of one server.
pub(crate) struct State {
    pub(crate) config: ApiServerConfig,
    pub(crate) store: Store,
    /// The kinds that are built in.
    pub(crate) registry: Arc<Registry>,
    /// What is served.
    pub(crate) catalog: Arc<Catalogs<Self>>,
    pub(crate) webhooks: Webhooks,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<UnionAuthorizer>,
    pub(crate) signer: Arc<TokenSigner>,
    /// For requests to nodes.
    pub(crate) node_tls: Arc<rustls::ClientConfig>,
    pub(crate) allocators: Option<Allocators>,
    pub(crate) first_address: FirstAddress,
    pub(crate) admission: admission::Chain,
    pub(crate) limits: Limits,
    /// Of servers that would join.
    pub(crate) join_attempts: Attempts,
    pub(crate) shutdown: CancellationToken,
    pub(crate) bootstrapped: AtomicBool,
    pub(crate) metrics: Metrics,
    pub(crate) slow: SlowRequests,
    /// Other parts of this process, and whether they are well.
    pub(crate) health: Health,
}

impl State {
    /// Whether a node may say that this is an address of its own.
    pub(crate) fn may_be_nodes(&self, address: IpAddr) -> bool {
        address::may_be_nodes(address, self.config.advertise.ip())
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
}
