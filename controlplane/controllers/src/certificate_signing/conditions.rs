//! What has been decided about a request, and until when it is kept. Pure.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

/// How long a request lives after it was decided, and without a decision.
const DECIDED_LIFE: Duration = Duration::from_secs(3600);
const PENDING_LIFE: Duration = Duration::from_secs(24 * 3600);

fn conditions(
    csr: &CertificateSigningRequest,
) -> impl Iterator<Item = &CertificateSigningRequestCondition> {
    csr.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
}

pub(super) fn has_condition(csr: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(csr).any(|condition| condition.type_ == kind && condition.status != "False")
}

pub(super) fn certificate_of(csr: &CertificateSigningRequest) -> Option<&ByteString> {
    csr.status
        .as_ref()?
        .certificate
        .as_ref()
        .filter(|certificate| !certificate.0.is_empty())
}

pub(super) fn with_condition(
    csr: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: &str,
) -> CertificateSigningRequest {
    let mut csr = csr.clone();
    let now = Time(Timestamp::now());
    let condition = CertificateSigningRequestCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    csr.status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default()
        .push(condition);
    csr
}

/// How long the request may stay.
pub(super) fn time_left(csr: &CertificateSigningRequest, now: Timestamp) -> Duration {
    let decided = conditions(csr)
        .filter_map(|condition| condition.last_update_time.as_ref())
        .map(|time| time.0)
        .max();
    let created = csr
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let end = match decided {
        Some(at) => at.checked_add(DECIDED_LIFE),
        None => created.checked_add(PENDING_LIFE),
    };
    end.ok()
        .and_then(|end| Duration::try_from(end.duration_since(now)).ok())
        .unwrap_or(Duration::ZERO)
}
