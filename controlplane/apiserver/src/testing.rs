//! A whole API server in memory, for component tests of this crate and of its clients.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use coracle_admission::{AdmissionConfig, Plugin};
use coracle_auth::user::UserInfo;
use coracle_store::{Backend, memory::MemoryBackend};
use tokio_util::sync::CancellationToken;

use crate::{
    config::ApiServerConfig,
    pki::{Pki, ServerNames},
    server::ApiServer,
};

/// The service range of test servers.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";

/// Where clients reach servers that anybody reaches.
const EVERYBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));

/// A server without a listener, over a store in memory.
///
/// # Panics
/// If it cannot start.
pub async fn server() -> Arc<ApiServer> {
    server_over(Arc::new(MemoryBackend::new())).await
}

/// A server without a listener, over `backend`.
///
/// # Panics
/// If it cannot start.
pub async fn server_over(backend: Arc<dyn Backend>) -> Arc<ApiServer> {
    server_at(EVERYBODYS, backend, Vec::new(), AdmissionConfig::default()).await
}

/// A server whose plugins of admission are told something, over `backend`.
#[cfg(test)]
pub(crate) async fn server_told(
    admission: AdmissionConfig,
    backend: Arc<dyn Backend>,
) -> Arc<ApiServer> {
    server_at(EVERYBODYS, backend, Vec::new(), admission).await
}

/// A server with more plugins in its admission.
#[cfg(test)]
pub(crate) async fn server_with(plugins: Vec<Box<dyn Plugin>>) -> Arc<ApiServer> {
    let backend = Arc::new(MemoryBackend::new());
    server_at(EVERYBODYS, backend, plugins, AdmissionConfig::default()).await
}

/// A server that nobody but this machine reaches, so that its nodes may be at loopback.
///
/// # Panics
/// If it cannot start.
pub async fn local_server() -> Arc<ApiServer> {
    let (address, backend) = (IpAddr::from([127, 0, 0, 1]), Arc::new(MemoryBackend::new()));
    server_at(address, backend, Vec::new(), AdmissionConfig::default()).await
}

async fn server_at(
    advertise: IpAddr,
    backend: Arc<dyn Backend>,
    plugins: Vec<Box<dyn Plugin>>,
    admission: AdmissionConfig,
) -> Arc<ApiServer> {
    let pki = Arc::new(Pki::ephemeral(&ServerNames::default()).expect("certificates in memory"));
    let advertise = SocketAddr::new(advertise, 6443);
    let mut config = ApiServerConfig::new(pki, SERVICE_CIDR.parse().expect("a range"), advertise);
    config.admission = admission;
    let server = ApiServer::with_plugins(config, backend, plugins)
        .await
        .expect("a server in memory");
    ensure_account(&server).await;
    server
}

/// Makes the account that pods get unless they name another, as a controller does elsewhere.
async fn ensure_account(server: &Arc<ApiServer>) {
    let account = serde_json::from_value(serde_json::json!({"metadata": {"name": "default"}}))
        .expect("an account");
    let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
        kube::Api::namespaced(server.client(UserInfo::master("test")), "default");
    match accounts
        .create(&kube::api::PostParams::default(), &account)
        .await
    {
        // It is there already, or AlwaysDeny is on.
        Err(kube::Error::Api(status)) if matches!(status.code, 409 | 403) => {}
        made => drop(made.expect("an account")),
    }
}

/// An administrator's client of a fresh server.
///
/// # Panics
/// If the server cannot start.
pub async fn client() -> kube::Client {
    server().await.client(UserInfo::master("test"))
}

/// A listening server; dropping it stops it.
#[derive(Debug)]
pub struct Listening {
    /// The server.
    pub server: Arc<ApiServer>,
    /// Where it listens, on loopback.
    pub address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Lets `server` listen on a free port of loopback.
///
/// # Panics
/// If there is none.
pub async fn listen(server: Arc<ApiServer>) -> Listening {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    let stop = CancellationToken::new();
    coracle_telemetry::spawn("serve", Arc::clone(&server).serve(listener, stop.clone()));
    Listening {
        server,
        address,
        stop,
    }
}

/// A certificate signing request as it stands in `spec.request`: base64 of PEM.
///
/// # Panics
/// If it cannot be made.
pub fn certificate_request(name: &str, group: impl Into<rcgen::DnValue>) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject.push(DnType::OrganizationName, group);
    params.distinguished_name = subject;
    let key = KeyPair::generate().expect("a key");
    BASE64_STANDARD.encode(
        params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("its PEM"),
    )
}
