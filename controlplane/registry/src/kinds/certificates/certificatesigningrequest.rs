//! CertificateSigningRequest: how nodes and people obtain certificates from the cluster.

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check,
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of CertificateSigningRequests.
pub struct CertificateSigningRequest;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    scope: Scope::Cluster,
    subresources: &[Subresource::Approval, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    AGE,
    text(
        "SignerName",
        "signerName indicates the requested signer, and is a qualified name.",
    ),
    text(
        "Requestor",
        "username contains the name of the user that created the CertificateSigningRequest.",
    ),
    text(
        "RequestedDuration",
        "expirationSeconds is the requested duration of validity of the issued certificate.",
    ),
    text(
        "Condition",
        "conditions applied to the request. Known conditions are \"Approved\", \"Denied\", and \"Failed\".",
    ),
];

impl BuiltIn for CertificateSigningRequest {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }
}

impl Strategy for CertificateSigningRequest {
    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        // What was asked for is never changed.
        lifecycle::keep(new, old, "spec");
        lifecycle::update(self, new, old);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        if let Err(message) = request(string(&spec["request"])) {
            errors.invalid("spec.request", &spec["request"], message);
        }
        usages(&mut errors, &spec["usages"]);
        signer_name(&mut errors, &spec["signerName"]);
        let seconds = &spec["expirationSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
            let message = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.invalid("spec.expirationSeconds", seconds, message);
        }
        conditions(&mut errors, object);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        conditions(&mut errors, new);
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        if path == "spec.signerName" {
            value::string(&object["spec"]["signerName"]).to_owned()
        } else {
            String::new()
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let duration = spec["expirationSeconds"]
            .as_i64()
            .map_or_else(|| NONE.to_owned(), cells::human_duration);
        vec![
            cells::name(object),
            cells::age(object, now_secs),
            value::string_or(&spec["signerName"], NONE).into(),
            value::string(&spec["username"]).into(),
            duration.into(),
            condition(&object["status"]).into(),
        ]
    }
}

fn condition(status: &Value) -> String {
    let has = |kind: &str| {
        value::items(&status["conditions"])
            .iter()
            .any(|condition| condition["type"] == kind)
    };
    let mut text = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !value::string(&status["certificate"]).is_empty() {
        text.push_str(",Issued");
    }
    text
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Whether the bytes are a PEM certificate request.
fn request(base64: &str) -> Result<(), String> {
    const WRONG: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = STANDARD.decode(base64).map_err(|_| WRONG.to_owned())?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| WRONG.to_owned())?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(WRONG.to_owned());
    }
    Ok(())
}

fn usages(errors: &mut FieldErrors, usages: &Value) {
    let usages = items(usages);
    if usages.is_empty() {
        errors.required("spec.usages", "");
    }
    let mut seen = HashSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let path = format!("spec.usages[{index}]");
        if !USAGES.contains(&string(usage)) {
            errors.not_supported(&path, usage, USAGES);
        }
        if !seen.insert(usage) {
            errors.duplicate(path, usage);
        }
    }
}

fn signer_name(errors: &mut FieldErrors, signer: &Value) {
    let path = "spec.signerName";
    if !check::required(errors, path, signer) {
        return;
    }
    match string(signer).split_once('/') {
        Some(("kubernetes.io", "legacy-unknown")) => {
            errors.invalid(
                path,
                signer,
                "the legacy signerName is not allowed via this API version",
            );
        }
        Some((domain, name)) if !name.is_empty() && !name.contains('/') && domain.contains('.') => {
            check::dns_subdomain(errors, path, &domain.into());
            check::dns_subdomain(errors, path, &name.into());
        }
        _ => errors.invalid(
            path,
            signer,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
    }
}

fn conditions(errors: &mut FieldErrors, object: &Value) {
    let conditions = items(&object["status"]["conditions"]);
    let is_approved = conditions
        .iter()
        .any(|condition| condition["type"] == "Approved");
    let mut seen = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        check::required(errors, &format!("{path}.type"), &condition["type"]);
        check::optional_one_of(
            errors,
            &format!("{path}.status"),
            &condition["status"],
            &["False", "True", "Unknown"],
        );
        let decided = ["Approved", "Denied", "Failed"].contains(&string(&condition["type"]));
        if decided
            && string(&condition["status"]) != "True"
            && !string(&condition["status"]).is_empty()
        {
            errors.not_supported(format!("{path}.status"), &condition["status"], &["True"]);
        }
        if condition["type"] == "Denied" && is_approved {
            let message = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(format!("{path}.type"), &condition["type"], message);
        }
        if !seen.insert(&condition["type"]) {
            errors.duplicate(format!("{path}.type"), &condition["type"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, updated, with};

    fn csr() -> Value {
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = rcgen::CertificateParams::new(vec!["a".to_owned()])
            .unwrap()
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap();
        json!({"metadata": {"name": "c"}, "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"], "username": "system:node:n1"}})
    }

    #[test]
    fn requests_are_checked() {
        for (pointer, value, expect) in [
            ("/spec/expirationSeconds", json!(3600), ""),
            (
                "/spec/request",
                json!("eA=="),
                "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
            ),
            ("/spec/usages", json!([]), "spec.usages: Required value"),
            (
                "/spec/signerName",
                json!(""),
                "spec.signerName: Required value",
            ),
            (
                "/spec/signerName",
                json!("x"),
                "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            ),
            (
                "/spec/expirationSeconds",
                json!(60),
                "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)",
            ),
        ] {
            assert_eq!(
                create_errors(&CertificateSigningRequest, with(&csr(), pointer, value)),
                expect
            );
        }
    }

    #[test]
    fn spec_and_status_stay_on_update() {
        let old = created(&CertificateSigningRequest, csr());
        let mut new = with(&old, "/spec/username", json!("root"));
        new["status"] = json!({"certificate": "eA=="});
        assert_eq!(updated(&CertificateSigningRequest, new, &old), old);
    }

    #[test]
    fn decisions_are_final() {
        let old = csr();
        let conditions =
            json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        let new = with(&old, "/status", json!({"conditions": conditions}));
        assert_eq!(
            CertificateSigningRequest
                .validate_status_update(&new, &old)
                .to_string(),
            "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
        );
    }

    #[test]
    fn rows_show_the_condition() {
        let mut object = csr();
        object["spec"]["expirationSeconds"] = json!(3600);
        let row = |object: &Value| json!(CertificateSigningRequest.row(object, 0));
        assert_eq!(
            row(&object),
            json!([
                "c",
                "<unknown>",
                "kubernetes.io/kubelet-serving",
                "system:node:n1",
                "60m",
                "Pending"
            ])
        );
        object["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": "eA=="});
        assert_eq!(row(&object)[5], "Approved,Issued");
    }
}
