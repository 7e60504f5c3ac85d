//! Checks of whole pod specs and pod templates.
//!
//! Source: `ValidatePodSpec`, `ValidatePodTemplateSpec` in `pkg/apis/core/validation/validation.go`
//! at v1.37. The order of the checks is upstream's, so that messages with several errors read the
//! same.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::{
    app_armor,
    containers::{self, PodContext},
    creation, mirror, os, pod_resources, resource_claims, resources, scheduling, security, volumes,
};
use crate::{
    check,
    value::{items, string},
};

/// Checks the spec of a Pod.
pub fn pod(errors: &mut FieldErrors, path: &str, spec: &Value) {
    spec_of(errors, path, spec, true);
}

/// Checks a PodTemplateSpec.
pub fn template(errors: &mut FieldErrors, path: &str, template: &Value) {
    metadata(errors, path, template);
    let (annotations, spec) = (&template["metadata"]["annotations"], &template["spec"]);
    spec_of(errors, &format!("{path}.spec"), spec, false);
    creation::seccomp_matches(errors, &format!("{path}.spec"), annotations, spec);
    if !items(&template["spec"]["ephemeralContainers"]).is_empty() {
        let message = "ephemeral containers not allowed in pod template";
        errors.forbidden(format!("{path}.spec.ephemeralContainers"), message);
    }
}

/// Checks the metadata of a template alone, and that the selector selects it.
pub fn selected_metadata(errors: &mut FieldErrors, path: &str, template: &Value, selector: &Value) {
    selected(errors, path, template, selector);
    metadata(errors, path, template);
}

fn selected(errors: &mut FieldErrors, path: &str, template: &Value, selector: &Value) {
    let labels = &template["metadata"]["labels"];
    if let Ok(selector) = coracle_api::selector::LabelSelector::from_object(selector)
        && !selector.is_everything()
        && !selector.matches(|key| labels[key].as_str())
    {
        let message = "`selector` does not match template `labels`";
        errors.invalid(format!("{path}.metadata.labels"), labels, message);
    }
}

fn metadata(errors: &mut FieldErrors, path: &str, template: &Value) {
    let metadata = &template["metadata"];
    check::labels(errors, &format!("{path}.labels"), &metadata["labels"]);
    let path = format!("{path}.annotations");
    check::annotations(errors, &path, &metadata["annotations"]);
    mirror::validate(errors, &path, &metadata["annotations"], &template["spec"]);
    app_armor::validate(errors, &path, &metadata["annotations"], &template["spec"]);
}

/// Checks a template, and that the selector selects it.
pub fn selected_template(
    errors: &mut FieldErrors,
    path: &str,
    template_value: &Value,
    selector: &Value,
) {
    selected(errors, path, template_value, selector);
    template(errors, path, template_value);
}

fn spec_of(errors: &mut FieldErrors, path: &str, spec: &Value, is_pod: bool) {
    let at = |field: &str| format!("{path}.{field}");
    let volume_names = volumes::volumes(errors, &at("volumes"), &spec["volumes"]);
    let context = PodContext {
        volume_names,
        // Of several of a name the first counts.
        volumes: items(&spec["volumes"])
            .iter()
            .rev()
            .map(|volume| (&volume["name"], volume))
            .collect(),
        grace_secs: spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30),
        restart_policy: &spec["restartPolicy"],
        is_pod,
        host_users: spec["hostUsers"] != false,
        claim_names: resource_claims::names(&spec["resourceClaims"]),
    };
    resource_claims::pod(errors, &at("resourceClaims"), &spec["resourceClaims"]);
    containers::all(errors, path, spec, &context);
    pod_resources::validate(errors, path, spec);
    check::one_of(
        errors,
        &at("restartPolicy"),
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check::one_of(errors, &at("dnsPolicy"), &spec["dnsPolicy"], &policies);
    check::labels(errors, &at("nodeSelector"), &spec["nodeSelector"]);
    security::pod(errors, path, spec, is_pod);
    scheduling::affinity(errors, &at("affinity"), &spec["affinity"]);
    dns_config(errors, &at("dnsConfig"), spec);
    readiness_gates(errors, &at("readinessGates"), &spec["readinessGates"]);
    scheduling_gates(errors, &at("schedulingGates"), &spec["schedulingGates"]);
    scheduling::topology_spread(
        errors,
        &at("topologySpreadConstraints"),
        &spec["topologySpreadConstraints"],
    );
    os::host_process(errors, path, spec);
    host_names(errors, path, spec);
    names(errors, path, spec);
    check::in_range(
        errors,
        &at("activeDeadlineSeconds"),
        &spec["activeDeadlineSeconds"],
        1,
        i64::from(i32::MAX),
    );
    scheduling::tolerations(errors, &at("tolerations"), &spec["tolerations"]);
    host_aliases(errors, &at("hostAliases"), &spec["hostAliases"]);
    let policies = ["Never", "PreemptLowerPriority"];
    check::optional_one_of(
        errors,
        &at("preemptionPolicy"),
        &spec["preemptionPolicy"],
        &policies,
    );
    resources::overhead(errors, &at("overhead"), &spec["overhead"]);
    os::validate(errors, path, spec);
}

