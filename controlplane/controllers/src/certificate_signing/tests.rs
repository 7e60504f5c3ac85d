//! Who gets which certificate.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use k8s_openapi::api::core::v1::{NodeAddress, NodeStatus};
use kube::api::ObjectMeta;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::request::*;
use super::*;

const NODE: &str = "system:node:n1";

#[derive(Clone)]
struct Ask {
    signer: &'static str,
    usages: &'static [&'static str],
    user: &'static str,
    groups: &'static [&'static str],
    common_name: &'static str,
    organization: Option<&'static str>,
    country: bool,
    names: Vec<SanType>,
    is_ca: bool,
}

fn client() -> Ask {
    Ask {
        signer: CLIENT_KUBELET,
        usages: &["digital signature", "client auth"],
        user: "system:bootstrap:abcdef",
        groups: &["system:bootstrappers"],
        common_name: NODE,
        organization: Some("system:nodes"),
        country: false,
        names: Vec::new(),
        is_ca: false,
    }
}

fn ip(text: &str) -> SanType {
    SanType::IpAddress(text.parse().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

fn serving() -> Ask {
    Ask {
        signer: KUBELET_SERVING,
        usages: &["digital signature", "server auth"],
        user: NODE,
        groups: &["system:nodes"],
        names: vec![dns("n1"), ip("192.0.2.1")],
        ..client()
    }
}

fn node() -> Node {
    let address = |kind: &str, address: &str| NodeAddress { type_: kind.into(), address: address.into() };
    Node {
        metadata: ObjectMeta { name: Some("n1".into()), ..ObjectMeta::default() },
        status: Some(NodeStatus {
            addresses: Some(vec![address("InternalIP", "192.0.2.1"), address("Hostname", "host-1")]),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

impl Ask {
    fn parse(&self) -> (CertificateSigningRequestSpec, Request) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        if self.country {
            params.distinguished_name.push(DnType::CountryName, "DE");
        }
        params.distinguished_name.push(DnType::CommonName, self.common_name);
        params.subject_alt_names.clone_from(&self.names);
        if self.is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages.push(KeyUsagePurpose::KeyCertSign);
        }
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let spec = CertificateSigningRequestSpec {
            signer_name: self.signer.into(),
            usages: Some(self.usages.iter().map(|usage| (*usage).to_owned()).collect()),
            username: Some(self.user.into()),
            groups: Some(self.groups.iter().map(|group| (*group).to_owned()).collect()),
            ..CertificateSigningRequestSpec::default()
        };
        (spec, Request::parse(pem.as_bytes()).unwrap())
    }

    /// `Err` if it does not fit its signer; else what is decided.
    fn judge(&self) -> Result<Approval, RequestError> {
        let (spec, request) = self.parse();
        let profile = check(&spec, &request).unwrap()?;
        Ok(judge(profile, &spec, &request, Some(&node())))
    }
}

#[test]
fn nodes_get_their_own_certificates_and_nobody_else_does() {
    let approved = |ask: Ask| matches!(ask.judge(), Ok(Approval::Approve(_)));
    assert!(approved(client()), "a bootstrap token asks for a node");
    assert!(approved(Ask { user: NODE, groups: &["system:nodes"], ..client() }), "a node renews its own");
    assert!(approved(Ask { usages: &["digital signature", "key encipherment", "client auth"], ..client() }));
    assert!(approved(serving()));
    assert!(approved(Ask { names: vec![dns("host-1")], ..serving() }));

    let left_alone: [(&str, Ask); 5] = [
        ("another node", Ask { user: "system:node:n2", groups: &["system:nodes"], ..client() }),
        ("a user", Ask { user: "alice", groups: &["developers"], ..client() }),
        ("a user with the node's name", Ask { user: NODE, groups: &["developers"], ..client() }),
        ("another node's serving certificate", Ask { user: "system:node:n2", ..serving() }),
        (
            "a serving certificate for a bootstrap token",
            Ask { user: "system:bootstrap:abcdef", groups: &["system:bootstrappers"], ..serving() },
        ),
    ];
    for (who, ask) in left_alone {
        assert_eq!(ask.judge(), Ok(Approval::LeaveAlone), "{who}");
    }
    for names in [vec![ip("192.0.2.99")], vec![dns("kubernetes.default")], vec![dns("n1"), ip("192.0.2.99")]] {
        assert_eq!(Ask { names, ..serving() }.judge(), Ok(Approval::AwaitNode), "not the node's address");
    }
}

#[test]
fn request_that_does_not_fit_its_signer_is_refused() {
    let table: [(Ask, RequestError); 10] = [
        (Ask { organization: Some("system:masters"), ..client() }, RequestError::OrganizationNotNodes),
        (Ask { organization: None, ..client() }, RequestError::OrganizationNotNodes),
        (Ask { common_name: "admin", ..client() }, RequestError::NameNotNode),
        (Ask { common_name: "system:node:", ..client() }, RequestError::NameNotNode),
        (Ask { country: true, ..client() }, RequestError::OtherAttributes),
        (Ask { names: vec![dns("n1")], ..client() }, RequestError::NamesNotAllowed),
        (Ask { names: Vec::new(), ..serving() }, RequestError::NamesMissing),
        (Ask { usages: &["digital signature", "server auth"], ..client() }, RequestError::Usages("a node client's")),
        (Ask { is_ca: true, ..client() }, RequestError::Extensions),
        (
            Ask { signer: CLIENT, organization: Some("system:masters"), common_name: "eve", ..client() },
            RequestError::Masters,
        ),
    ];
    for (ask, expected) in table {
        assert_eq!(ask.judge(), Err(expected));
    }
}

#[test]
fn foreign_signers_are_none_of_ours() {
    let (spec, request) = Ask { signer: "example.org/signer", ..client() }.parse();
    assert!(check(&spec, &request).is_none());
}

#[test]
fn garbage_is_no_request() {
    for garbage in ["", "hello", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"] {
        assert!(matches!(Request::parse(garbage.as_bytes()), Err(RequestError::Parse(_))), "{garbage:?}");
    }
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "test-ca");
    let certificate = params.self_signed(&key).unwrap();
    Authority::new(&certificate.pem(), &key.serialize_pem()).unwrap()
}

#[test]
fn certificate_says_what_was_checked_and_no_more() {
    let (_, request) = serving().parse();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let pem = authority().sign(Profile::NodeServing, &request, false, Duration::from_secs(3600), now).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
    assert_eq!(certificate.issuer().to_string(), "CN=test-ca");
    assert_eq!(certificate.validity().not_before.timestamp(), now.as_second() - 300);
    assert_eq!(certificate.validity().not_after.timestamp(), now.as_second() + 3600);
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names.as_slice(), [GeneralName::DNSName("n1"), GeneralName::IPAddress(&[192, 0, 2, 1])]);
}

#[test]
fn old_requests_go_and_decided_ones_sooner() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let at = |ago: i64| Time(Timestamp::from_second(1_000_000 - ago).unwrap());
    let csr = |created: i64, decided: Option<i64>| {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.creation_timestamp = Some(at(created));
        if let Some(ago) = decided {
            csr = with_condition(&csr, "Approved", "AutoApproved", "");
            csr.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_update_time = Some(at(ago));
        }
        csr
    };
    assert_eq!(time_left(&csr(3600, None), now), Duration::from_secs(23 * 3600));
    assert_eq!(time_left(&csr(90_000, None), now), Duration::ZERO);
    assert_eq!(time_left(&csr(90_000, Some(600)), now), Duration::from_secs(3000));
    assert_eq!(time_left(&csr(90_000, Some(3600)), now), Duration::ZERO);
}
