//! CertificateSigningRequest: how nodes and people obtain certificates from the cluster.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, NONE, text};
use crate::registry::strategy::{Column, ResourceInfo, Scope, Strategy, Subresource};

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
    text("SignerName", "signerName indicates the requested signer, and is a qualified name."),
    text("Requestor", "username contains the name of the user that created the CertificateSigningRequest."),
    text("RequestedDuration", "expirationSeconds is the requested duration of validity of the issued certificate."),
    text("Condition", "conditions applied to the request. Known conditions are \"Approved\", \"Denied\", and \"Failed\"."),
];

impl Strategy for CertificateSigningRequest {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn field(&self, object: &Value, path: &str) -> String {
        if path == "spec.signerName" { cells::string(&object["spec"]["signerName"]).to_owned() } else { String::new() }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let duration = spec["expirationSeconds"].as_i64().map_or_else(|| NONE.to_owned(), cells::human_duration);
        vec![
            cells::name(object),
            cells::age(object, now_secs),
            cells::string_or(&spec["signerName"], NONE).into(),
            cells::string(&spec["username"]).into(),
            duration.into(),
            condition(&object["status"]).into(),
        ]
    }
}

fn condition(status: &Value) -> String {
    let has = |kind: &str| cells::items(&status["conditions"]).iter().any(|condition| condition["type"] == kind);
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
    if !cells::string(&status["certificate"]).is_empty() {
        text.push_str(",Issued");
    }
    text
}
