//! What both kinds of webhook configurations have in common.
//!
//! Source: `validateValidatingWebhook`, `validateMutatingWebhook` in
//! `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use std::collections::{BTreeSet, HashSet};

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::{UNASKED, rules};
use crate::{
    cells::{self, AGE, NAME, integer},
    check, fill,
    strategy::Column,
    value::{self, items, string},
};

pub(super) static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
    ),
    AGE,
];

/// Fills in every webhook.
pub(super) fn default(object: &mut Value, is_mutating: bool) {
    fill::each(object, "webhooks", |webhook| {
        fill::text(webhook, "failurePolicy", "Fail");
        rules::default(webhook, &["rules"]);
        fill::value(webhook, "timeoutSeconds", 10);
        if is_mutating {
            fill::text(webhook, "reinvocationPolicy", "Never");
        }
        fill::object(webhook, "clientConfig");
        fill::within(&mut webhook["clientConfig"], "service", |service| {
            fill::value(service, "port", 443)
        });
    });
}

/// Checks every webhook. Match conditions that are as they were are not compiled again.
pub(super) fn validate(object: &Value, old: Option<&Value>, is_mutating: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut names = BTreeSet::new();
    let has_new_conditions = old.is_none_or(|old| conditions_of(old) != conditions_of(object));
    for (index, webhook) in items(&object["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{index}]");
        check_webhook(&mut errors, &path, webhook, is_mutating);
        if has_new_conditions {
            let at = format!("{path}.matchConditions");
            rules::conditions(&mut errors, &at, &webhook["matchConditions"], false);
        }
        let versions = &webhook["admissionReviewVersions"];
        review_versions(
            &mut errors,
            &format!("{path}.admissionReviewVersions"),
            versions,
        );
        let name = string(&webhook["name"]);
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(format!("{path}.name"), &webhook["name"]);
        }
    }
    errors
}

fn conditions_of(object: &Value) -> Vec<&Value> {
    let webhooks = items(&object["webhooks"]).iter();
    webhooks
        .map(|webhook| &webhook["matchConditions"])
        .collect()
}

/// Rules that name what no webhook is asked about.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, webhook) in items(&object["webhooks"]).iter().enumerate() {
        for (at, rule) in items(&webhook["rules"]).iter().enumerate() {
            let texts = |field: &str| items(&rule[field]).iter().map(string);
            let has_wildcard = ["apiGroups", "apiVersions", "resources"]
                .into_iter()
                .any(|field| texts(field).any(|one| one == "*"));
            if has_wildcard {
                continue;
            }
            let named = texts("apiGroups")
                .flat_map(|group| texts("resources").map(move |resource| (group, resource)));
            let unasked: BTreeSet<_> = named.filter(|named| UNASKED.contains(named)).collect();
            warnings.extend(unasked.into_iter().map(|(group, resource)| {
                format!(
                    "webhooks[{index}].rules[{at}]: {resource}.{group} is excluded from admission webhooks; \
                     this rule will have no effect"
                )
            }));
        }
    }
    warnings
}

pub(super) fn row(object: &Value, now_secs: i64) -> Vec<Value> {
    vec![
        cells::name(object),
        value::len(&object["webhooks"]).into(),
        cells::age(object, now_secs),
    ]
}

