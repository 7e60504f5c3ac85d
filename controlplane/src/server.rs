//! Starting and stopping the parts.
//!
//! Order of start: data directory (locked), certificates, address, API server, then
//! everything that speaks to it. Order of stop: the other way round, so that nobody loses the API
//! server under its feet.

use std::{
    collections::HashMap,
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_apiserver::{
    ApiServer, ApiServerConfig, ApiServerError, UserInfo,
    pki::{self, KeyPair, Pki, PkiError},
    token_file::{self, TokenFileError},
};
use coracle_controllers::{CertificateAuthority, Clients, ControllersConfig};
use coracle_store::{Backend, sqlite::SqliteBackend};
use coracle_telemetry::{Tasks, spawn};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[cfg(feature = "etcd")]
use crate::{config::StoreEngine, joining};
use crate::{
    config::{NODE_MASK_BITS, ServerConfig, ServerConfigError},
    identity::Identity,
    leading::{self, Choice, RESTART},
    presence,
    store::{self, OpenError, Opened},
};

/// How long controllers and scheduler get to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long clients in this process get to let go of the store.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const RELEASE_POLL: Duration = Duration::from_millis(2);

/// Why a control plane could not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// What keeps the objects, or the certificates, cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Certificates cannot be made or read.
    #[error(transparent)]
    OpenPki(#[from] PkiError),
    /// What the servers of a cluster share cannot be put into their store.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Share(#[from] joining::JoinError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {}", bind_hint(.error))]
    Bind {
        /// The address as it was given.
        address: SocketAddr,
        /// What the kernel said; part of the text, so no source.
        error: io::Error,
    },
    /// The static tokens cannot be read.
    #[error("cannot read --token-auth-file {}", path.display())]
    ReadTokens {
        /// Which file.
        path: PathBuf,
        /// What reading it failed with.
        source: io::Error,
    },
    /// The static tokens are not written as they should be.
    #[error("--token-auth-file {} cannot be used", path.display())]
    ParseTokens {
        /// Which file.
        path: PathBuf,
        /// The line that is wrong, and how.
        source: TokenFileError,
    },
    /// The API server failed.
    #[error(transparent)]
    ApiServer(#[from] ApiServerError),
    /// The store has closed: what it keeps is in doubt.
    #[error("the store has closed by itself: {why}; only a new start can tell what is there")]
    StoreClosed {
        /// What is the matter with it.
        why: String,
    },
    /// A part died in a way that it cannot be started again.
    #[error("{part} ended unexpectedly")]
    PartDied {
        /// The part's name, as `/healthz` has it.
        part: &'static str,
    },
}

/// Where a server keeps what lasts.
fn server_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("server")
}

fn bind_hint(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use by another process".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied (ports below 1024 need root)".to_owned()
        }
        _ => error.to_string(),
    }
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| ServerError::Bind { address, error })
}

/// A running control plane.
pub struct Server {
    apiserver: Arc<ApiServer>,
    address: SocketAddr,
    pki: Arc<Pki>,
    backend: Arc<dyn Backend>,
    store_dir: PathBuf,
    /// Of the data directory, where the store is not in it.
    lock: Option<File>,
    serving: JoinHandle<Result<(), ApiServerError>>,
    parts: Tasks,
    shutdown: CancellationToken,
    stop_serving: CancellationToken,
}

impl Server {
    /// Keeps every server off `data_dir` until the file is dropped, as who deletes it has to;
    /// `None` if no server was ever there.
    ///
    /// # Errors
    /// [`ServerError::Open`] while a server runs on it: stop that one first.
    pub fn keep_off(data_dir: &Path) -> Result<Option<File>, ServerError> {
        Ok(SqliteBackend::keep_off(&server_dir(data_dir)).map_err(OpenError::Store)?)
    }