/// What the pod is called by itself.
fn host_names(errors: &mut FieldErrors, path: &str, spec: &Value) {
    // The kernel's longest host name.
    const MAX_LEN: usize = 64;
    let over = &spec["hostnameOverride"];
    if over.is_string() {
        let path = format!("{path}.hostnameOverride");
        for field in ["setHostnameAsFQDN", "hostNetwork"] {
            if spec[field] == true {
                errors.forbidden(&path, format!("may not be specified when {field} is true"));
            }
        }
        if string(over).len() > MAX_LEN {
            errors.too_long(&path, over, MAX_LEN);
        }
        check::dns_subdomain(errors, &path, over);
    }
    for field in ["hostname", "subdomain"] {
        if !string(&spec[field]).is_empty() {
            check::dns_label(errors, &format!("{path}.{field}"), &spec[field]);
        }
    }
}

/// Names of other objects.
fn names(errors: &mut FieldErrors, path: &str, spec: &Value) {
    for field in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        if !string(&spec[field]).is_empty() {
            check::dns_subdomain(errors, &format!("{path}.{field}"), &spec[field]);
        }
    }
}

fn dns_config(errors: &mut FieldErrors, path: &str, spec: &Value) {
    const MAX_NAMESERVERS: usize = 3;
    const MAX_SEARCHES: usize = 32;
    let config = &spec["dnsConfig"];
    if spec["dnsPolicy"] == "None" {
        if !config.is_object() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if items(&config["nameservers"]).is_empty() {
            let message = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(format!("{path}.nameservers"), message);
            return;
        }
    }
    let (servers, searches) = (items(&config["nameservers"]), items(&config["searches"]));
    if servers.len() > MAX_NAMESERVERS {
        let message = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.invalid(
            format!("{path}.nameservers"),
            &config["nameservers"],
            message,
        );
    }
    for (index, server) in servers.iter().enumerate() {
        check::ip(errors, &format!("{path}.nameservers[{index}]"), server);
    }
    if searches.len() > MAX_SEARCHES {
        let message = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(format!("{path}.searches"), &config["searches"], message);
    }
    search_domains(errors, &format!("{path}.searches"), &config["searches"]);
    // As upstream, no more of them is looked at, not even for line breaks: whoever writes the pod
    // may say anything in its own resolv.conf anyway.
    for (index, option) in items(&config["options"]).iter().enumerate() {
        if string(&option["name"]).is_empty() {
            errors.required(format!("{path}.options[{index}]"), "must not be empty");
        }
    }
}

/// They stand on one line of the pod's `resolv.conf`: nothing else may get into it.
fn search_domains(errors: &mut FieldErrors, path: &str, value: &Value) {
    const MAX_CHARS: usize = 2048;
    let searches = items(value);
    let chars = searches
        .iter()
        .map(|search| string(search).len() + 1)
        .sum::<usize>()
        .saturating_sub(1);
    if chars > MAX_CHARS {
        let message = format!(
            "must not have more than {MAX_CHARS} characters (including spaces) in the search list"
        );
        errors.invalid(path, value, message);
    }
    for (index, search) in searches
        .iter()
        .enumerate()
        .filter(|(_, search)| *search != ".")
    {
        let domain = string(search);
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        let messages = coracle_api::name::search_domain_errors(domain);
        check::invalid_all(
            errors,
            &format!("{path}[{index}]"),
            &domain.into(),
            messages,
        );
    }
}

fn readiness_gates(errors: &mut FieldErrors, path: &str, gates: &Value) {
    for (index, gate) in items(gates).iter().enumerate() {
        check::qualified_name(
            errors,
            &format!("{path}[{index}].conditionType"),
            &gate["conditionType"],
        );
    }
}

fn scheduling_gates(errors: &mut FieldErrors, path: &str, gates: &Value) {
    let mut seen = HashSet::new();
    for (index, gate) in items(gates).iter().enumerate() {
        check::qualified_name(errors, &format!("{path}[{index}]"), &gate["name"]);
        if !seen.insert(string(&gate["name"])) {
            errors.duplicate(format!("{path}[{index}]"), &gate["name"]);
        }
    }
}

fn host_aliases(errors: &mut FieldErrors, path: &str, aliases: &Value) {
    for (index, alias) in items(aliases).iter().enumerate() {
        check::ip(errors, &format!("{path}[{index}].ip"), &alias["ip"]);
        for (name_index, hostname) in items(&alias["hostnames"]).iter().enumerate() {
            check::dns_subdomain(
                errors,
                &format!("{path}[{index}].hostnames[{name_index}]"),
                hostname,
            );
        }
    }
}
