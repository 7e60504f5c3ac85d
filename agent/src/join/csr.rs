//! Certificates by CertificateSigningRequest: makes a key, asks, waits for the signature.

use std::{net::IpAddr, time::Duration};

use coracle_telemetry::Backoff;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType,
};
use tokio::time::Instant;

use super::node_user;

const LIMIT: Duration = Duration::from_secs(120);
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Certificate chain and key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// What is asked for.
pub(crate) struct Wanted {
    node_name: String,
    signer: &'static str,
    usages: [&'static str; 2],
    addresses: Vec<IpAddr>,
}

impl Wanted {
    /// The node's identity towards the API.
    pub(crate) fn client(node_name: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            signer: CLIENT_SIGNER,
            usages: ["digital signature", "client auth"],
            addresses: Vec::new(),
        }
    }

    /// The identity of the node's own HTTPS API.
    pub(crate) fn serving(node_name: &str, address: IpAddr) -> Self {
        Self {
            node_name: node_name.to_owned(),
            signer: SERVING_SIGNER,
            usages: ["digital signature", "server auth"],
            addresses: vec![address],
        }
    }

    /// The addresses that the certificate must name.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsrError {
    #[error("the server refuses the credentials")]
    Refused,
    #[error("create or read the CertificateSigningRequest")]
    Api(#[source] Box<kube::Error>),
    /// By an administrator, or because the name is another machine's.
    #[error("the request was denied: {message}")]
    Denied { message: String },
    #[error("the request failed: {message}")]
    Failed { message: String },
    #[error("nobody signed the request within {} s", LIMIT.as_secs())]
    Timeout,
    #[error("make a key and a request")]
    Generate(#[from] rcgen::Error),
}

impl From<kube::Error> for CsrError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 || status.code == 403 => Self::Refused,
            other => Self::Api(Box::new(other)),
        }
    }
}

/// A key that certificates can be asked for.
pub(crate) fn new_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

/// Makes a key, asks for its certificate and waits for it.
pub(crate) async fn obtain(client: &kube::Client, wanted: &Wanted) -> Result<Pair, CsrError> {
    obtain_for(client, wanted, &new_key()?).await
}

/// As [`obtain`], for a key that is there.
pub(crate) async fn obtain_for(
    client: &kube::Client,
    wanted: &Wanted,
    key: &KeyPair,
) -> Result<Pair, CsrError> {
    let request = params(wanted)?.serialize_request(key)?.pem()?;
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("node-csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: wanted.signer.to_owned(),
            usages: Some(
                wanted
                    .usages
                    .iter()
                    .map(|&usage| usage.to_owned())
                    .collect(),
            ),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let end = Instant::now() + LIMIT;
    let created = tokio::time::timeout_at(end, api.create(&PostParams::default(), &csr))
        .await
        .map_err(|_| CsrError::Timeout)??;
    let name = created.metadata.name.unwrap_or_default();
    let mut polls = Backoff::new(POLL_MIN, POLL_MAX);
    loop {
        let now = tokio::time::timeout_at(end, api.get(&name))
            .await
            .map_err(|_| CsrError::Timeout)??;
        let status = now.status.unwrap_or_default();
        if let Some(refusal) = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == "Denied" || c.type_ == "Failed")
        {
            let message = refusal.message.clone().unwrap_or_default();
            return Err(if refusal.type_ == "Denied" {
                CsrError::Denied { message }
            } else {
                CsrError::Failed { message }
            });
        }
        if let Some(certificate) = status
            .certificate
            .and_then(|bytes| String::from_utf8(bytes.0).ok())
            .filter(|text| !text.is_empty())
        {
            return Ok(Pair {
                certificate,
                key: key.serialize_pem(),
            });
        }
        if Instant::now() >= end {
            return Err(CsrError::Timeout);
        }
        tokio::time::sleep(polls.pause()).await;
    }
}

fn params(wanted: &Wanted) -> Result<CertificateParams, rcgen::Error> {
    let names = if wanted.addresses.is_empty() {
        Vec::new()
    } else {
        vec![wanted.node_name.clone()]
    };
    let mut params = CertificateParams::new(names)?;
    params.subject_alt_names.extend(
        wanted
            .addresses
            .iter()
            .map(|&address| SanType::IpAddress(address)),
    );
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, node_user(&wanted.node_name));
    params.distinguished_name = subject;
    Ok(params)
}
