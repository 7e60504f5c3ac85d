//! The API server as one value: configuration, caches, and the in-process client.
//!
//! It does not listen by itself: [`ApiServer::serve`] takes a bound listener.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_api::{exposition::Exposition, quota, status::Status};
use coracle_registry::{
    managed_fields::FieldManager,
    part::Part,
    resource::{Registry, Resource},
    service_addresses::{Reservation, ServiceAddresses},
    store::{
        Store, WriteOptions, Written,
        companions::Companion,
        delete::{DeleteOptions, Deleted},
        update::Change,
    },
    watch_cache::WatchCacheError,
};
use coracle_store::Backend;
use coracle_telemetry::{Doubling, Health, Tasks};
use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    address::may_be_dialled,
    admission::{self, new_pod::Surroundings, quota::Quotas},
    authn::{TokenCache, service_account::TokenSigner},
    authz::Chain,
    bootstrap, client, event_expiry,
    limits::Limits,
    metrics::Metrics,
    pki::{Pki, PkiError},
    serve, subresource,
    user::UserInfo,
};

/// Between the end of a task that keeps the house and its next start.
const HOUSEKEEPING: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(60));

/// What an [`ApiServer`] is made from. All values are validated by who builds it.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    /// Certificates and keys.
    pub pki: Arc<Pki>,
    /// Where ClusterIPs come from.
    pub service_cidr: IpNet,
    /// Where node ports come from.
    pub node_ports: RangeInclusive<u16>,
    /// The address clients reach this server at, as published in the `kubernetes` Endpoints.
    pub advertise: SocketAddr,
    /// Bearer tokens known from the start.
    pub static_tokens: HashMap<String, UserInfo>,
    /// Requests in flight, watches and streams not counted, before 429: of all who have no share of their own.
    pub max_in_flight: usize,
    /// Connections at once. Beyond, those go first whose client has not said who it is.
    pub max_connections: usize,
}

impl ApiServerConfig {
    /// Upstream's defaults around what has no default.
    pub fn new(pki: Arc<Pki>, service_cidr: IpNet, advertise: SocketAddr) -> Self {
        Self {
            pki,
            service_cidr,
            node_ports: 30000..=32767,
            advertise,
            static_tokens: HashMap::new(),
            max_in_flight: 600,
            max_connections: 4096,
        }
    }
}

