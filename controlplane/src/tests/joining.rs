//! Servers that join by token. Skips visibly where there is no etcd.

mod certificates;
mod middle;

use std::{collections::BTreeSet, fs, path::PathBuf, time::Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_store_etcd::testing::Etcd;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec},
    core::v1::ServiceAccount,
};
use kube::api::{Api, PostParams};
use tempfile::TempDir;

use super::*;
use crate::{
    StoreEngine,
    joining::{JoinError, JoinOptions, prepare, read_token},
};

struct Running {
    server: Server,
    shutdown: CancellationToken,
}

impl Running {
    async fn start(config: ServerConfig) -> Self {
        let shutdown = CancellationToken::new();
        let server = Server::start(config, shutdown.clone()).await.unwrap();
        Self { server, shutdown }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.address().port())
    }

    fn client(&self) -> kube::Client {
        self.server.client(UserInfo::master("test"))
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.server.stopped().await.unwrap();
    }
}

/// The first server of a cluster whose ranges are not the usual ones.
fn first(dir: &TempDir, etcd: &Etcd) -> ServerConfig {
    let mut config = config(dir.path());
    config.host_name = "first".to_owned();
    // Also under addresses that its certificate does not have.
    config.bind = ([0, 0, 0, 0], 0).into();
    config.advertise = [127, 0, 0, 1].into();
    config.store = StoreEngine::Etcd(etcd.config());
    config.service_cidr = "10.97.0.0/16".parse().unwrap();
    config
}

/// One that is told nothing but a directory.
fn bare(dir: &Path) -> ServerConfig {
    let mut config = config(dir);
    config.host_name = "second".to_owned();
    config
}

fn joining(url: &str, token: &str) -> JoinOptions {
    JoinOptions {
        first: Some(url.to_owned()),
        token: Some(token.to_owned()),
        given: BTreeSet::new(),
    }
}

fn token_of(dir: &TempDir) -> String {
    read_token(dir.path()).unwrap().unwrap()
}

