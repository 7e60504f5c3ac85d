//! How versions are turned into one another.
//!
//! Source: `validateCustomResourceConversion` at v1.37.

use std::collections::HashSet;

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    kinds::admissionregistration::webhooks,
    value::{items, string},
};

pub(super) fn check(errors: &mut FieldErrors, spec: &Value) {
    let conversion = &spec["conversion"];
    if !check::required(errors, "spec.conversion.strategy", &conversion["strategy"]) {
        return;
    }
    let webhook = &conversion["webhook"];
    let (config, versions) = (
        &webhook["clientConfig"],
        &webhook["conversionReviewVersions"],
    );
    let (at_config, at_versions) = (
        "spec.conversion.webhookClientConfig",
        "spec.conversion.conversionReviewVersions",
    );
    if conversion["strategy"] == "Webhook" {
        if config.is_null() {
            errors.required(at_config, "required when strategy is set to Webhook");
        } else {
            webhooks::client_config(errors, at_config, config);
        }
        review_versions(errors, at_versions, versions);
        return;
    }
    let strategies = ["None", "Webhook"];
    check::one_of(
        errors,
        "spec.conversion.strategy",
        &conversion["strategy"],
        &strategies,
    );
    let not_set = "should not be set when strategy is not set to Webhook";
    if !config.is_null() {
        errors.forbidden(at_config, not_set);
    }
    if !items(versions).is_empty() {
        errors.forbidden(at_versions, not_set);
    }
}

fn review_versions(errors: &mut FieldErrors, path: &str, versions: &Value) {
    let list = items(versions);
    if list.is_empty() {
        return errors.required(path, "");
    }
    let mut seen = HashSet::new();
    for (at, version) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        if !seen.insert(string(version)) {
            errors.invalid(path, version, "duplicate version");
            continue;
        }
        let wrong = name::dns_1035_label_errors(string(version));
        check::invalid_all(errors, &path, version, wrong);
    }
    if !list
        .iter()
        .any(|version| version == "v1" || version == "v1beta1")
    {
        errors.invalid(path, versions, "must include at least one of v1, v1beta1");
    }
}
