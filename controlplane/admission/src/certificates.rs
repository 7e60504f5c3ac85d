//! Certificate requests: who asked, for whom nobody may ask, and who approves and signs. For pods,
//! too; and who vouches for what a signer has signed.
//!
//! Source: `plugin/pkg/admission/certificates/{approval,signing,ctbattest,subjectrestriction}` and
//! `pkg/registry/certificates/{certificates,podcertificaterequest}/strategy.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::{
    meta,
    status::{FieldErrors, Status, quote},
};
use coracle_auth::{
    authz::{self, ResourceTarget, Target},
    user::{GROUP_MASTERS, UserInfo},
};
use coracle_registry::api_resource::ApiResource;
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
use serde_json::Value;
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer as _};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

fn is_request(resource: &ApiResource) -> bool {
    resource.is(GROUP, "certificatesigningrequests")
}

/// Reads the subject of a certificate request as it stands in `spec.request`.
pub(crate) fn with_subject<T>(
    request: &str,
    read: impl FnOnce(&x509_parser::x509::X509Name<'_>) -> T,
) -> Option<T> {
    let pem = BASE64_STANDARD.decode(request).ok()?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&der).ok()?;
    Some(read(&parsed.certification_request_info.subject))
}

fn signer(object: &Value) -> &str {
    meta::get_str(object, &["spec", "signerName"])
}

/// Whether the user may do this for the signer, or for all of its domain.
fn may(authorizer: &authz::UnionAuthorizer, user: &UserInfo, verb: &str, signer: &str) -> bool {
    let every = format!("{}/*", signer.split('/').next().unwrap_or_default());
    [signer, &every].into_iter().any(|name| {
        let target = ResourceTarget {
            group: GROUP,
            resource: "signers",
            name,
            ..ResourceTarget::default()
        };
        authorizer.allows(&authz::Attributes {
            user,
            verb,
            target: Target::Resource(target),
        })
    })
}

/// Whether the user may do this for the signer that the request names.
fn check_signer(
    authorizer: &authz::UnionAuthorizer,
    verb: &str,
    attributes: &Attributes<'_>,
) -> Result<(), Status> {
    let signer = signer(attributes.old().unwrap_or(&Value::Null));
    if may(authorizer, attributes.user, verb, signer) {
        return Ok(());
    }
    Err(attributes.forbidden(format!(
        "user not permitted to {verb} requests with signerName {signer:?}"
    )))
}

// === approval ===

/// Who approves a request may do so for its signer.
pub(crate) struct CertificateApproval {
    authorizer: Arc<authz::UnionAuthorizer>,
}

impl CertificateApproval {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            authorizer: Arc::clone(&parts.authorizer),
        }
    }
}

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Update && is_request(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.subresource != "approval" {
            return Ok(());
        }
        check_signer(&self.authorizer, "approve", attributes)
    }
}

// === signing ===

/// Who writes the certificate, or what became of the request, may sign for its signer.
pub(crate) struct CertificateSigning {
    authorizer: Arc<authz::UnionAuthorizer>,
}

impl CertificateSigning {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            authorizer: Arc::clone(&parts.authorizer),
        }
    }
}

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Update && is_request(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (new, old) = (
            attributes.object(),
            attributes.old().unwrap_or(&Value::Null),
        );
        let differ =
            |field: &str| meta::get(new, &["status", field]) != meta::get(old, &["status", field]);
        if attributes.subresource != "status" || !(differ("certificate") || differ("conditions")) {
            return Ok(());
        }
        check_signer(&self.authorizer, "sign", attributes)
    }
}

/// The same for pods: whatever is said of a request is its signer's to say. Upstream asks in the
/// storage of the kind, after validation and in its form.
pub(crate) struct PodCertificateSigning {
    authorizer: Arc<authz::UnionAuthorizer>,
}

impl PodCertificateSigning {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            authorizer: Arc::clone(&parts.authorizer),
        }
    }
}

