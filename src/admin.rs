//! Calls of the API as administrator, by the kubeconfig that the server has written.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use base64::Engine;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use sha2::{Digest, Sha256};

use crate::cli::ApiArgs;

/// How long the server may take to be there.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// A client of the administrator's kubeconfig, and the hash of the authority in it. It waits so
/// long for an answer, and for each piece of one.
pub(crate) async fn connect(
    args: &ApiArgs,
    patience: Duration,
) -> anyhow::Result<(Client, String)> {
    let path = path(args);
    let read = || reading(&path);
    let kubeconfig = read_kubeconfig(&path).with_context(read)?;
    let ca = kubeconfig
        .clusters
        .first()
        .and_then(|cluster| cluster.cluster.as_ref()?.certificate_authority_data.clone())
        .ok_or_else(|| {
            anyhow!(
                "kubeconfig {} holds no certificate authority",
                path.display()
            )
        })?;
    let pem = base64::engine::general_purpose::STANDARD
        .decode(ca)
        .with_context(read)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(read)?;
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(patience);
    let client = Client::try_from(config).with_context(read)?;
    Ok((client, ca_hash(&pem)?))
}

/// The address in the administrator's kubeconfig, which others can use, too.
pub(crate) fn server(args: &ApiArgs) -> anyhow::Result<String> {
    let path = path(args);
    let kubeconfig = read_kubeconfig(&path).with_context(|| reading(&path))?;
    let cluster = kubeconfig.clusters.into_iter().next();
    cluster
        .and_then(|cluster| cluster.cluster?.server)
        .ok_or_else(|| anyhow!("kubeconfig {} names no server", path.display()))
}

fn path(args: &ApiArgs) -> PathBuf {
    let own = || args.data.data_dir.join("admin.kubeconfig");
    args.kubeconfig.clone().unwrap_or_else(own)
}

fn reading(path: &Path) -> String {
    format!(
        "read kubeconfig {} (is this the server's --data-dir?)",
        path.display()
    )
}

/// The error leaves the path to whoever reports it.
fn read_kubeconfig(path: &Path) -> anyhow::Result<Kubeconfig> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(source, _) => source.into(),
        other => other.into(),
    })
}

fn ca_hash(pem: &[u8]) -> anyhow::Result<String> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let certificate =
        CertificateDer::from_pem_slice(pem).context("parse the certificate authority")?;
    Ok(hex::encode(Sha256::digest(certificate)))
}
