use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority, and a certificate of it.
struct Certified {
    authority: String,
    certificate: String,
    key: String,
}

fn certified(name: &str) -> Certified {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    Certified {
        authority: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

/// One that shows this certificate, and asks for one of `clients`.
async fn server(own: &Certified, clients: Option<&Certified>) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(clients.authority.as_bytes());
            roots.add(root.unwrap()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let config = builder.with_single_cert(vec![chain], key).unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    Server::start_with(Some(tls), |_, _| Reply::Json(json!({"NodeNames": ["b"]}))).await
}

fn placed(server: &Server, tls: Value, enable_https: bool) -> Result<String, String> {
    let says = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true,
        "enableHTTPS": enable_https, "tlsConfig": tls}]);
    let cache = cache(&[("a", "4"), ("b", "4")]);
    place(&framework(&says), &cache, &small("p"))
}

fn base64(pem: &str) -> String {
    STANDARD.encode(pem)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whose_authority_is_named_is_believed_and_nobody_else() {
    let (own, other) = (certified("127.0.0.1"), certified("127.0.0.1"));
    let server = server(&own, None).await;
    let said = |of: &Certified| json!({"caData": base64(&of.authority)});
    assert_eq!(placed(&server, said(&own), true), Ok("b".to_owned()));
    let why = placed(&server, said(&other), true).unwrap_err();
    assert!(why.contains("invalid peer certificate"), "{why}");
    let broken = format!("{}\n", base64(&own.authority));
    assert_eq!(
        placed(&server, json!({"caData": broken}), false),
        Ok("b".to_owned()),
        "lines end in YAML"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificate_is_for_the_name_that_is_given() {
    let own = certified("extender.example.com");
    let server = server(&own, None).await;
    let mut said = json!({"caData": base64(&own.authority)});
    let why = placed(&server, said.clone(), true).unwrap_err();
    assert!(why.contains("invalid peer certificate"), "{why}");
    said["serverName"] = json!("extender.example.com");
    assert_eq!(placed(&server, said, true), Ok("b".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_an_authority_everybody_is_believed_if_that_is_said() {
    let server = server(&certified("elsewhere"), None).await;
    let said = json!({"insecure": true});
    assert_eq!(placed(&server, said, false), Ok("b".to_owned()));
    assert_eq!(placed(&server, json!(null), true), Ok("b".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_scheduler_shows_its_own_certificate() {
    let (own, clients) = (certified("127.0.0.1"), certified("scheduler"));
    let server = server(&own, Some(&clients)).await;
    let mut said = json!({"caData": base64(&own.authority)});
    placed(&server, said.clone(), true).expect_err("it wants to know who asks");
    said["certData"] = json!(base64(&clients.certificate));
    said["keyData"] = json!(base64(&clients.key));
    assert_eq!(placed(&server, said, true), Ok("b".to_owned()));
}
