//! Certificate requests: who asked, for whom nobody may ask, and who approves and signs.
//!
//! Source: `plugin/pkg/admission/certificates/{approval,signing,subjectrestriction}` and
//! `pkg/registry/certificates/certificates/strategy.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::{meta, status::Status};
use coracle_auth::{
    authz::{self, ResourceTarget, Target},
    user::{GROUP_MASTERS, UserInfo},
};
use coracle_registry::resource::Resource;
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

fn is_request(resource: &Resource) -> bool {
    resource.info.is(GROUP, "certificatesigningrequests")
}

/// Reads the subject of a certificate request as it stands in `spec.request`.
pub(crate) fn with_subject<T>(request: &str, read: impl FnOnce(&x509_parser::x509::X509Name<'_>) -> T) -> Option<T> {
    let pem = BASE64_STANDARD.decode(request).ok()?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&der).ok()?;
    Some(read(&parsed.certification_request_info.subject))
}

/// Whether the user may do this for the signer that the request names.
fn check_signer(authorizer: &authz::Chain, verb: &str, attributes: &Attributes<'_>) -> Result<(), Status> {
    let signer = meta::get_str(attributes.old().unwrap_or(&Value::Null), &["spec", "signerName"]);
    let every = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let allowed = [signer, &every].into_iter().any(|name| {
        let target = ResourceTarget { group: GROUP, resource: "signers", name, ..ResourceTarget::default() };
        authorizer.allows(&authz::Attributes { user: attributes.user, verb, target: Target::Resource(target) })
    });
    if allowed {
        return Ok(());
    }
    Err(attributes.forbidden(format!("user not permitted to {verb} requests with signerName {signer:?}")))
}

// === approval ===

/// Who approves a request may do so for its signer.
pub(crate) struct CertificateApproval {
    authorizer: Arc<authz::Chain>,
}

impl CertificateApproval {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { authorizer: Arc::clone(&parts.authorizer) }
    }
}

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, operation: Operation, resource: &Resource) -> bool {
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
    authorizer: Arc<authz::Chain>,
}

impl CertificateSigning {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { authorizer: Arc::clone(&parts.authorizer) }
    }
}

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, operation: Operation, resource: &Resource) -> bool {
        operation == Operation::Update && is_request(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (new, old) = (attributes.object(), attributes.old().unwrap_or(&Value::Null));
        let differ = |field: &str| meta::get(new, &["status", field]) != meta::get(old, &["status", field]);
        if attributes.subresource != "status" || !(differ("certificate") || differ("conditions")) {
            return Ok(());
        }
        check_signer(&self.authorizer, "sign", attributes)
    }
}

// === subject ===

/// Nobody gets a certificate of `system:masters` by asking for it.
pub(crate) struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation, resource: &Resource) -> bool {
        operation == Operation::Create && is_request(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let object = attributes.object();
        if meta::get_str(object, &["spec", "signerName"]) != CLIENT_SIGNER {
            return Ok(());
        }
        let is_master = with_subject(meta::get_str(object, &["spec", "request"]), |subject| {
            subject.iter_organization().any(|group| group.as_str() == Ok(GROUP_MASTERS))
        });
        if is_master == Some(true) {
            let why = format!("use of {CLIENT_SIGNER} signer with {GROUP_MASTERS} group is not allowed");
            return Err(attributes.forbidden(why));
        }
        Ok(())
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

    fn handles(&self, operation: Operation, resource: &Resource) -> bool {
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
    let extra: serde_json::Map<String, Value> =
        user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("extra");
        if !extra.is_empty() {
            spec.insert("extra".to_owned(), extra.into());
        }
    }
}
