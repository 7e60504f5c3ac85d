//! The API server as one value: starts, serves, hands out in-process clients.
//!
//! It does not listen by itself: [`ApiServer::serve`] takes a bound listener.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_api::exposition::Exposition;
use coracle_auth::{
    authn::{Authenticator, service_account::TokenSigner},
    authz::Chain,
    user::UserInfo,
};
use coracle_registry::{resource::Registry, service_addresses::ServiceAddresses, store::Store};
use coracle_store::Backend;
use coracle_telemetry::{Doubling, Health, Tasks};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::quota::Quotas, bootstrap, client, config::ApiServerConfig, error::ApiServerError, event_expiry,
    limits::Limits, metrics::Metrics, pki::PkiError, serve, state::State, subresource,
};

/// Between the end of a task that keeps the house and its next start.
const HOUSEKEEPING: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(60));

/// The API server.
pub struct ApiServer {
    pub(crate) state: Arc<State>,
}

impl ApiServer {
    /// Loads the caches from `backend`, writes what a new cluster lacks, and is then ready to serve.
    ///
    /// # Errors
    /// The store cannot be read or written, or the certificates are unusable: permanent.
    pub async fn new(config: ApiServerConfig, backend: Arc<dyn Backend>) -> Result<Arc<Self>, ApiServerError> {
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new();
        let backend = metrics.meter(backend);
        let (registry, cache) = Registry::start(&backend, shutdown.clone()).await.map_err(ApiServerError::ReadStore)?;
        let registry = Arc::new(registry);
        let signer = TokenSigner::new(&config.pki.service_account_key_pem).ok_or(PkiError::Parse { what: "sa.key" })?;
        let node_tls = subresource::node_tls_config(&config.pki)?;
        let (range, ports) = (config.service_cidr, config.node_ports.clone());
        let addresses = ServiceAddresses::new(range, ports, &registry, Arc::clone(&cache));
        let store = Store { backend, cache };
        let quotas = registry.core("resourcequotas").map(|quotas| Quotas::new(store.clone(), Arc::clone(quotas)));
        let signer = Arc::new(signer);
        let tokens = config.static_tokens.clone();
        let cache = Arc::clone(&store.cache);
        let state = Arc::new(State {
            addresses,
            quotas,
            store,
            authenticator: Authenticator::new(Arc::clone(&registry), cache, Arc::clone(&signer), tokens),
            authorizer: Chain::new(&registry),
            registry,
            signer,
            node_tls,
            limits: Limits::new(config.max_in_flight, config.max_connections),
            shutdown,
            bootstrapped: AtomicBool::new(false),
            metrics,
            exposed: Mutex::default(),
            health: Health::default(),
            config,
        });
        bootstrap::start(&state).await?;
        // The first request finds all roles.
        state.store.cache.catch_up().await.map_err(ApiServerError::ReadStore)?;
        state.bootstrapped.store(true, Ordering::Release);
        let (repairing, sweeping) = (Arc::clone(&state), Arc::clone(&state));
        let mut housekeeping = Tasks::new(state.shutdown.clone());
        housekeeping
            .keep("bootstrap-repair", HOUSEKEEPING, &state.health, move |_| bootstrap::repair(Arc::clone(&repairing)));
        housekeeping
            .keep("event-expiry", HOUSEKEEPING, &state.health, move |_| event_expiry::run(Arc::clone(&sweeping)));
        housekeeping.detach();
        Ok(Arc::new(Self { state }))
    }

    /// A client with identity `user` that calls the handlers in this process: no socket, no TLS.
    pub fn client(self: &Arc<Self>, user: UserInfo) -> kube::Client {
        client::client(Arc::clone(&self.state), user)
    }

    /// Serves `listener` until `shutdown`, then lets requests under way finish (10 s at most).
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), ApiServerError> {
        serve::serve(Arc::clone(&self.state), listener, shutdown).await
    }

    /// Ends watches and the cache. [`ApiServer::serve`] does this too when it ends.
    pub async fn stop(&self) {
        self.state.stop().await;
    }

    /// Shows figures of another part of this process on `/metrics`, too.
    pub fn expose(&self, write: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        self.state.exposed.lock().push(Box::new(write));
    }

    /// What `/healthz` shows of the other parts of this process. Neither `/livez` nor
    /// `/readyz` ask: requests are answered without it.
    pub fn health(&self) -> &Health {
        &self.state.health
    }

    /// Whether `/readyz` answers ok.
    pub fn ready(&self) -> bool {
        self.state.is_ready()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("advertise", &self.state.config.advertise).finish_non_exhaustive()
    }
}
