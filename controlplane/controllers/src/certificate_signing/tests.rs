//! Who gets which certificate.

use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequestSpec,
    core::v1::{NodeAddress, NodeCondition, NodeStatus},
};
use kube::api::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{request::*, *};
use crate::config::{CertificateAuthority, ControllersConfig};

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
    let address = |kind: &str, address: &str| NodeAddress {
        type_: kind.into(),
        address: address.into(),
    };
    Node {
        metadata: ObjectMeta {
            name: Some("n1".into()),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", "192.0.2.1"),
                address("Hostname", "host-1"),
            ]),
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
            params
                .distinguished_name
                .push(DnType::OrganizationName, organization);
        }
        if self.country {
            params.distinguished_name.push(DnType::CountryName, "DE");
        }
        params
            .distinguished_name
            .push(DnType::CommonName, self.common_name);
        params.subject_alt_names.clone_from(&self.names);
        if self.is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages.push(KeyUsagePurpose::KeyCertSign);
        }
        let pem = params
            .serialize_request(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
            .unwrap();
        let spec = CertificateSigningRequestSpec {
            signer_name: self.signer.into(),
            usages: Some(
                self.usages
                    .iter()
                    .map(|usage| (*usage).to_owned())
                    .collect(),
            ),
            username: Some(self.user.into()),
            groups: Some(
                self.groups
                    .iter()
                    .map(|group| (*group).to_owned())
                    .collect(),
            ),
            ..CertificateSigningRequestSpec::default()
        };
        (spec, Request::parse(pem.as_bytes()).unwrap())
    }

    /// `Err` if it does not fit its signer; else what is decided.
    fn judge(&self) -> Result<Approval, RequestError> {
        self.judge_among(node(), Vec::new())
    }

    fn judge_among(&self, node: Node, others: Vec<Node>) -> Result<Approval, RequestError> {
        let (spec, request) = self.parse();
        let profile = check(&spec, &request).unwrap()?;
        let nodes: Vec<_> = others
            .into_iter()
            .chain([node.clone()])
            .map(Arc::new)
            .collect();
        let reserved = [
            "10.96.0.0/16".parse().unwrap(),
            "10.42.0.0/16".parse().unwrap(),
        ];
        let surroundings = Surroundings {
            node: Some(&node),
            nodes: &nodes,
            reserved: &reserved,
            has_loopback_nodes: false,
        };
        Ok(judge(profile, &spec, &request, &surroundings))
    }
}

/// A node at these addresses.
fn node_at(name: &str, addresses: &[&str], is_ready: bool) -> Node {
    let mut node = node();
    node.metadata.name = Some(name.into());
    let status = node.status.get_or_insert_default();
    let address = |address: &&str| NodeAddress {
        type_: "InternalIP".into(),
        address: (*address).into(),
    };
    status.addresses = Some(addresses.iter().map(address).collect());
    let ready = NodeCondition {
        type_: "Ready".into(),
        status: if is_ready { "True" } else { "Unknown" }.into(),
        ..NodeCondition::default()
    };
    status.conditions = Some(vec![ready]);
    node
}