/// In upstream's order.
fn check_webhook(errors: &mut FieldErrors, path: &str, webhook: &Value, is_mutating: bool) {
    let at = |field: &str| format!("{path}.{field}");
    if check::required(errors, &at("name"), &webhook["name"]) {
        let messages = name::dns_subdomain_errors(string(&webhook["name"]));
        if messages.is_empty() && string(&webhook["name"]).split('.').count() < 3 {
            let message = "should be a domain with at least three segments separated by dots";
            errors.invalid(at("name"), &webhook["name"], message);
        }
        check::invalid_all(errors, &at("name"), &webhook["name"], messages);
    }
    rules::all(errors, &at("rules"), &webhook["rules"]);
    check::optional_one_of(
        errors,
        &at("failurePolicy"),
        &webhook["failurePolicy"],
        &["Fail", "Ignore"],
    );
    check::optional_one_of(
        errors,
        &at("matchPolicy"),
        &webhook["matchPolicy"],
        rules::MATCH_POLICIES,
    );
    let effects = &webhook["sideEffects"];
    if effects.is_null() {
        errors.required(at("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    check::optional_one_of(
        errors,
        &at("sideEffects"),
        effects,
        &["None", "NoneOnDryRun"],
    );
    let timeout = &webhook["timeoutSeconds"];
    if timeout
        .as_i64()
        .is_some_and(|secs| !(1..=30).contains(&secs))
    {
        errors.invalid(
            at("timeoutSeconds"),
            timeout,
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for selector in rules::SELECTORS {
        check::label_selector(errors, &at(selector), &webhook[selector]);
    }
    if is_mutating {
        check::optional_one_of(
            errors,
            &at("reinvocationPolicy"),
            &webhook["reinvocationPolicy"],
            &["IfNeeded", "Never"],
        );
    }
    client_config(errors, &at("clientConfig"), &webhook["clientConfig"]);
}

fn review_versions(errors: &mut FieldErrors, path: &str, versions: &Value) {
    let list = items(versions);
    if list.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !seen.insert(version) {
            errors.invalid(&path, version, "duplicate version");
            continue;
        }
        let messages = name::dns_1035_label_errors(string(version));
        check::invalid_all(errors, &path, version, messages);
    }
    if !list
        .iter()
        .any(|version| version == "v1" || version == "v1beta1")
    {
        errors.invalid(path, versions, "must include at least one of v1, v1beta1");
    }
}

/// Where a webhook is.
pub(crate) fn client_config(errors: &mut FieldErrors, path: &str, config: &Value) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() == service.is_null() {
        errors.required(path, "exactly one of url or service is required");
    } else if url.is_string() {
        check_url(errors, &format!("{path}.url"), url);
    } else {
        for field in ["name", "namespace"] {
            if string(&service[field]).is_empty() {
                errors.required(
                    format!("{path}.service.{field}"),
                    format!("service {field} is required"),
                );
            }
        }
        let port = &service["port"];
        if let Some(message) = port.as_i64().and_then(name::port_number_error) {
            errors.invalid(
                format!("{path}.service.port"),
                port,
                format!("port is not valid: {message}"),
            );
        }
        check_path(errors, &format!("{path}.service.path"), &service["path"]);
    }
}

fn check_path(errors: &mut FieldErrors, at: &str, path: &Value) {
    let text = string(path);
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return errors.invalid(at, path, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        errors.invalid(at, path, "must start with a '/'");
    }
    // As upstream: the first letter goes, whatever it is.
    let rest = text
        .chars()
        .next()
        .map_or("", |first| &text[first.len_utf8()..]);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(at, path, format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in name::dns_subdomain_errors(step) {
            errors.invalid(at, path, format!("segment[{index}]: {message}"));
        }
    }
}

fn check_url(errors: &mut FieldErrors, path: &str, url: &Value) {
    const FORM: &str = "desired format: https://host[/path]";
    let Ok(parsed) = string(url).parse::<http::Uri>() else {
        errors.required(path, format!("url must be a valid URL; {FORM}"));
        return;
    };
    // The part that is wrong is told, not all of it.
    let scheme = parsed.scheme_str().unwrap_or_default();
    if scheme != "https" {
        let message = format!("'https' is the only allowed URL scheme; {FORM}");
        errors.invalid(path, &scheme.into(), message);
    }
    let host = parsed.host().unwrap_or_default();
    if host.is_empty() {
        errors.invalid(path, &"".into(), format!("host must be specified; {FORM}"));
    }
    let authority = parsed.authority().map_or("", http::uri::Authority::as_str);
    if let Some((user, _)) = authority.rsplit_once('@') {
        let message = "user information is not permitted in the URL";
        errors.invalid(path, &user.into(), message);
    }
    if let Some((_, fragment)) = string(url).split_once('#') {
        let message = "fragments are not permitted in the URL";
        errors.invalid(path, &fragment.into(), message);
    }
    if let Some(query) = parsed.query() {
        let message = "query parameters are not permitted in the URL";
        errors.invalid(path, &query.into(), message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kinds::admissionregistration::{
            mutatingwebhookconfiguration::MutatingWebhookConfiguration,
            validatingwebhookconfiguration::ValidatingWebhookConfiguration,
        },
        strategy::Strategy,
        testing::{create_errors, created, updated, with},
    };

    fn configuration() -> Value {
        json!({"metadata": {"name": "w"}, "webhooks": [{
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]})
    }

    #[test]
    fn defaults_are_upstreams() {
        let object = created(&MutatingWebhookConfiguration, configuration());
        let webhook = &object["webhooks"][0];
        for (field, expect) in [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("timeoutSeconds", json!(10)),
            ("reinvocationPolicy", json!("Never")),
            ("namespaceSelector", json!({})),
        ] {
            assert_eq!(webhook[field], expect, "{field}");
        }
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(
            json!(MutatingWebhookConfiguration.row(&object, 0)),
            json!(["w", 1, "<unknown>"])
        );
        let changed = with(&object, "/webhooks/0/timeoutSeconds", json!(5));
        assert_eq!(
            updated(&MutatingWebhookConfiguration, changed, &object)["metadata"]["generation"],
            2
        );
    }

    #[test]
    fn webhooks_are_checked() {
        for (pointer, value, expect) in [
            ("/webhooks/0/timeoutSeconds", json!(5), ""),
            (
                "/webhooks/0/name",
                json!("a"),
                "webhooks[0].name: Invalid value: \"a\": should be a domain with at least three segments separated by dots",
            ),
            (
                "/webhooks/0/sideEffects",
                Value::Null,
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            ),
            (
                "/webhooks/0/timeoutSeconds",
                json!(31),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                "/webhooks/0/clientConfig",
                json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                "/webhooks/0/clientConfig",
                json!({"service": {"namespace": "n", "name": "s", "path": "a//b"}}),
                "[webhooks[0].clientConfig.service.path: Invalid value: \"a//b\": must start with a '/', \
                 webhooks[0].clientConfig.service.path: Invalid value: \"a//b\": segment[0] may not be empty, \
                 webhooks[0].clientConfig.service.path: Invalid value: \"a//b\": segment[1] may not be empty]",
            ),
            (
                "/webhooks/0/clientConfig",
                json!({"url": "https://u:p@a/?q#f"}),
                "[webhooks[0].clientConfig.url: Invalid value: \"u:p\": user information is not permitted in the URL, \
                 webhooks[0].clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL, \
                 webhooks[0].clientConfig.url: Invalid value: \"q\": query parameters are not permitted in the URL]",
            ),
            (
                "/webhooks/0/rules/0/resources",
                json!(["pods/*", "pods/log"]),
                "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
            ),
            (
                "/webhooks/0/matchConditions",
                json!([{"name": "a", "expression": "request.nothing == 1"}]),
                "webhooks[0].matchConditions[0].expression: Invalid value: \"request.nothing == 1\": compilation failed: \
                 ERROR: <input>:1:8: undefined field 'nothing'\n | request.nothing == 1\n | .......^",
            ),
            (
                "/webhooks/0/matchConditions",
                json!([{"name": "a", "expression": "request.name"}]),
                "webhooks[0].matchConditions[0].expression: Invalid value: \"request.name\": must evaluate to bool but got string",
            ),
            (
                "/webhooks/0/matchConditions",
                json!([{"name": "a", "expression": "params.a == 1"}]),
                "webhooks[0].matchConditions[0].expression: Invalid value: \"params.a == 1\": compilation failed: ERROR: \
                 <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^",
            ),
            ("/webhooks/0/rules/0/resources", json!(["pods", "*"]), ""),
            (
                "/webhooks/0/rules/0/resources",
                json!(["*", "pods"]),
                "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify \
                 other resources without subresources",
            ),
            (
                "/webhooks/0/clientConfig",
                json!({"url": "http://a/"}),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                "/webhooks/0/admissionReviewVersions",
                json!(["v9"]),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
            ),
            (
                "/webhooks/0/rules/0/resources",
                json!([]),
                "webhooks[0].rules[0].resources: Required value",
            ),
            (
                "/webhooks/0/rules/0/operations",
                json!(["*", "CREATE"]),
                "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
            ),
            (
                "/webhooks/0/matchConditions",
                json!([{"name": "a"}]),
                "webhooks[0].matchConditions[0].expression: Required value",
            ),
        ] {
            let object = with(&configuration(), pointer, value.clone());
            assert_eq!(
                create_errors(&ValidatingWebhookConfiguration, object),
                expect,
                "{pointer} = {value}"
            );
        }
    }
}
