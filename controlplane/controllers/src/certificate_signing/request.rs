//! What a certificate signing request asks for, and whether that is what its signer gives. Pure.
//!
//! The PKCS#10 body is read with its signature checked; nothing of it is trusted before [`check`] has said which
//! [`Profile`] it fits.
//!
//! Source: `pkg/apis/certificates/helpers.go` and `pkg/controller/certificates/approver/sarapprove.go` at v1.37.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use k8s_openapi::api::core::v1::Node;
use rcgen::{CertificateSigningRequestParams, PublicKey, SanType};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

pub(super) const CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const BOOTSTRAPPERS: &str = "system:bootstrappers";
const MASTERS: &str = "system:masters";

/// Why a request does not fit its signer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum RequestError {
    #[error("unable to parse the request: {0}")]
    Parse(String),
    #[error("organization in the subject must be exactly {NODES:?}")]
    OrganizationNotNodes,
    #[error("subject common name does not begin with {NODE_PREFIX:?}")]
    NameNotNode,
    #[error("the subject holds attributes besides common name and organization")]
    OtherAttributes,
    #[error("DNS or IP subjectAltNames are not allowed")]
    NamesNotAllowed,
    #[error("DNS or IP subjectAltName is required")]
    NamesMissing,
    #[error("only DNS and IP subjectAltNames are allowed")]
    OtherNames,
    #[error("usages did not match {0}")]
    Usages(&'static str),
    #[error("the request asks for a certificate authority or unknown extensions")]
    Extensions,
    #[error("use of {MASTERS} is not allowed with this signer")]
    Masters,
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) names: Vec<SanType>,
    pub(super) public_key: PublicKey,
    attributes: usize,
    odd_extensions: bool,
}

impl Request {
    /// Reads PEM and checks the signature by the requested key.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let failed = |what: &dyn std::fmt::Display| RequestError::Parse(what.to_string());
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|error| failed(&error))?;
        let params = CertificateSigningRequestParams::from_der(&der).map_err(|error| failed(&error))?;
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| failed(&error))?;
        let subject = &parsed.certification_request_info.subject;
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let odd_extensions = parsed.requested_extensions().into_iter().flatten().any(|extension| match extension {
            ParsedExtension::BasicConstraints(constraints) => constraints.ca,
            ParsedExtension::KeyUsage(_) | ParsedExtension::ExtendedKeyUsage(_) => false,
            ParsedExtension::SubjectAlternativeName(_) => false,
            _ => true,
        });
        Ok(Self {
            common_name: subject.iter_common_name().next().and_then(text).unwrap_or_default(),
            organizations: subject.iter_organization().filter_map(text).collect(),
            names: params.params.subject_alt_names,
            public_key: params.public_key,
            attributes: subject.iter_attributes().count(),
            odd_extensions,
        })
    }

    /// The node that the subject names.
    pub(super) fn node_name(&self) -> Option<&str> {
        self.common_name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())
    }
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// A node speaks to the API server.
    NodeClient,
    /// A node is spoken to.
    NodeServing,
    /// A user speaks to the API server.
    Client,
}

/// Whether `request` is what the signer of `spec` signs. `None` for signers of others.
pub(super) fn check(spec: &CertificateSigningRequestSpec, request: &Request) -> Option<Result<Profile, RequestError>> {
    let profile = match spec.signer_name.as_str() {
        CLIENT_KUBELET => Profile::NodeClient,
        KUBELET_SERVING => Profile::NodeServing,
        CLIENT => Profile::Client,
        _ => return None,
    };
    Some(check_profile(profile, spec, request).map(|()| profile))
}

fn check_profile(
    profile: Profile,
    spec: &CertificateSigningRequestSpec,
    request: &Request,
) -> Result<(), RequestError> {
    let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    if request.odd_extensions {
        return Err(RequestError::Extensions);
    }
    if request.attributes != request.organizations.len() + 1 || request.organizations.len() > 1 {
        return Err(RequestError::OtherAttributes);
    }
    if request.names.iter().any(|name| !matches!(name, SanType::DnsName(_) | SanType::IpAddress(_))) {
        return Err(RequestError::OtherNames);
    }
    if profile == Profile::Client {
        if request.organizations.iter().any(|organization| organization == MASTERS) {
            return Err(RequestError::Masters);
        }
        let allowed = ["client auth", "digital signature", "key encipherment"];
        let fits = usages.contains("client auth") && usages.iter().all(|usage| allowed.contains(usage));
        return if fits { Ok(()) } else { Err(RequestError::Usages("a client's")) };
    }
    if request.organizations != [NODES] {
        return Err(RequestError::OrganizationNotNodes);
    }
    if request.node_name().is_none() {
        return Err(RequestError::NameNotNode);
    }
    let (auth, which) = match profile {
        Profile::NodeServing => ("server auth", "a node server's"),
        _ => ("client auth", "a node client's"),
    };
    let short = BTreeSet::from(["digital signature", auth]);
    let long = BTreeSet::from(["digital signature", "key encipherment", auth]);
    if usages != short && usages != long {
        return Err(RequestError::Usages(which));
    }
    match profile {
        Profile::NodeServing if request.names.is_empty() => Err(RequestError::NamesMissing),
        Profile::NodeClient if !request.names.is_empty() => Err(RequestError::NamesNotAllowed),
        _ => Ok(()),
    }
}

/// Whether a request that fits its signer is approved without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Approval {
    /// With this message.
    Approve(&'static str),
    /// Not by us: it stays pending for an administrator.
    LeaveAlone,
    /// Not yet: the node has not said that it has these addresses.
    AwaitNode,
}

/// Who asked, and does it ask for itself? `node` is the Node that the subject names.
pub(super) fn judge(
    profile: Profile,
    spec: &CertificateSigningRequestSpec,
    request: &Request,
    node: Option<&Node>,
) -> Approval {
    let user = spec.username.as_deref().unwrap_or_default();
    let groups = spec.groups.as_deref().unwrap_or_default();
    let in_group = |name: &str| groups.iter().any(|group| group == name);
    let own = user == request.common_name && in_group(NODES);
    match profile {
        Profile::NodeClient if own => {
            Approval::Approve("Auto approving self kubelet client certificate after SubjectAccessReview.")
        }
        Profile::NodeClient if in_group(BOOTSTRAPPERS) => {
            Approval::Approve("Auto approving kubelet client certificate after SubjectAccessReview.")
        }
        Profile::NodeServing if own => {
            if node.is_some_and(|node| owns_names(node, &request.names)) {
                Approval::Approve("Auto approving kubelet serving certificate for the node's own addresses.")
            } else {
                Approval::AwaitNode
            }
        }
        _ => Approval::LeaveAlone,
    }
}

/// Whether the node itself says that all these names and addresses are its own.
fn owns_names(node: &Node, names: &[SanType]) -> bool {
    let addresses: Vec<&str> = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .map(|address| address.address.as_str())
        .collect();
    let has_ip = |ip: &IpAddr| addresses.iter().any(|address| address.parse::<IpAddr>().as_ref() == Ok(ip));
    names.iter().all(|name| match name {
        SanType::DnsName(dns) => {
            node.metadata.name.as_deref() == Some(dns.as_str()) || addresses.contains(&dns.as_str())
        }
        SanType::IpAddress(ip) => has_ip(ip),
        _ => false,
    })
}
