//! ClusterTrustBundle: certificates that the cluster trusts for a purpose.
//!
//! Source: `pkg/registry/certificates/clustertrustbundle/strategy.go`,
//! `pkg/apis/certificates/validation` at v1.37.

use std::collections::HashSet;

use coracle_api::{name, status::FieldErrors};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

use crate::{
    cells::{self, NAME, text},
    check, fill,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::{self, string},
};

/// The strategy of ClusterTrustBundles.
pub struct ClusterTrustBundle;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ClusterTrustBundle",
    plural: "clustertrustbundles",
    singular: "clustertrustbundle",
    scope: Scope::Cluster,
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "SignerName",
        "signerName indicates the associated signer, if any. It is used to limit who may write the bundle, and as a field to select by.",
    ),
];

/// Most bytes of all certificates together.
const MAX_BYTES: usize = 1024 * 1024;

impl BuiltIn for ClusterTrustBundle {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }
}

impl Strategy for ClusterTrustBundle {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (spec, name) = (&object["spec"], &object["metadata"]["name"]);
        let signer = string(&spec["signerName"]);
        if signer.is_empty() {
            if string(name).contains(':') {
                errors.invalid(
                    "metadata.name",
                    name,
                    "ClusterTrustBundle without signer name must not have \":\" in its name",
                );
            }
        } else {
            check::domain_prefixed_path(&mut errors, "spec.signerName", &spec["signerName"]);
            let prefix = format!("{}:", signer.replace('/', ":"));
            if !string(name).starts_with(&prefix) {
                let message = format!(
                    "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
                );
                errors.invalid("metadata.name", name, message);
            }
        }
        bundle(&mut errors, &spec["trustBundle"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.signerName", new, old);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        // The part before the last colon is the signer's.
        name.split(':').find_map(name::dns_subdomain_error)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.signerName" => string(&object["spec"]["signerName"]).to_owned(),
            _ => String::new(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::string_or(&object["spec"]["signerName"], cells::NONE).into(),
        ]
    }
}

fn bundle(errors: &mut FieldErrors, bundle: &Value) {
    const PATH: &str = "spec.trustBundle";
    let text = string(bundle);
    if text.len() > MAX_BYTES {
        errors.too_long(PATH, bundle, MAX_BYTES);
        return;
    }
    let mut seen = HashSet::new();
    for (index, certificate) in CertificateDer::pem_slice_iter(text.as_bytes()).enumerate() {
        match certificate {
            Ok(certificate) if !seen.insert(certificate.to_vec()) => {
                errors.invalid(
                    PATH,
                    &"<value omitted>".into(),
                    format!("entry {index} is a duplicate"),
                );
            }
            Ok(_) => {}
            Err(_) => errors.invalid(
                PATH,
                &"<value omitted>".into(),
                format!("entry {index} does not parse as X.509"),
            ),
        }
    }
    if seen.is_empty() {
        errors.invalid(
            PATH,
            &"<value omitted>".into(),
            "at least one trust anchor must be provided",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn bundles_are_checked() {
        let of = |name: &str, signer: &str, bundle: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": bundle}});
        for (object, expect) in [
            (of("a", "", PEM), ""),
            (of("b.example:c:a", "b.example/c", PEM), ""),
            (
                of("a", "b.example/c", PEM),
                "metadata.name: Invalid value: \"a\": ClusterTrustBundle for signerName b.example/c must be named with prefix b.example:c:",
            ),
            (
                of("a", "", ""),
                "spec.trustBundle: Invalid value: \"<value omitted>\": at least one trust anchor must be provided",
            ),
        ] {
            assert_eq!(create_errors(&ClusterTrustBundle, object), expect);
        }
        assert_eq!(ClusterTrustBundle.name_error("b.example:c:a"), None);
    }
}
