//! PodCertificateRequest: how a node obtains a certificate for a pod.
//!
//! Source: `pkg/registry/certificates/podcertificaterequest/strategy.go`,
//! `pkg/apis/certificates/validation` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{items, string},
};

/// The strategy of PodCertificateRequests.
pub struct PodCertificateRequest;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PodCertificateRequest",
    plural: "podcertificaterequests",
    singular: "podcertificaterequest",
    short_names: &["pcr"],
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "PodName",
        "The name of the pod that the certificate is for.",
    ),
    text(
        "ServiceAccountName",
        "The name of the service account that the pod runs as.",
    ),
    text("NodeName", "The name of the node that the pod runs on."),
    text("SignerName", "The signer that is asked."),
    text(
        "State",
        "The state of the request: pending, issued, denied or failed.",
    ),
    AGE,
];

const DAY_SECS: i64 = 24 * 3600;

impl BuiltIn for PodCertificateRequest {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.signerName", "spec.podName", "spec.nodeName"]
    }
}

impl Strategy for PodCertificateRequest {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::value(&mut object["spec"], "maxExpirationSeconds", DAY_SECS);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::domain_prefixed_path(&mut errors, "spec.signerName", &spec["signerName"]);
        for field in ["podName", "serviceAccountName", "nodeName"] {
            let path = format!("spec.{field}");
            if check::required(&mut errors, &path, &spec[field]) {
                check::dns_subdomain(&mut errors, &path, &spec[field]);
            }
        }
        for field in ["podUID", "serviceAccountUID", "nodeUID"] {
            check::required(&mut errors, &format!("spec.{field}"), &spec[field]);
        }
        let secs = &spec["maxExpirationSeconds"];
        if secs
            .as_i64()
            .is_some_and(|secs| !(3600..=91 * DAY_SECS).contains(&secs))
        {
            let message = format!("must be in the range [3600, {}]", 91 * DAY_SECS);
            errors.invalid("spec.maxExpirationSeconds", secs, message);
        }
        check::required(
            &mut errors,
            "spec.stubPKCS10Request",
            &spec["stubPKCS10Request"],
        );
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::immutable_field(&mut errors, "spec", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (status, before) = (&new["status"], &old["status"]);
        // Once decided, it stays so.
        if state(old) != "Pending" {
            check::immutable(&mut errors, "status", status, before);
        }
        let known = ["Issued", "Denied", "Failed"];
        let conditions = items(&status["conditions"]);
        for (index, condition) in conditions.iter().enumerate() {
            let path = format!("status.conditions[{index}]");
            if !known.contains(&string(&condition["type"])) {
                errors.not_supported(format!("{path}.type"), &condition["type"], &known);
            }
            if condition["status"] != "True" {
                errors.not_supported(format!("{path}.status"), &condition["status"], &["True"]);
            }
        }
        if conditions.len() > 1 {
            let message = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid("status.conditions", &status["conditions"], message);
        }
        if state(new) == "Issued" {
            check::required(
                &mut errors,
                "status.certificateChain",
                &status["certificateChain"],
            );
        }
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let Some((_, field)) = path.split_once('.') else {
            return String::new();
        };
        string(&object["spec"][field]).to_owned()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let mut row = vec![cells::name(object)];
        row.extend(
            ["podName", "serviceAccountName", "nodeName", "signerName"]
                .map(|field| string(&spec[field]).into()),
        );
        row.push(state(object).into());
        row.push(cells::age(object, now_secs));
        row
    }
}

fn state(object: &Value) -> &str {
    let decided = items(&object["status"]["conditions"])
        .iter()
        .map(|one| string(&one["type"]));
    decided
        .into_iter()
        .find(|kind| ["Issued", "Denied", "Failed"].contains(kind))
        .unwrap_or("Pending")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn requests_are_checked() {
        let request = json!({"metadata": {"name": "r"}, "spec": {
            "signerName": "a.example/b", "podName": "p", "podUID": "1", "serviceAccountName": "s",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": "AAAA"}});
        for (pointer, value, expect) in [
            ("/spec/maxExpirationSeconds", json!(3600), ""),
            (
                "/spec/maxExpirationSeconds",
                json!(1),
                "spec.maxExpirationSeconds: Invalid value: 1: must be in the range [3600, 7862400]",
            ),
            ("/spec/podName", json!(""), "spec.podName: Required value"),
            ("/spec/nodeUID", json!(""), "spec.nodeUID: Required value"),
        ] {
            assert_eq!(
                create_errors(
                    &PodCertificateRequest,
                    with(&request, pointer, value.clone())
                ),
                expect
            );
        }
        let old = created(&PodCertificateRequest, request);
        let errors = update_errors(
            &PodCertificateRequest,
            with(&old, "/spec/podName", json!("x")),
            &old,
        );
        assert!(errors.ends_with("field is immutable"), "{errors}");
        let issued = with(
            &old,
            "/status",
            json!({"conditions": [{"type": "Issued", "status": "True"}]}),
        );
        assert_eq!(
            PodCertificateRequest
                .validate_status_update(&issued, &old)
                .to_string(),
            "status.certificateChain: Required value"
        );
        assert_eq!(
            json!(PodCertificateRequest.row(&old, 0)),
            json!(["r", "p", "s", "n", "a.example/b", "Pending", "<unknown>"])
        );
    }
}
