//! Certificates: those that fit, and a sentence for those that do not.

use std::path::{Path, PathBuf};

use coracle_store_etcd::EtcdTls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use super::*;

/// An authority and what it has issued, as files.
struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    fn issue(&self, name: &str, addresses: &[&str]) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = addresses
            .iter()
            .map(|address| SanType::IpAddress(address.parse().unwrap()))
            .collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn client(&self, name: &str) -> EtcdTls {
        self.issue(name, &[]);
        EtcdTls {
            ca: Some(self.file("ca.pem")),
            cert: Some(self.file(&format!("{name}.pem"))),
            key: Some(self.file(&format!("{name}.key"))),
        }
    }
}

/// One that wants certificates of `authority`'s; its own is for the addresses that it may get.
fn secure_etcd(authority: &Authority) -> Option<Etcd> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{middle}.{low}", 64 + (high & 0x3f));
    authority.issue("server", &[&host]);
    let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
    let flags = [
        flag("cert-file", &authority.file("server.pem")),
        flag("key-file", &authority.file("server.key")),
        flag("trusted-ca-file", &authority.file("ca.pem")),
        "--client-cert-auth=true".to_owned(),
    ];
    Etcd::start_with(1, "https", &flags)
}

#[tokio::test]
async fn certificates_open_an_etcd_or_say_why_not() {
    let authority = Authority::new("etcd");
    let Some(etcd) = secure_etcd(&authority) else {
        return;
    };
    let config = |tls: EtcdTls| {
        let mut config = etcd.config();
        config.tls = tls;
        config
    };
    let good = authority.client("client");
    let store = match EtcdBackend::open(&config(good.clone()), OWNER).await {
        Ok(store) => store,
        Err(error) => panic!("{}: {}", ErrorChain(&error), etcd.log(0)),
    };
    put(&store, "a", "1").await.unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("1"));

    let stranger = Authority::new("stranger");
    let theirs = stranger.client("client");
    let no_certificate = EtcdTls {
        ca: good.ca.clone(),
        ..EtcdTls::default()
    };
    let wrong_authority = EtcdTls {
        ca: theirs.ca.clone(),
        ..good.clone()
    };
    let wrong_certificate = EtcdTls {
        ca: good.ca.clone(),
        ..theirs
    };
    for (tls, expected) in [
        (wrong_authority, "--etcd-cacert does not vouch for"),
        (wrong_certificate, "does not take our certificate"),
        (no_certificate, "does not take our certificate"),
    ] {
        let said = refused(&config(tls)).await;
        eprintln!("{said}");
        assert!(said.contains(expected), "{said}");
    }
    let mut clear = etcd.config();
    clear.endpoints = vec![clear.endpoints[0].replace("https", "http")];
    let said = refused(&clear).await;
    eprintln!("{said}");
    assert!(said.contains("cannot be"), "{said}");
}

#[tokio::test]
async fn tls_to_an_etcd_without_is_told() {
    let Some(etcd) = Etcd::start(1) else { return };
    let authority = Authority::new("etcd");
    let mut config = etcd.config();
    config.endpoints = vec![config.endpoints[0].replace("http", "https")];
    config.tls = EtcdTls {
        ca: Some(authority.file("ca.pem")),
        ..EtcdTls::default()
    };
    let said = refused(&config).await;
    eprintln!("{said}");
    assert!(said.contains("does it speak TLS"), "{said}");
}