async fn refused_by(config: ServerConfig, options: &JoinOptions) -> String {
    let data_dir = config.data_dir.clone();
    let was_there = data_dir.exists();
    let error: JoinError = match prepare(config, options).await {
        Ok(_) => panic!("joined: {options:?}"),
        Err(error) => error,
    };
    assert_eq!(
        data_dir.exists(),
        was_there,
        "{error} leaves the directory behind"
    );
    assert!(
        !data_dir.join("server.joining").exists(),
        "{error} leaves files behind"
    );
    coracle_telemetry::ErrorChain(&error).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_joins_is_as_good_as_the_first() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(first(&one, &etcd)).await;
    let token = token_of(&one);
    let kept = fs::metadata(one.path().join("server/token")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);

    let options = joining(&first.url(), &token);
    let config = prepare(bare(two.path()), &options).await.unwrap();
    assert_eq!(config.service_cidr, "10.97.0.0/16".parse().unwrap());
    let second = Running::start(config).await;
    for name in [
        "ca.crt",
        "ca.key",
        "kubelet-ca.crt",
        "kubelet-ca.key",
        "sa.key",
    ] {
        let file = |dir: &TempDir| fs::read(dir.path().join("server/pki").join(name)).unwrap();
        assert_eq!(file(&one), file(&two), "{name}");
        let path = two.path().join("server/pki").join(name);
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(token_of(&two), token);
    good_at_the_other(&first, &second).await;
    good_at_the_other(&second, &first).await;
    nothing_is_in_clear(&etcd, &one);

    // Again, also with other flags that agree; and later without the first.
    second.stop().await;
    let config = prepare(bare(two.path()), &options).await.unwrap();
    Running::start(config).await.stop().await;
    first.stop().await;
    let config = prepare(bare(two.path()), &JoinOptions::default())
        .await
        .unwrap();
    assert_eq!(config.service_cidr, "10.97.0.0/16".parse().unwrap());
    let second = Running::start(config).await;
    // It is one that others join.
    let three = tempfile::tempdir().unwrap();
    let options = joining(&second.url(), &token);
    let config = prepare(bare(three.path()), &options).await.unwrap();
    Running::start(config).await.stop().await;
    second.stop().await;
}

/// A token that one server issues is good at the other.
async fn good_at_the_other(issuer: &Running, other: &Running) {
    let accounts: Api<ServiceAccount> = Api::namespaced(issuer.client(), "default");
    let deadline = Instant::now() + Duration::from_secs(60);
    while accounts.get_opt("default").await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "nobody makes the account");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let request = TokenRequest {
        spec: Some(TokenRequestSpec::default()),
        ..TokenRequest::default()
    };
    let issued = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap();
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: issued.status.unwrap().token.unwrap(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(other.client());
    let reviewed = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap();
    let status = reviewed.status.unwrap();
    assert_eq!(status.authenticated, Some(true), "{status:?}");
}

/// Looks through all files of etcd for pieces of every private key.
fn nothing_is_in_clear(etcd: &Etcd, dir: &TempDir) {
    let stored = etcd.files();
    let has = |piece: &[u8]| stored.windows(piece.len()).any(|found| found == piece);
    // It would be seen.
    assert!(has(b"/coracle/servers/shared") && has(b"kube-system"));
    let server = dir.path().join("server");
    let mut keys = vec![server.join("token")];
    let pki = fs::read_dir(server.join("pki")).unwrap();
    keys.extend(pki.map(|entry| entry.unwrap().path()));
    keys.retain(|path: &PathBuf| path.extension().is_none_or(|kind| kind == "key"));
    assert_eq!(keys.len(), 8, "{keys:?}");
    for path in keys {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('-')).collect();
        let secret = match path.ends_with("token") {
            true => text.trim().rsplit(':').next().unwrap().as_bytes().to_vec(),
            false => BASE64_STANDARD.decode(lines.concat()).unwrap(),
        };
        // Of a key in PKCS#8, its algorithm comes before it, and the public part after it.
        let (secret, lines) = match path.ends_with("token") {
            true => (&secret[..], &lines[..]),
            false => (&secret[36..68], &lines[..2]),
        };
        let pieces = secret
            .chunks(16)
            .chain(lines.iter().map(|line| line.as_bytes()));
        for piece in pieces {
            assert!(!has(piece), "{} is in etcd", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_join_is_told_why_and_leaves_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (one, dir, alone) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let first = Running::start(first(&one, &etcd)).await;
    let sqlite = Running::start(config(alone.path())).await;
    let token = token_of(&one);
    let (hash, secret) = token.split_once("::").unwrap();
    let wrong_secret = format!("{hash}::server:{}", "0".repeat(32));
    let wrong_hash = format!("K10{}::{secret}", "0".repeat(64));
    let other_hash = format!("K10{}::{secret}", sqlite.server.pki().ca_hash().unwrap());
    let url = first.url();
    let new = || bare(&dir.path().join("new"));
    for (url, token, expected) in [
        (&url, wrong_secret.as_str(), "refuses the token"),
        (&url, &wrong_hash, "does not have the certificate authority"),
        (&url, &other_hash, "does not have the certificate authority"),
        (
            &sqlite.url(),
            &token,
            "does not have the certificate authority",
        ),
        (&sqlite.url(), &other_hash, "no second server can have"),
        (&url, "K10ab", "expected K10"),
        (
            &url,
            &format!("{hash}::abcdef.0123456789abcdef"),
            "token for nodes",
        ),
        (&"198.18.0.1".to_owned(), &token, "expected https://ADDRESS"),
        (
            &url.replace("127.0.0.1", "127.0.0.2"),
            &token,
            "is not for 127.0.0.2",
        ),
    ] {
        let said = refused_by(new(), &joining(url, token)).await;
        assert!(said.contains(expected), "{said}");
        eprintln!("{said}");
    }
    let none = JoinOptions {
        token: None,
        ..joining(&url, "")
    };
    assert!(refused_by(new(), &none).await.contains("needs --token"));
    contradictions(&first, &token, &new).await;
    // Another cluster's directory is left alone.
    let before = fs::read(alone.path().join("server/pki/ca.crt")).unwrap();
    let said = refused_by(bare(alone.path()), &joining(&url, &token)).await;
    assert!(said.contains("data of another server already"), "{said}");
    assert_eq!(
        fs::read(alone.path().join("server/pki/ca.crt")).unwrap(),
        before
    );
    sqlite.stop().await;
    first.stop().await;
    let said = refused_by(new(), &joining(&url, &token)).await;
    assert!(said.contains("cannot be reached"), "{said}");
    eprintln!("{said}");
}

async fn contradictions(first: &Running, token: &str, new: &impl Fn() -> ServerConfig) {
    let refused = async |flag, change: fn(&mut ServerConfig)| {
        let mut config = new();
        change(&mut config);
        let options = JoinOptions {
            given: BTreeSet::from([flag]),
            ..joining(&first.url(), token)
        };
        refused_by(config, &options).await
    };
    let said = refused("--service-cidr", |_| {}).await;
    assert!(
        said.contains("--service-cidr 10.96.0.0/16 contradicts") && said.contains("10.97.0.0/16"),
        "{said}"
    );
    let said = refused("--store", |_| {}).await;
    assert!(said.contains("--store sqlite contradicts"), "{said}");
    let other_prefix = |config: &mut ServerConfig| {
        let mut etcd = coracle_store_etcd::EtcdConfig::new(vec!["http://127.0.0.1:1".to_owned()]);
        etcd.prefix = "/other".to_owned();
        config.store = StoreEngine::Etcd(etcd);
    };
    let said = refused("--store", other_prefix).await;
    assert!(said.contains("--etcd-prefix /other contradicts"), "{said}");
    let elsewhere = |config: &mut ServerConfig| {
        let etcd = coracle_store_etcd::EtcdConfig::new(vec!["http://127.0.0.1:1".to_owned()]);
        config.store = StoreEngine::Etcd(etcd);
    };
    let said = refused("--store", elsewhere).await;
    assert!(said.contains("cannot be used from this machine"), "{said}");
    // An empty etcd is nobody's, and stays empty.
    let Some(empty) = Etcd::start(1) else { return };
    let mut config = new();
    config.store = StoreEngine::Etcd(empty.config());
    let options = JoinOptions {
        given: BTreeSet::from(["--store"]),
        ..joining(&first.url(), token)
    };
    let said = refused_by(config, &options).await;
    assert!(said.contains("has no data of this cluster"), "{said}");
    let found = coracle_store_etcd::status::status(&empty.config()).await;
    let data = found.unwrap().data.unwrap();
    assert_eq!(data, coracle_store_etcd::status::DataStatus::Empty);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_killed_while_it_joined_joins_again() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Running::start(first(&one, &etcd)).await;
    let token = token_of(&one);
    let left = two.path().join("server.joining/pki");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("ca.key"), "half of a key").unwrap();
    // Without --join it is no server of anybody's yet, and nothing of that is used.
    let alone = prepare(bare(two.path()), &JoinOptions::default())
        .await
        .unwrap();
    assert_eq!((alone.store, left.exists()), (StoreEngine::Sqlite, false));
    fs::create_dir_all(&left).unwrap();
    let options = joining(&first.url(), &token);
    let config = prepare(bare(two.path()), &options).await.unwrap();
    assert!(config.has_joined && !left.exists());
    Running::start(config).await.stop().await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_changes_others_go_by() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut ruling = first(&one, &etcd);
    ruling.server_token = Some("correct-horse-battery".to_owned());
    let running = Running::start(ruling.clone()).await;
    assert!(token_of(&one).ends_with("::server:correct-horse-battery"));
    let options = joining(&running.url(), &token_of(&one));
    prepare(bare(two.path()), &options).await.unwrap();
    running.stop().await;
    ruling.vxlan_port = 8472;
    ruling.server_token = None;
    Running::start(ruling.clone()).await.stop().await;
    let follows = prepare(bare(two.path()), &JoinOptions::default())
        .await
        .unwrap();
    assert_eq!(follows.vxlan_port, 8472);
    let mut against = JoinOptions::default();
    against.given.insert("--vxlan-port");
    let said = prepare(bare(two.path()), &against)
        .await
        .unwrap_err()
        .to_string();
    assert!(said.contains("--vxlan-port 4789 contradicts"), "{said}");
    // Whoever has chosen another token is told, and nothing changes.
    ruling.server_token = Some("another-horse-battery".to_owned());
    let said = refused(ruling).await;
    assert!(said.contains("not this cluster's server token"), "{said}");
}
