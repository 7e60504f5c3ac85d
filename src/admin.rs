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

/// What is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// They are repeated when the server has no answer now (429, 503, 504).
    Reads,
    /// They are not: such an answer may come although the write has been done, and who did it twice
    /// would be told that it failed.
    Writes,
}

/// A client of any kubeconfig, for whoever runs for long. `reading` is what failed if it cannot be
/// read.
pub(crate) async fn client(path: &Path, reading: &str) -> anyhow::Result<Client> {
    let read = || reading.to_owned();
    let kubeconfig = read_kubeconfig(path).with_context(read)?;
    let config = configured(kubeconfig).await.with_context(read)?;
    Client::try_from(config).with_context(read)
}

/// A client of the administrator's kubeconfig, and the hash of the authority in it. It waits so
/// long for an answer, and for each piece of one.
pub(crate) async fn connect(
    args: &ApiArgs,
    calls: Calls,
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
    let mut config = configured(kubeconfig).await.with_context(read)?;
    config.read_timeout = Some(patience);
    config.default_retry = calls == Calls::Reads;
    let client = Client::try_from(config).with_context(read)?;
    Ok((client, ca_hash(&pem)?))
}

async fn configured(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.connect_timeout = Some(CONNECT_DEADLINE);
    Ok(config)
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

/// The kubeconfig that is meant.
pub(crate) fn path(args: &ApiArgs) -> PathBuf {
    let own = || args.data.data_dir.join("admin.kubeconfig");
    args.kubeconfig.clone().unwrap_or_else(own)
}

/// What fails where there is no such file.
pub(crate) fn reading(path: &Path) -> String {
    format!(
        "read kubeconfig {} (is this the server's --data-dir? Elsewhere give --kubeconfig)",
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::{
        Api,
        api::{ListParams, PostParams},
    };
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::cli::DataDir;

    const BUSY: &str =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n";
    const LIST: &str = r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#;

    /// Answers 503, and then with a list.
    async fn busy_once(listener: TcpListener) {
        for n in 0_u32.. {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await.expect("a request");
            let answer = match n {
                0 => format!("{BUSY}Connection: close\r\n\r\n"),
                _ => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{LIST}",
                    LIST.len()
                ),
            };
            let answered = stream.write_all(answer.as_bytes()).await;
            answered.expect("somebody reads it");
        }
    }

    #[tokio::test]
    async fn only_what_changes_nothing_is_repeated() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(Vec::new()).expect("nothing to parse");
        let ca = params.self_signed(&key).expect("a certificate").pem();
        let ca = base64::engine::general_purpose::STANDARD.encode(ca);
        for calls in [Calls::Reads, Calls::Writes] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let dir = tempfile::tempdir().expect("a directory");
            let kubeconfig = dir.path().join("kubeconfig");
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'http://{address}', certificate-authority-data: {ca}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
            );
            std::fs::write(&kubeconfig, text).expect("a file");
            let args = ApiArgs {
                data: DataDir {
                    data_dir: dir.path().to_owned(),
                },
                kubeconfig: Some(kubeconfig),
            };
            let (client, _) = connect(&args, calls, CONNECT_DEADLINE)
                .await
                .expect("a client");
            let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
            let done = async {
                match calls {
                    Calls::Reads => secrets.list(&ListParams::default()).await.map(drop),
                    Calls::Writes => {
                        let new = Secret::default();
                        secrets.create(&PostParams::default(), &new).await.map(drop)
                    }
                }
            };
            let done = tokio::select! {
                done = done => done,
                () = busy_once(listener) => unreachable!("it goes on"),
            };
            assert_eq!(done.is_ok(), calls == Calls::Reads, "{done:?}");
        }
    }
}
