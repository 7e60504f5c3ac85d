//! The API server as one value: starts, serves, hands out in-process clients.
//!
//! It does not listen by itself: [`ApiServer::serve`] takes a bound listener.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_admission::{self as admission, Plugin};
use coracle_api::status::Status;
use coracle_auth::{
    authn::{Authenticator, service_account::TokenSigner},
    authz::UnionAuthorizer,
    user::UserInfo,
};
use coracle_registry::{
    custom_resource::CustomResource,
    resource::Registry,
    service_allocator::{Allocators, repair::Finding},
    store::Store,
};
use coracle_store::Backend;
use coracle_telemetry::{ExponentialBackoff, Health, Tasks, metrics::MetricsRegistry};
use coracle_webhook::Webhooks;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    allocation_repair, binding_batch, bootstrap,
    catalog::{Catalog, Catalogs, Serving},
    client,
    config::ApiServerConfig,
    custom_resources, definitions,
    error::ApiServerError,
    event_expiry,
    first_address::FirstAddress,
    joining::attempts::Attempts,
    limits::Limits,
    metrics::Metrics,
    metrics_api,
    pki::PkiError,
    policy_status, review, serve,
    service_dialer::ServiceDialer,
    slow::SlowRequests,
    state::State,
    subresource, unstored,
};

/// Between the end of a task that keeps the house and its next start.
const HOUSEKEEPING: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The API server.
pub struct ApiServer {
    pub(crate) state: Arc<State>,
    /// Which kinds that come at run time are served.
    serving: definitions::Serving,
}

impl ApiServer {
    /// Loads the caches from `backend`, writes what a new cluster lacks, and is then ready to
    /// serve.
    ///
    /// # Errors
    /// The store cannot be read or written, or the certificates are unusable: permanent.
    pub async fn new(
        config: ApiServerConfig,
        backend: Arc<dyn Backend>,
    ) -> Result<Arc<Self>, ApiServerError> {
        Self::with_plugins(config, backend, Vec::new()).await
    }

    /// The same with more plugins in its admission.
    pub(crate) async fn with_plugins(
        config: ApiServerConfig,
        backend: Arc<dyn Backend>,
        plugins: Vec<Box<dyn Plugin>>,
    ) -> Result<Arc<Self>, ApiServerError> {
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new();
        let backend = metrics.meter(backend);
        let (registry, cache) = Registry::start(&backend, shutdown.clone())
            .await
            .map_err(ApiServerError::ReadStore)?;
        let registry = Arc::new(registry);
        let signer = TokenSigner::new(&config.pki.service_account_key_pem)
            .ok_or(PkiError::Parse { what: "sa.key" })?;
        let node_tls = subresource::node_tls_config(&config.pki)?;
        let (range, ports) = (config.service_cidr, config.node_ports.clone());
        let allocators = Allocators::new(range, ports, &registry, Arc::clone(&cache));
        let store = Store { backend, cache };
        let signer = Arc::new(signer);
        let authorizer = Arc::new(UnionAuthorizer::new(&registry));
        let catalog = Arc::new(Catalogs::new(Catalog::new(served(&registry))));
        let dialer = Arc::new(ServiceDialer::default());
        let webhooks = Webhooks::new(Arc::clone(&dialer) as _);
        let chain = admission::Chain::new(&admission::Parts {
            store: store.clone(),
            registry: Arc::clone(&registry),
            kinds: Arc::clone(&catalog) as _,
            webhooks: webhooks.clone(),
            authorizer: Arc::clone(&authorizer),
            signer: Arc::clone(&signer),
            cluster_ca: config.pki.ca.cert_pem.clone(),
            service_cidr: config.service_cidr,
            config: config.admission.clone(),
            metrics: metrics.pod_security.clone(),
            admission_metrics: metrics.admission.clone(),
            webhook_metrics: metrics.webhooks.clone(),
            condition_metrics: metrics.conditions.clone(),
            policy_metrics: metrics.policies.clone(),
            advertise: config.advertise.ip(),
        });
        let (tokens, cache) = (config.static_tokens.clone(), Arc::clone(&store.cache));
        let state = Arc::new(State {
            allocators,
            first_address: FirstAddress::default(),
            admission: plugins.into_iter().fold(chain, admission::Chain::with),
            store,
            authenticator: Authenticator::new(
                Arc::clone(&registry),
                cache,
                Arc::clone(&signer),
                tokens,
            ),
            authorizer,
            catalog,
            registry,
            webhooks,
            signer,
            node_tls,
            limits: Limits::new(config.max_in_flight, config.max_connections),
            join_attempts: Attempts::default(),
            shutdown,
            bootstrapped: AtomicBool::new(false),
            metrics,
            slow: SlowRequests::default(),
            health: Health::default(),
            config,
        });
        dialer.serve(Arc::downgrade(&state));
        let serving = begin(&state).await?;
        Ok(Arc::new(Self { state, serving }))
    }