#[async_trait]
impl Plugin for PodCertificateSigning {
    fn name(&self) -> &'static str {
        "PodCertificateSigning"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Update && resource.is(GROUP, "podcertificaterequests")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let old = attributes.old().unwrap_or(&Value::Null);
        if attributes.subresource != "status"
            || attributes.object().get("status") == old.get("status")
        {
            return Ok(());
        }
        let (user, signer) = (attributes.user, signer(old));
        if may(&self.authorizer, user, "sign", signer) {
            return Ok(());
        }
        let mut errors = FieldErrors::new();
        let why = format!(
            "User {} is not permitted to \"sign\" for signer {}",
            quote(&user.name),
            quote(signer)
        );
        errors.forbidden("spec.signerName", why);
        Err(Status::invalid(
            &attributes.resource.gvk(),
            attributes.shown_name(),
            errors,
        ))
    }
}

// === trust bundles ===

/// Who writes a bundle of a signer vouches for it, and may do so.
pub(crate) struct ClusterTrustBundleAttest {
    authorizer: Arc<authz::UnionAuthorizer>,
}

impl ClusterTrustBundleAttest {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            authorizer: Arc::clone(&parts.authorizer),
        }
    }
}

#[async_trait]
impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is(GROUP, "clustertrustbundles")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        // The name of the signer does not change: validation has seen to that.
        let signer = signer(attributes.object());
        let is_same = attributes
            .old()
            .is_some_and(|old| is_same_but_for_collection(attributes.object(), old));
        if signer.is_empty() || is_same || may(&self.authorizer, attributes.user, "attest", signer)
        {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "user not permitted to attest for signerName {}",
            quote(signer)
        )))
    }
}

/// The garbage collector, which vouches for nothing, changes owners and finalizers.
fn is_same_but_for_collection(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for field in [
            "ownerReferences",
            "finalizers",
            "managedFields",
            "resourceVersion",
        ] {
            meta::remove(&mut rest, &["metadata", field]);
        }
        rest
    };
    rest(new) == rest(old)
}

// === subject ===

/// Nobody gets a certificate of `system:masters` by asking for it.
pub(crate) struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && is_request(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let object = attributes.object();
        if signer(object) != CLIENT_SIGNER {
            return Ok(());
        }
        check_groups(meta::get_str(object, &["spec", "request"]))
            .map_err(|why| attributes.forbidden(why))
    }
}

/// # Errors
/// Why nobody gets this certificate. A group in an encoding that is not read here could be any:
/// upstream reads more of them, and so may those who trust the certificate.
fn check_groups(request: &str) -> Result<(), String> {
    let groups = with_subject(request, |subject| {
        let groups = subject
            .iter_organization()
            .map(|group| group.as_str().map(str::to_owned));
        groups.collect::<Result<Vec<String>, _>>()
    });
    match groups {
        Some(Ok(groups)) if groups.iter().any(|group| group == GROUP_MASTERS) => Err(format!(
            "use of {CLIENT_SIGNER} signer with {GROUP_MASTERS} group is not allowed"
        )),
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(format!(
            "failed to parse CSR: organization of the subject: {error}"
        )),
        None => Err("failed to parse CSR".to_owned()),
    }
}

// === who asked ===

/// Writes into a request who made it, whatever it says itself: signers go by that.
pub(crate) struct CertificateRequester;

#[async_trait]
impl Plugin for CertificateRequester {
    fn name(&self) -> &'static str {
        "CertificateRequester"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && is_request(resource)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let user = attributes.user;
        sign(user, &mut attributes.object_mut()["spec"]);
        Ok(())
    }
}

fn sign(user: &UserInfo, spec: &mut Value) {
    spec["username"] = user.name.as_str().into();
    spec["groups"] = user.groups.clone().into();
    spec["uid"] = user.uid.as_str().into();
    let extra: serde_json::Map<String, Value> = user
        .extra
        .iter()
        .map(|(key, values)| (key.clone(), values.clone().into()))
        .collect();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("extra");
        if !extra.is_empty() {
            spec.insert("extra".to_owned(), extra.into());
        }
    }
}