#[test]
fn what_has_to_be_allowed_depends_on_who_asks_for_whom() {
    let asked = |ask: Ask| match ask.judge() {
        Ok(Approval::Ask(permissions)) => permissions
            .iter()
            .map(|one| one.subresource)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let renewing = Ask {
        user: NODE,
        groups: &["system:nodes"],
        ..client()
    };
    let cases: [(Ask, Vec<&str>); 6] = [
        (client(), vec!["nodeclient"]),
        (renewing, vec!["selfnodeclient", "nodeclient"]),
        (
            Ask {
                user: "system:node:n2",
                groups: &["system:nodes"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (
            Ask {
                user: "alice",
                groups: &["developers"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (
            Ask {
                usages: &["digital signature", "key encipherment", "client auth"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (serving(), vec!["selfnodeserver"]),
    ];
    for (ask, expected) in cases {
        assert_eq!(asked(ask), expected);
    }
    let left_alone: [(&str, Ask); 3] = [
        (
            "another node's serving certificate",
            Ask {
                user: "system:node:n2",
                ..serving()
            },
        ),
        (
            "a user with a node's name",
            Ask {
                groups: &["developers"],
                ..serving()
            },
        ),
        (
            "a serving certificate for a bootstrap token",
            Ask {
                user: "system:bootstrap:abcdef",
                groups: &["system:bootstrappers"],
                ..serving()
            },
        ),
    ];
    for (who, ask) in left_alone {
        assert_eq!(ask.judge(), Ok(Approval::LeaveAlone), "{who}");
    }
}

#[test]
fn a_node_serves_under_no_name_but_its_own() {
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let every = [
        "192.0.2.1",
        "127.0.0.1",
        "169.254.169.254",
        "10.96.0.1",
        "10.42.0.7",
        "::ffff:192.0.2.1",
        "0.0.0.0",
    ];
    let cases: [(Vec<SanType>, NotItsOwn); 9] = [
        (
            vec![dns("n1"), ip("192.0.2.99")],
            NotItsOwn::NotReported(address("192.0.2.99")),
        ),
        (
            vec![ip("127.0.0.1")],
            NotItsOwn::Special(address("127.0.0.1")),
        ),
        (
            vec![ip("169.254.169.254")],
            NotItsOwn::Special(address("169.254.169.254")),
        ),
        (vec![ip("0.0.0.0")], NotItsOwn::Special(address("0.0.0.0"))),
        (
            vec![ip("::ffff:192.0.2.1")],
            NotItsOwn::Special(address("::ffff:192.0.2.1")),
        ),
        (
            vec![ip("10.96.0.1")],
            NotItsOwn::Reserved(address("10.96.0.1"), "10.96.0.0/16".parse().unwrap()),
        ),
        (
            vec![ip("10.42.0.7")],
            NotItsOwn::Reserved(address("10.42.0.7"), "10.42.0.0/16".parse().unwrap()),
        ),
        (
            vec![dns("kubernetes.default.svc")],
            NotItsOwn::Name("kubernetes.default.svc".into()),
        ),
        (vec![dns("host-1")], NotItsOwn::Name("host-1".into())),
    ];
    for (names, expected) in cases {
        let mut node = node_at("n1", &every, true);
        let hostname = ["kubernetes.default.svc", "host-1"].map(|name| NodeAddress {
            type_: "Hostname".into(),
            address: name.into(),
        });
        node.status
            .as_mut()
            .unwrap()
            .addresses
            .as_mut()
            .unwrap()
            .extend(hostname);
        let judged = Ask { names, ..serving() }.judge_among(node, Vec::new());
        assert_eq!(judged, Ok(Approval::Wait(expected)));
    }
    for name in ["kubernetes.default.svc", "localhost"] {
        let user: &'static str = if name == "localhost" {
            "system:node:localhost"
        } else {
            "system:node:kubernetes.default.svc"
        };
        let ask = Ask {
            user,
            common_name: user,
            names: vec![dns(name)],
            ..serving()
        };
        let judged = ask.judge_among(node_at(name, &["192.0.2.1"], true), Vec::new());
        assert_eq!(
            judged,
            Ok(Approval::Wait(NotItsOwn::Name(name.into()))),
            "a node of that name"
        );
    }
}

#[test]
fn an_address_is_one_nodes() {
    let taken = |is_ready| {
        let other = node_at("n2", &["192.0.2.1"], is_ready);
        Ask {
            names: vec![ip("192.0.2.1")],
            ..serving()
        }
        .judge_among(node(), vec![other])
        .unwrap()
    };
    assert_eq!(
        taken(true),
        Approval::Wait(NotItsOwn::Shared("192.0.2.1".parse().unwrap(), "n2".into()))
    );
    assert!(
        matches!(taken(false), Approval::Ask(_)),
        "the old name of a machine that got another"
    );
}

#[test]
fn request_that_does_not_fit_its_signer_is_refused() {
    let table: [(Ask, RequestError); 10] = [
        (
            Ask {
                organization: Some("system:masters"),
                ..client()
            },
            RequestError::OrganizationNotNodes,
        ),
        (
            Ask {
                organization: None,
                ..client()
            },
            RequestError::OrganizationNotNodes,
        ),
        (
            Ask {
                common_name: "admin",
                ..client()
            },
            RequestError::NameNotNode,
        ),
        (
            Ask {
                common_name: "system:node:",
                ..client()
            },
            RequestError::NameNotNode,
        ),
        (
            Ask {
                country: true,
                ..client()
            },
            RequestError::OtherAttributes,
        ),
        (
            Ask {
                names: vec![dns("n1")],
                ..client()
            },
            RequestError::NamesNotAllowed,
        ),
        (
            Ask {
                names: Vec::new(),
                ..serving()
            },
            RequestError::NamesMissing,
        ),
        (
            Ask {
                usages: &["digital signature", "server auth"],
                ..client()
            },
            RequestError::Usages("a node client's"),
        ),
        (
            Ask {
                is_ca: true,
                ..client()
            },
            RequestError::Extensions,
        ),
        (
            Ask {
                signer: CLIENT,
                organization: Some("system:masters"),
                common_name: "eve",
                ..client()
            },
            RequestError::Masters,
        ),
    ];
    for (ask, expected) in table {
        assert_eq!(ask.judge(), Err(expected));
    }
}

#[test]
fn foreign_signers_are_none_of_ours() {
    let (spec, request) = Ask {
        signer: "example.org/signer",
        ..client()
    }
    .parse();
    assert!(check(&spec, &request).is_none());
}

#[test]
fn garbage_is_no_request() {
    for garbage in [
        "",
        "hello",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ] {
        assert!(
            matches!(
                Request::parse(garbage.as_bytes()),
                Err(RequestError::Parse(_))
            ),
            "{garbage:?}"
        );
    }
}

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

#[test]
fn old_requests_go_and_decided_ones_sooner() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let at = |ago: i64| Time(Timestamp::from_second(1_000_000 - ago).unwrap());
    let csr = |created: i64, decided: Option<i64>| {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.creation_timestamp = Some(at(created));
        if let Some(ago) = decided {
            csr = with_condition(&csr, "Approved", "AutoApproved", "");
            csr.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_update_time =
                Some(at(ago));
        }
        csr
    };
    assert_eq!(
        time_left(&csr(3600, None), now),
        Duration::from_secs(23 * 3600)
    );
    assert_eq!(time_left(&csr(90_000, None), now), Duration::ZERO);
    assert_eq!(
        time_left(&csr(90_000, Some(600)), now),
        Duration::from_secs(3000)
    );
    assert_eq!(time_left(&csr(90_000, Some(3600)), now), Duration::ZERO);
}
