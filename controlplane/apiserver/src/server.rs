//! The API server as one value: configuration, caches, and the in-process client.
//!
//! It does not listen by itself: [`ApiServer::serve`] takes a bound listener.

use std::{collections::HashMap, net::SocketAddr, ops::RangeInclusive, sync::Arc};

use coracle_store::Backend;
use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{pki::Pki, user::UserInfo};

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
    /// Bearer tokens known from the start; for tests.
    pub static_tokens: HashMap<String, UserInfo>,
    /// Requests in flight, watches and streams not counted, before 429.
    pub max_in_flight: usize,
}

/// Why an [`ApiServer`] could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiServerError {
    /// The store could not be read.
    #[error("the store cannot be read")]
    ReadStore(#[source] coracle_store::StoreError),
    /// TLS could not be set up from the certificates.
    #[error("TLS cannot be set up from the certificates in the pki directory")]
    SetUpTls(#[source] rustls::Error),
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
}

impl ApiServer {
    /// Loads the caches from `backend`, writes what a new cluster lacks, and is then ready to serve.
    ///
    /// # Errors
    /// The store cannot be read or written, or the certificates are unusable: permanent.
    pub async fn new(config: ApiServerConfig, backend: Arc<dyn Backend>) -> Result<Arc<Self>, ApiServerError> {
        let _ = backend;
        Ok(Arc::new(Self { config }))
    }

    /// A client with identity `user` that calls the handlers in this process: no socket, no TLS.
    pub fn client(self: &Arc<Self>, user: UserInfo) -> kube::Client {
        let _ = user;
        unimplemented!()
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
        let _ = (listener, shutdown);
        Ok(())
    }
}

/// The first address of `service_cidr`: the `kubernetes` Service's.
pub fn first_service_ip(service_cidr: &IpNet) -> std::net::IpAddr {
    match service_cidr.trunc() {
        IpNet::V4(net) => std::net::Ipv4Addr::from(u32::from(net.addr()).saturating_add(1)).into(),
        IpNet::V6(net) => std::net::Ipv6Addr::from(u128::from(net.addr()).saturating_add(1)).into(),
    }
}