    /// Starts every part; returns once the API server answers.
    ///
    /// # Errors
    /// One sentence about what cannot be used: an address, a directory, a range.
    pub async fn start(
        config: ServerConfig,
        shutdown: CancellationToken,
    ) -> Result<Self, ServerError> {
        config.validate()?;
        // Before anything is written: who mistypes an address leaves no cluster behind.
        let listener = listen(config.bind).await?;
        let server_dir = server_dir(&config.data_dir);
        let opened = store::open(&config, server_dir.clone()).await?;
        #[cfg(feature = "etcd")]
        if let StoreEngine::Etcd(etcd) = &config.store {
            joining::publish(&config, &opened.pki, etcd, opened.backend.as_ref()).await?;
        }
        Self::start_on(config, listener, opened, server_dir, shutdown).await
    }

    /// As [`Server::start`], on a store that is open.
    pub(crate) async fn start_on(
        config: ServerConfig,
        listener: TcpListener,
        Opened { backend, pki, lock }: Opened,
        store_dir: PathBuf,
        shutdown: CancellationToken,
    ) -> Result<Self, ServerError> {
        let address = listener.local_addr().map_err(|error| ServerError::Bind {
            address: config.bind,
            error,
        })?;
        let advertise = SocketAddr::new(config.advertise, address.port());
        let pki = Arc::new(pki);
        let mut api_config =
            ApiServerConfig::new(Arc::clone(&pki), config.service_cidr.into(), advertise);
        if let Some(path) = &config.token_auth_file {
            api_config.static_tokens = read_tokens(path)?;
        }
        api_config.admission = config.admission.clone();
        api_config.local_storage = config.local_storage;
        api_config.dns = config.dns;
        let apiserver = ApiServer::new(api_config, Arc::clone(&backend)).await?;
        let kubeconfig = pki.admin_kubeconfig(&config.url(advertise));
        pki::keep_private(&config.kubeconfig_out, kubeconfig.as_bytes())?;
        let stop_serving = CancellationToken::new();
        let serving = spawn(
            "the API server",
            Arc::clone(&apiserver).serve(listener, stop_serving.clone()),
        );
        let parts = start_parts(&config, advertise, &apiserver, &backend, &pki, &shutdown);
        Ok(Self {
            apiserver,
            address,
            pki,
            backend,
            store_dir,
            lock,
            serving,
            parts,
            shutdown,
            stop_serving,
        })
    }

    /// An in-process client with identity `user`.
    pub fn client(&self, user: UserInfo) -> kube::Client {
        self.apiserver.client(user)
    }

    /// Where the API server listens; with the port that was given for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster's certificates.
    pub fn pki(&self) -> &Arc<Pki> {
        &self.pki
    }

    /// Whether `/readyz` answers ok.
    pub fn ready(&self) -> bool {
        self.apiserver.ready() && !self.serving.is_finished()
    }

    /// Returns once every part has ended after `shutdown`, or one failed for good.
    ///
    /// # Errors
    /// What failed.
    pub async fn stopped(mut self) -> Result<(), ServerError> {
        let mut closed = None;
        let early = tokio::select! {
            () = self.shutdown.cancelled() => None,
            ended = &mut self.serving => Some(ended),
            () = self.backend.closed() => {
                let why = why_closed(&*self.backend, &self.store_dir);
                tracing::error!(why, "the store has closed by itself; ending");
                closed = Some(why);
                None
            }
        };
        self.shutdown.cancel();
        // Before the API server, so that they can finish what they are writing.
        self.parts.finish(STOP_TIMEOUT).await;
        self.stop_serving.cancel();
        let serving = match early {
            Some(ended) => {
                ended.map_err(|_| ServerError::PartDied {
                    part: "the API server",
                })??;
                return Err(ServerError::PartDied {
                    part: "the API server",
                });
            }
            None => (&mut self.serving).await,
        };
        serving.map_err(|_| ServerError::PartDied {
            part: "the API server",
        })??;
        let Self {
            apiserver,
            backend,
            lock,
            ..
        } = self;
        drop(apiserver);
        close(backend).await;
        drop(lock);
        match closed {
            Some(why) => Err(ServerError::StoreClosed { why }),
            None => Ok(()),
        }
    }
}

/// What is the matter with a store that has closed.
fn why_closed(backend: &dyn Backend, dir: &Path) -> String {
    let failure = backend.is_shared().then(|| backend.failure()).flatten();
    failure.unwrap_or_else(|| format!("the state of the disk of {} is in doubt", dir.display()))
}

