//! What a certificate signing request asks for, and whether that is what its signer gives. Pure.
//!
//! The PKCS#10 body is read with its signature checked; nothing of it is trusted before [`check`]
//! has said which [`Profile`] it fits.
//!
//! Source: `pkg/apis/certificates/helpers.go` and
//! `pkg/controller/certificates/approver/sarapprove.go` at v1.37.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{CertificateSigningRequestParams, PublicKey, SanType};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use sha2::{Digest, Sha256};
use x509_parser::{
    certification_request::X509CertificationRequest, extensions::ParsedExtension, prelude::FromDer,
};

use super::own_names::{NotItsOwn, Surroundings};

pub(super) const CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
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
    /// SHA-256 of that key, as SubjectPublicKeyInfo in DER.
    pub(super) key_hash: String,
    attributes: usize,
    odd_extensions: bool,
}

impl Request {
    /// Reads PEM and checks the signature by the requested key.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let failed = |what: &dyn std::fmt::Display| RequestError::Parse(what.to_string());
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem).map_err(|error| failed(&error))?;
        let params =
            CertificateSigningRequestParams::from_der(&der).map_err(|error| failed(&error))?;
        let (_, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|error| failed(&error))?;
        let subject = &parsed.certification_request_info.subject;
        let key = parsed.certification_request_info.subject_pki.raw;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().ok().map(str::to_owned)
        };
        let odd_extensions = parsed
            .requested_extensions()
            .into_iter()
            .flatten()
            .any(|extension| match extension {
                ParsedExtension::BasicConstraints(constraints) => constraints.ca,
                ParsedExtension::KeyUsage(_) | ParsedExtension::ExtendedKeyUsage(_) => false,
                ParsedExtension::SubjectAlternativeName(_) => false,
                _ => true,
            });
        Ok(Self {
            common_name: subject
                .iter_common_name()
                .next()
                .and_then(text)
                .unwrap_or_default(),
            organizations: subject.iter_organization().filter_map(text).collect(),
            names: params.params.subject_alt_names,
            public_key: params.public_key,
            key_hash: hex::encode(Sha256::digest(key)),
            attributes: subject.iter_attributes().count(),
            odd_extensions,
        })
    }

    /// The addresses that the certificate is to be for.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.names.iter().filter_map(|name| match name {
            SanType::IpAddress(address) => Some(*address),
            _ => None,
        })
    }

    /// The node that the subject names.
    pub(super) fn node_name(&self) -> Option<&str> {
        self.common_name
            .strip_prefix(NODE_PREFIX)
            .filter(|name| !name.is_empty())
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
pub(super) fn check(
    spec: &CertificateSigningRequestSpec,
    request: &Request,
) -> Option<Result<Profile, RequestError>> {
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
    if request
        .names
        .iter()
        .any(|name| !matches!(name, SanType::DnsName(_) | SanType::IpAddress(_)))
    {
        return Err(RequestError::OtherNames);
    }
    if profile == Profile::Client {
        // Whoever had it could do everything, and nobody could take it back before it expires.
        if request
            .organizations
            .iter()
            .any(|organization| organization == MASTERS)
        {
            return Err(RequestError::Masters);
        }
        let allowed = ["client auth", "digital signature", "key encipherment"];
        let fits =
            usages.contains("client auth") && usages.iter().all(|usage| allowed.contains(usage));
        return if fits {
            Ok(())
        } else {
            Err(RequestError::Usages("a client's"))
        };
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
    // Key encipherment is for RSA: who has another key leaves it out.
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

/// What has to be allowed to who asked, so that a request is approved: to create
/// `certificatesigningrequests/SUBRESOURCE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permission {
    /// Such as `nodeclient`.
    pub(super) subresource: &'static str,
    /// Of the condition `Approved`.
    pub(super) message: &'static str,
}

const SELF_NODE_CLIENT: Permission = Permission {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE_CLIENT: Permission = Permission {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};
/// Upstream leaves these to administrators.
const SELF_NODE_SERVER: Permission = Permission {
    subresource: "selfnodeserver",
    message: "Auto approving kubelet serving certificate for the node's own addresses after SubjectAccessReview.",
};

/// What becomes of a request that fits its signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Approval {
    /// Approved if who asked has one of these permissions, in this order.
    Ask(&'static [Permission]),
    /// Not by us: it stays pending for an administrator.
    LeaveAlone,
    /// Not now: it asks for a name that is not the node's.
    Wait(NotItsOwn),
}

/// Who asked, and does it ask for itself?
pub(super) fn judge(
    profile: Profile,
    spec: &CertificateSigningRequestSpec,
    request: &Request,
    surroundings: &Surroundings<'_>,
) -> Approval {
    let user = spec.username.as_deref().unwrap_or_default();
    let is_own = user == request.common_name;
    let is_node = spec.groups.iter().flatten().any(|group| group == NODES);
    match profile {
        Profile::NodeClient if is_own => Approval::Ask(&[SELF_NODE_CLIENT, NODE_CLIENT]),
        Profile::NodeClient => Approval::Ask(&[NODE_CLIENT]),
        Profile::NodeServing if is_own && is_node => {
            let own = request.node_name().unwrap_or_default();
            match surroundings.check(own, &request.names) {
                Ok(()) => Approval::Ask(&[SELF_NODE_SERVER]),
                Err(name) => Approval::Wait(name),
            }
        }
        Profile::NodeServing | Profile::Client => Approval::LeaveAlone,
    }
}
