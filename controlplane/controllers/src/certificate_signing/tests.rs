//! Which requests are taken up, and for how long they are kept.

use k8s_openapi::{
    api::{
        certificates::v1::CertificateSigningRequestSpec,
        core::v1::{NodeAddress, NodeStatus},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::api::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};

use super::{request::*, *};

mod approval;
mod authority;

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