/// Closes the store once nobody else holds it, so that the directory is free when the server says
/// it has stopped.
async fn close(backend: Arc<dyn Backend>) {
    let deadline = tokio::time::Instant::now() + RELEASE_TIMEOUT;
    while Arc::strong_count(&backend) > 1 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(RELEASE_POLL).await;
    }
    // Waits for the last commit: blocks.
    let _ = tokio::task::spawn_blocking(move || drop(backend)).await;
}

fn read_tokens(path: &Path) -> Result<HashMap<String, UserInfo>, ServerError> {
    let text = std::fs::read_to_string(path).map_err(|source| ServerError::ReadTokens {
        path: path.to_owned(),
        source,
    })?;
    token_file::parse(&text).map_err(|source| ServerError::ParseTokens {
        path: path.to_owned(),
        source,
    })
}

/// Each controller as its own service account, with what `system:controller:*` gives it; what they
/// share as `system:kube-controller-manager`.
fn controller_clients(apiserver: &Arc<ApiServer>) -> Clients {
    let shared = apiserver.client(UserInfo::new("system:kube-controller-manager", &[]));
    // Weak: what the controllers hold keeps no stopped server alive.
    let server = Arc::downgrade(apiserver);
    let fallback = shared.clone();
    Clients::new(shared, move |account| match server.upgrade() {
        Some(server) => server.client(UserInfo::service_account("kube-system", account)),
        None => fallback.clone(),
    })
}

/// Starts what is the cluster's, of which one server does each, and what is this server's own.
fn start_parts(
    config: &ServerConfig,
    advertise: SocketAddr,
    apiserver: &Arc<ApiServer>,
    backend: &Arc<dyn Backend>,
    pki: &Pki,
    shutdown: &CancellationToken,
) -> Tasks {
    let mut parts = Tasks::new(shutdown.clone());
    let choice = if backend.is_shared() {
        let holder = format!("{}_{}", config.host_name, Uuid::new_v4());
        let told = Identity {
            host: config.host_name.clone(),
            holder: holder.clone(),
            address: Some(advertise).filter(|advertise| !advertise.ip().is_loopback()),
        };
        let (telling, shared) = (Arc::clone(apiserver), Arc::clone(backend));
        parts.keep("presence", RESTART, apiserver.health(), move |stop| {
            presence::run(
                Arc::clone(&telling),
                Arc::clone(&shared),
                told.clone(),
                stop,
            )
        });
        Choice::ByLease { identity: holder }
    } else {
        Choice::Alone
    };
    let mut scheduling = config.scheduling.clone();
    scheduling.metrics = apiserver.metrics();
    let controllers = (
        controller_clients(apiserver),
        controllers_config(config, apiserver, pki),
    );
    for group in leading::groups(apiserver, backend, scheduling, controllers) {
        group.start(&choice, apiserver, &mut parts);
    }
    parts
}

fn controllers_config(
    config: &ServerConfig,
    apiserver: &ApiServer,
    pki: &Pki,
) -> ControllersConfig {
    let authority = |pair: &KeyPair| CertificateAuthority {
        certificate_pem: pair.cert_pem.clone(),
        key_pem: pair.key_pem.clone(),
    };
    let mut controllers = ControllersConfig::new(
        config.cluster_cidr,
        authority(&pki.ca),
        authority(&pki.kubelet_ca),
    );
    controllers.service_cidr = Some(config.service_cidr.into());
    controllers.has_loopback_nodes = config.advertise.is_loopback();
    controllers.own_node.clone_from(&config.own_node);
    controllers.node_mask_bits = NODE_MASK_BITS;
    controllers.pod_network.mode = config.pod_network;
    controllers.pod_network.vxlan_port = config.vxlan_port;
    controllers.node_monitor_grace = config.node_monitor_grace;
    controllers.eviction_timeout = config.eviction_timeout;
    controllers.load_balancers = config.load_balancer;
    controllers.metrics = apiserver.metrics();
    controllers
}