/// Why an [`ApiServer`] could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiServerError {
    /// The store could not be read.
    #[error("the store cannot be read")]
    ReadStore(#[source] WatchCacheError),
    /// TLS could not be set up from the certificates.
    #[error("TLS cannot be set up from the certificates in the pki directory")]
    SetUpTls(#[source] rustls::Error),
    /// Client certificates could not be verified: nobody would log in with one, and nobody be told why.
    #[error("client certificates cannot be verified with ca.crt in the pki directory")]
    VerifyClients(#[source] rustls::server::VerifierBuilderError),
    /// A certificate or key could not be read.
    #[error(transparent)]
    ReadPki(#[from] PkiError),
    /// Something that every cluster starts with could not be written.
    #[error("cannot write {what}: {message}")]
    Bootstrap {
        /// Which object.
        what: String,
        /// Why, as the API said it.
        message: String,
    },
}

/// The API server.
pub struct ApiServer {
    pub(crate) config: ApiServerConfig,
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authorizer: Chain,
    pub(crate) tokens: TokenCache,
    pub(crate) signer: TokenSigner,
    /// For requests to nodes.
    pub(crate) node_tls: Arc<rustls::ClientConfig>,
    pub(crate) anonymous: Arc<UserInfo>,
    addresses: Option<ServiceAddresses>,
    quotas: Option<Quotas>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    bootstrapped: AtomicBool,
    pub(crate) metrics: Metrics,
    /// Figures of other parts of this process.
    pub(crate) exposed: Mutex<Vec<Expose>>,
    /// Other parts of this process, and whether they are well.
    pub(crate) health: Health,
}

/// Writes the figures of a part.
type Expose = Box<dyn Fn(&mut Exposition) + Send + Sync>;

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
        let server = Arc::new(Self {
            addresses,
            quotas,
            store,
            authorizer: Chain::new(&registry),
            registry,
            tokens: TokenCache::default(),
            signer,
            node_tls,
            anonymous: Arc::new(UserInfo::anonymous()),
            limits: Limits::new(config.max_in_flight, config.max_connections),
            shutdown,
            bootstrapped: AtomicBool::new(false),
            metrics,
            exposed: Mutex::default(),
            health: Health::default(),
            config,
        });
        bootstrap::start(&server).await?;
        // The first request finds all roles.
        server.store.cache.catch_up().await.map_err(ApiServerError::ReadStore)?;
        server.bootstrapped.store(true, Ordering::Release);
        let (repairing, sweeping) = (Arc::clone(&server), Arc::clone(&server));
        let mut housekeeping = Tasks::new(server.shutdown.clone());
        housekeeping
            .keep("bootstrap-repair", HOUSEKEEPING, &server.health, move |_| bootstrap::repair(Arc::clone(&repairing)));
        housekeeping
            .keep("event-expiry", HOUSEKEEPING, &server.health, move |_| event_expiry::run(Arc::clone(&sweeping)));
        housekeeping.detach();
        Ok(server)
    }

    /// A client with identity `user` that calls the handlers in this process: no socket, no TLS.
    pub fn client(self: &Arc<Self>, user: UserInfo) -> kube::Client {
        client::client(Arc::clone(self), user)
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
        serve::serve(self, listener, shutdown).await
    }

    /// Whether a node may say that this is an address of its own. One on loopback only to a server that nobody but its
    /// own machine reaches.
    pub(crate) fn may_be_nodes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        may_be_dialled(address) || (address.is_loopback() && self.config.advertise.ip().is_loopback())
    }

    /// Ends watches and the cache. [`ApiServer::serve`] does this too when it ends.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        self.store.cache.stopped().await;
    }

    /// Shows figures of another part of this process on `/metrics`, too.
    pub fn expose(&self, write: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        self.exposed.lock().push(Box::new(write));
    }

    /// What `/healthz` shows of the other parts of this process. Neither `/livez` nor
    /// `/readyz` ask: requests are answered without it.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Whether `/readyz` answers ok.
    pub fn ready(&self) -> bool {
        self.is_bootstrapped() && !self.shutdown.is_cancelled()
    }

    pub(crate) fn is_bootstrapped(&self) -> bool {
        self.bootstrapped.load(Ordering::Acquire)
    }

    /// Checks and creates an object that is admitted, with what has to be reserved for it and what it is charged to.
    pub(crate) async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
        options: WriteOptions,
        manager: Option<&FieldManager>,
    ) -> Result<Written, Status> {
        let stored = resource.storing();
        let surroundings = Surroundings::of(self, stored, namespace, &object).await?;
        let admit = |object: &mut Value| surroundings.map_or(Ok(()), |around| around.admit(stored, object));
        let mut new = self.store.prepare_new(resource, namespace, object, manager, admit)?;
        admission::check_new(self, stored, namespace, &new.object).await?;
        admission::token_secret::fill(self, stored, namespace, &mut new.object).await?;
        let addresses = self.addresses_of(stored);
        let reservation = match addresses {
            Some(addresses) => {
                addresses.catch_up().await?;
                Some(addresses.fill(None, &mut new.object)?)
            }
            None => None,
        };
        // Last, and kept until it is written: others of this namespace wait meanwhile.
        let quotas = self.quotas_of(stored);
        let turn = match quotas {
            Some(quotas) => quotas.turn(namespace).await?,
            None => None,
        };
        let written = {
            let companion = quotas.filter(|_| turn.is_some()).map(|quotas| quotas as &dyn Companion);
            self.store.insert(stored, new, options, companion).await
        };
        if let Some(reservation) = reservation.filter(|_| options.dry_run || is_refused(&written)) {
            reservation.free();
        }
        let written = written?;
        Ok(Written { json: resource.shown_json(written.json), ..written })
    }

    /// The allocators, if this is the resource they are for.
    fn addresses_of(&self, resource: &Resource) -> Option<&ServiceAddresses> {
        self.addresses.as_ref().filter(|_| resource.is_core("services"))
    }

    /// The quotas, if objects of this resource count.
    fn quotas_of(&self, resource: &Resource) -> Option<&Quotas> {
        self.quotas.as_ref().filter(|_| Quotas::counts(resource))
    }

    /// Changes an object and what is reserved for it.
    pub(crate) async fn update(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let subresource = if target.part == Part::Resize { "resize" } else { "" };
        let may_use_more = matches!(target.part, Part::Main | Part::Resize)
            && quota::changes_by_update(resource.info.group, resource.info.plural, subresource);
        let quotas = self.quotas_of(resource).filter(|_| may_use_more);
        let turn = match quotas {
            Some(quotas) => quotas.turn(target.namespace).await?,
            None => None,
        };
        let target =
            Change { companion: quotas.filter(|_| turn.is_some()).map(|quotas| quotas as &dyn Companion), ..*target };
        let Some(addresses) = self.addresses_of(resource).filter(|_| target.part == Part::Main) else {
            return self.store.update(resource, &target, change).await;
        };
        addresses.catch_up().await?;
        let key = resource.key(target.namespace, target.name);
        let held = Mutex::new(Vec::new());
        let reserve = |new: &mut Value, old: &Value| {
            if let Some(admit) = target.reserve {
                admit(new, old)?;
            }
            // What a lost race had reserved goes back first.
            held.lock().drain(..).for_each(Reservation::free);
            let reservation = addresses.fill(Some(&key), new)?;
            held.lock().push(reservation);
            Ok(())
        };
        let target = Change { reserve: Some(&reserve), ..target };
        let written = self.store.update(resource, &target, change).await;
        if target.options.dry_run || is_refused(&written) {
            held.lock().drain(..).for_each(Reservation::free);
        }
        written
    }

    /// Deletes an object and gives back what was reserved for it.
    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        self.store.delete(resource, namespace, name, options).await
    }
}

/// Whether nothing was written for sure: a store that fails may have written all the same.
fn is_refused(written: &Result<Written, Status>) -> bool {
    written.as_ref().is_err_and(|status| status.code < 500)
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("advertise", &self.config.advertise).finish_non_exhaustive()
    }
}

/// The first address of `service_cidr`: the `kubernetes` Service's.
pub fn first_service_ip(service_cidr: &IpNet) -> IpAddr {
    match service_cidr.trunc() {
        IpNet::V4(net) => Ipv4Addr::from(u32::from(net.addr()).saturating_add(1)).into(),
        IpNet::V6(net) => Ipv6Addr::from(u128::from(net.addr()).saturating_add(1)).into(),
    }
}