    /// A client with identity `user` that calls the handlers in this process: no socket, no TLS.
    pub fn client(self: &Arc<Self>, user: UserInfo) -> kube::Client {
        client::client(Arc::clone(&self.state), user)
    }

    /// Serves a kind that is not built in from now on; one with the same group and plural is
    /// replaced by it, and its watches end.
    ///
    /// # Errors
    /// 409 if a built-in resource has these names; what the store says if its objects cannot be
    /// loaded.
    pub async fn serve_custom_resource(&self, kind: CustomResource) -> Result<(), Status> {
        custom_resources::serve(&self.state, kind).await
    }

    /// Serves such a kind no more. Its objects stay in the store.
    pub async fn withdraw_custom_resource(&self, group: &str, plural: &str) {
        custom_resources::withdraw(&self.state, group, plural).await;
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

    /// Has the `kubernetes` Service lead to `servers`: for who knows all servers of a store that is
    /// shared. Without one, it leads where it did.
    ///
    /// # Errors
    /// [`ApiServerError::Bootstrap`] names the object that could not be written.
    pub async fn lead_to(&self, servers: &[SocketAddr]) -> Result<(), ApiServerError> {
        bootstrap::lead_to(&self.state, servers).await
    }

    /// Gives kinds their names, tells their definitions what is established and deletes the objects
    /// of those that go, and policies what of them does not fit, until `stop`: for one of several
    /// servers.
    pub async fn keep_definitions(self: Arc<Self>, stop: CancellationToken) {
        let policies = policy_status::keep(Arc::clone(&self.state), stop.clone());
        let serving = Arc::clone(&self.serving);
        tokio::join!(
            definitions::keep(Arc::clone(&self.state), serving, stop),
            policies
        );
    }

    /// Deletes old Events until `stop`: for one of several servers.
    pub async fn forget_old_events(self: Arc<Self>, stop: CancellationToken) {
        event_expiry::run(Arc::clone(&self.state), stop).await;
    }

    /// Keeps what Services have been given in step with them until `stop`: for one of several
    /// servers. `tell` is for events: what lasts is told once.
    pub async fn repair_allocations(
        self: Arc<Self>,
        stop: CancellationToken,
        tell: impl Fn(Finding) + Send + Sync,
    ) {
        allocation_repair::run(Arc::clone(&self.state), stop, tell).await;
    }

    /// Ends watches and the cache. [`ApiServer::serve`] does this too when it ends.
    pub async fn stop(&self) {
        self.state.stop().await;
    }

    /// What `/metrics` shows, for the figures of the other parts of this process.
    pub fn metrics(&self) -> MetricsRegistry {
        self.state.metrics.registry.clone()
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

/// Makes what the first request is to find, and begins to look after it.
async fn begin(state: &Arc<State>) -> Result<definitions::Serving, ApiServerError> {
    bootstrap::start(state).await?;
    // All roles.
    let caught_up = state.store.cache.catch_up().await;
    caught_up.map_err(ApiServerError::ReadStore)?;
    // All kinds.
    let serving = definitions::Serving::default();
    definitions::serve_all(state, &serving).await;
    state.bootstrapped.store(true, Ordering::Release);
    keep_house(state, &serving);
    Ok(serving)
}

/// Starts the tasks that go on until the server stops: what every server does for itself.
fn keep_house(state: &Arc<State>, serving: &definitions::Serving) {
    // The first write finds all policies.
    state.admission.refresh_policies();
    let repairing = Arc::clone(state);
    let mut housekeeping = Tasks::new(state.shutdown.clone());
    housekeeping.keep("bootstrap-repair", HOUSEKEEPING, &state.health, move |_| {
        bootstrap::repair(Arc::clone(&repairing))
    });
    let (following, serving) = (Arc::clone(state), Arc::clone(serving));
    let admitting = Arc::clone(state);
    housekeeping.keep("policies", HOUSEKEEPING, &state.health, move |stop| {
        let server = Arc::clone(&admitting);
        async move { server.admission.follow_policies(&stop).await }
    });
    housekeeping.keep("definitions", HOUSEKEEPING, &state.health, move |_| {
        definitions::follow(Arc::clone(&following), Arc::clone(&serving))
    });
    housekeeping.detach();
}

/// What is served from the start on.
fn served(registry: &Registry) -> Vec<Serving<State>> {
    let stored = registry
        .resources()
        .iter()
        .map(|resource| Serving::Stored(Arc::clone(resource)));
    stored.chain(virtuals()).collect()
}

/// What has no store.
pub(crate) fn virtuals() -> impl Iterator<Item = Serving<State>> {
    let all = [
        unstored::resources(),
        review::resources(),
        metrics_api::resources(),
        binding_batch::resources(),
    ];
    all.into_iter().flatten().map(Serving::Virtual)
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("advertise", &self.state.config.advertise)
            .finish_non_exhaustive()
    }
}
