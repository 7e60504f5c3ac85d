//! What a signed certificate says, and by whom.

use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::*;
use crate::config::{CertificateAuthority, ControllersConfig};

/// An authority called so.
fn authority(name: &str) -> CertificateAuthority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    CertificateAuthority {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    }
}

fn authorities() -> Authorities {
    let cluster_cidr = "10.42.0.0/16".parse().unwrap();
    Authorities::new(&ControllersConfig::new(
        cluster_cidr,
        authority("test-ca"),
        authority("kubelet-ca"),
    ))
    .unwrap()
}

/// Every certificate of a PEM text by issuer and subject.
fn chain(pem: &str) -> Vec<(String, String)> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|der| {
        let der = der.unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        (
            certificate.issuer().to_string(),
            certificate.subject().to_string(),
        )
    });
    certificates.collect()
}

#[test]
fn clients_and_servers_are_of_different_authorities() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let sign = |ask: Ask, profile| {
        let (_, request) = ask.parse();
        chain(
            &authorities()
                .sign(profile, &request, false, Duration::from_secs(3600), now)
                .unwrap(),
        )
    };
    let (own, kubelet) = (
        "O=system:nodes, CN=system:node:n1".to_owned(),
        "CN=kubelet-ca".to_owned(),
    );
    assert_eq!(
        sign(client(), Profile::NodeClient),
        [("CN=test-ca".to_owned(), own.clone())]
    );
    assert_eq!(
        sign(serving(), Profile::NodeServing),
        [(kubelet.clone(), own), (kubelet.clone(), kubelet)],
        "the node learns its authority"
    );
}

#[test]
fn certificate_says_what_was_checked_and_no_more() {
    let (_, request) = serving().parse();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let pem = authorities()
        .sign(
            Profile::NodeServing,
            &request,
            false,
            Duration::from_secs(3600),
            now,
        )
        .unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(
        certificate.subject().to_string(),
        "O=system:nodes, CN=system:node:n1"
    );
    assert_eq!(certificate.issuer().to_string(), "CN=kubelet-ca");
    assert_eq!(
        certificate.validity().not_before.timestamp(),
        now.as_second() - 300
    );
    assert_eq!(
        certificate.validity().not_after.timestamp(),
        now.as_second() + 3600
    );
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    let names = &certificate
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value
        .general_names;
    assert_eq!(
        names.as_slice(),
        [
            GeneralName::DNSName("n1"),
            GeneralName::IPAddress(&[192, 0, 2, 1])
        ]
    );
}
