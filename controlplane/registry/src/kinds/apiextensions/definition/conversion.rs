//! How versions are turned into one another.
//!
//! Source: `validateCustomResourceConversion` at v1.37.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use coracle_api::{name, status::FieldErrors};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{
    check,
    kinds::admissionregistration::webhooks,
    value::{items, string},
};

pub(super) fn check(errors: &mut FieldErrors, spec: &Value) {
    let conversion = &spec["conversion"];
    let at_strategy = "spec.conversion.strategy";
    let is_said = check::required(errors, at_strategy, &conversion["strategy"]);
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
    if is_said {
        let strategies = ["None", "Webhook"];
        check::one_of(errors, at_strategy, &conversion["strategy"], &strategies);
    }
    let not_set = "should not be set when strategy is not set to Webhook";
    if !config.is_null() {
        errors.forbidden(at_config, not_set);
    }
    if !items(versions).is_empty() {
        errors.forbidden(at_versions, not_set);
    }
}

/// What is served with authorities that can be read keeps some.
pub(super) fn check_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let bundle = |definition: &Value| {
        let conversion = &definition["spec"]["conversion"];
        let text = string(&conversion["webhook"]["clientConfig"]["caBundle"]);
        STANDARD.decode(text).unwrap_or_default()
    };
    let (new_bundle, old_bundle) = (bundle(new), bundle(old));
    let is_webhook = new["spec"]["conversion"]["strategy"] == "Webhook";
    let was_broken = !old_bundle.is_empty() && !has_certificates(&old_bundle);
    if is_webhook && !new_bundle.is_empty() && !was_broken && !has_certificates(&new_bundle) {
        let path = "spec.conversion.webhookClientConfig.caBundle";
        let what = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.invalid_unshown(path, what);
    }
}

fn has_certificates(bundle: &[u8]) -> bool {
    let mut all = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
    all.any(|one| X509Certificate::from_der(&one).is_ok())
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
