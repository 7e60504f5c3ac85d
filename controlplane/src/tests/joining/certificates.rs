//! An etcd that wants a certificate of each server.

use coracle_store_etcd::{EtcdConfig, EtcdTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use super::*;

/// An authority and what it has issued, as files.
struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate called `name`, for `address` if it is a server's.
    fn issue(&self, name: &str, address: Option<&str>) -> EtcdTls {
        let mut params = CertificateParams::default();
        let addresses = address.map(|address| SanType::IpAddress(address.parse().unwrap()));
        params.subject_alt_names = addresses.into_iter().collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let [cert, key_file] = ["pem", "key"].map(|kind| self.file(&format!("{name}.{kind}")));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        EtcdTls {
            ca: Some(self.file("ca.pem")),
            cert: Some(cert),
            key: Some(key_file),
        }
    }

    /// One that takes nobody whom this one does not vouch for.
    fn etcd(&self) -> Option<Etcd> {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let host = format!("127.{}.{middle}.{low}", 64 + (high & 0x3f));
        let shown = self.issue("member", Some(&host));
        let flag = |name: &str, file: Option<PathBuf>| {
            format!("--{name}={}", file.unwrap_or_default().display())
        };
        let flags = [
            flag("cert-file", shown.cert),
            flag("key-file", shown.key),
            flag("trusted-ca-file", shown.ca),
            "--client-cert-auth=true".to_owned(),
        ];
        Etcd::start_with(1, "https", &flags)
    }
}

/// Joins with what `--store` and the flags of certificates say.
fn with_own(
    dir: &TempDir,
    store: EtcdConfig,
    options: &JoinOptions,
) -> (ServerConfig, JoinOptions) {
    let mut config = bare(dir.path());
    config.store = StoreEngine::Etcd(store);
    let options = JoinOptions {
        given: BTreeSet::from(["--store"]),
        ..options.clone()
    };
    (config, options)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joins_is_given_a_certificate_for_etcd_or_brings_its_own() {
    let authority = Authority::new();
    let Some(etcd) = authority.etcd() else { return };
    let [one, two, three, four] = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let store = |tls: EtcdTls| EtcdConfig {
        tls,
        ..etcd.config()
    };
    let mut ruling = first(&one, &etcd);
    ruling.store = StoreEngine::Etcd(store(authority.issue("first", None)));
    let first = Running::start(ruling).await;
    let options = joining(&first.url(), &token_of(&one));

    let given = prepare(bare(two.path()), &options).await.unwrap();
    let kept = two.path().join("server/etcd/client.key");
    let same = fs::read(authority.file("first.key")).unwrap();
    assert_eq!(fs::read(&kept).unwrap(), same);
    let mode = fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Running::start(given).await.stop().await;

    let own = store(authority.issue("third", None));
    let (config, bringing) = with_own(&three, own.clone(), &options);
    let config = prepare(config, &bringing).await.unwrap();
    assert_eq!(config.store, StoreEngine::Etcd(own.clone()));
    assert!(!three.path().join("server/etcd").exists(), "no other's key");
    Running::start(config).await.stop().await;
    // Later by its own, too, though nobody says so again.
    let again = prepare(bare(three.path()), &JoinOptions::default()).await;
    assert_eq!(again.unwrap().store, StoreEngine::Etcd(own.clone()));

    let none = EtcdTls {
        cert: None,
        key: None,
        ..own.tls.clone()
    };
    let half = EtcdTls {
        key: None,
        ..own.tls.clone()
    };
    for (tls, expected) in [
        (none, "look at --etcd-cert and --etcd-key"),
        (half, "--etcd-cert and --etcd-key go together"),
        (EtcdTls::default(), "needs --etcd-cacert"),
        (
            Authority::new().issue("theirs", None),
            "--etcd-cacert does not vouch for",
        ),
    ] {
        let (config, bringing) = with_own(&four, store(tls), &options);
        let said = refused_by(config, &bringing).await;
        eprintln!("{said}");
        assert!(said.contains("cannot be used from this machine"), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    first.stop().await;
}
