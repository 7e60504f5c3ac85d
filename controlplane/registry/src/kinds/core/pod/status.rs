//! What may be said of a pod's state: others act on it. Services send traffic to its addresses,
//! Jobs count its ends.
//!
//! Source: `ValidatePodStatusUpdate` in `pkg/apis/core/validation/validation.go` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{items, string},
};

pub(super) fn validate(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let (spec, new, old) = (&old["spec"], &new["status"], &old["status"]);
    if !string(&old["qosClass"]).is_empty() {
        check::immutable(
            errors,
            "status.qosClass",
            &new["qosClass"],
            &old["qosClass"],
        );
    }
    addresses(errors, "status.podIPs", &new["podIPs"], &old["podIPs"]);
    addresses(errors, "status.hostIPs", &new["hostIPs"], &old["hostIPs"]);
    let first = &new["hostIPs"][0]["ip"];
    if !items(&new["hostIPs"]).is_empty() && string(&new["hostIP"]) != string(first) {
        errors.invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`");
    }
    let nominated = &new["nominatedNodeName"];
    if !string(&spec["nodeName"]).is_empty()
        && !string(nominated).is_empty()
        && nominated != &old["nominatedNodeName"]
    {
        let message = "may not be set on pods that are already bound to a node";
        errors.forbidden("status.nominatedNodeName", message);
    }
    if nominated != &old["nominatedNodeName"]
        && let Some(message) = Some(string(nominated))
            .filter(|name| !name.is_empty())
            .and_then(name::dns_subdomain_error)
    {
        errors.invalid("status.nominatedNodeName", nominated, message);
    }
    resource_claims(errors, spec, &new["resourceClaimStatuses"]);
    conditions(errors, new);
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        ends(errors, list, spec, (&new[list], &old[list]));
    }
}

/// At most one address of a family. What is there already may stay.
fn addresses(errors: &mut FieldErrors, path: &str, new: &Value, old: &Value) {
    fn text(entry: &Value) -> &str {
        string(&entry["ip"])
    }
    let kept: HashSet<_> = items(old).iter().map(text).collect();
    let list = items(new);
    let mut seen = HashSet::new();
    for (index, entry) in list.iter().enumerate() {
        if !kept.contains(text(entry)) {
            check::ip(errors, &format!("{path}[{index}].ip"), &entry["ip"]);
        }
        if !seen.insert(&entry["ip"]) {
            errors.duplicate(format!("{path}[{index}]"), entry);
        }
    }
    let parsed: Vec<IpAddr> = list
        .iter()
        .filter_map(|entry| text(entry).parse().ok())
        .collect();
    let of_one_family = |is_v4: bool| parsed.iter().filter(|ip| ip.is_ipv4() == is_v4).count();
    if list.len() > 1 && (of_one_family(true) > 1 || of_one_family(false) > 1) {
        errors.invalid(
            path,
            new,
            "may specify no more than one IP for each IP family",
        );
    }
}

/// Those that the pod asks for, each once.
fn resource_claims(errors: &mut FieldErrors, spec: &Value, statuses: &Value) {
    let statuses = items(statuses);
    let asked: HashSet<_> = items(&spec["resourceClaims"])
        .iter()
        .map(|claim| &claim["name"])
        .collect();
    let mut seen = HashSet::new();
    for (index, status) in statuses.iter().enumerate() {
        let path = format!("status.resourceClaimStatuses[{index}].name");
        if !asked.contains(&status["name"]) {
            errors.invalid(
                &path,
                &status["name"],
                "must match the name of an entry in `spec.resourceClaims`",
            );
        }
        if !seen.insert(&status["name"]) {
            errors.duplicate(path, &status["name"]);
        }
    }
}

/// The names of conditions, but for Kubernetes' own, are of who sets them.
fn conditions(errors: &mut FieldErrors, status: &Value) {
    let generation = |errors: &mut FieldErrors, path: &str, holder: &Value| {
        let generation = &holder["observedGeneration"];
        if generation.as_i64().is_some_and(|generation| generation < 0) {
            let message = "must be a non-negative integer";
            errors.invalid(format!("{path}.observedGeneration"), generation, message);
        }
    };
    for (index, condition) in items(&status["conditions"]).iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        generation(errors, &path, condition);
        if !matches!(
            string(&condition["type"]),
            "PodScheduled" | "Ready" | "Initialized"
        ) {
            check::qualified_name(errors, &format!("{path}.Type"), &condition["type"]);
        }
    }
    generation(errors, "status", status);
}

/// A container that has ended stays so where it is not to be started again: its end has been
/// counted.
fn ends(errors: &mut FieldErrors, list: &str, spec: &Value, (new, old): (&Value, &Value)) {
    let pod_policy = if list == "ephemeralContainerStatuses" {
        "Never"
    } else {
        string(&spec["restartPolicy"])
    };
    let goes_on = items(new)
        .iter()
        .filter(|after| !after["state"]["terminated"].is_object());
    let goes_on: HashSet<_> = goes_on.map(|after| &after["name"]).collect();
    let policies = own_policies(spec);
    for (index, before) in items(old).iter().enumerate() {
        let ended = &before["state"]["terminated"];
        if !ended.is_object() {
            continue;
        }
        let policy = policies.as_ref().map_or("Always", |own| {
            own.get(&before["name"]).copied().unwrap_or(pod_policy)
        });
        let may_start_again = match policy {
            "Always" | "" => true,
            "OnFailure" => ended["exitCode"] != 0 || list == "initContainerStatuses",
            _ => false,
        };
        if !may_start_again && goes_on.contains(&before["name"]) {
            let message = "may not be transitioned to non-terminated state";
            errors.forbidden(format!("status.{list}[{index}].state"), message);
        }
    }
}

/// What containers say of themselves, by name. Where one has rules for starting again, they may
/// start all again, and are not judged here: `None`.
fn own_policies(spec: &Value) -> Option<HashMap<&Value, &str>> {
    let containers = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| items(&spec[list]))
    };
    if containers().any(|container| !items(&container["restartPolicyRules"]).is_empty()) {
        return None;
    }
    let policies =
        containers().map(|container| (&container["name"], string(&container["restartPolicy"])));
    Some(policies.filter(|(_, policy)| !policy.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kinds::core::pod::Pod,
        strategy::Strategy,
        testing::{created, with},
    };

    fn pod(spec: Value) -> Value {
        let mut pod = created(
            &Pod,
            json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}),
        );
        pod["status"]["containerStatuses"] =
            json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
        pod
    }

    fn errors(new: &Value, old: &Value) -> String {
        let errors = Pod.validate_status_update(new, old);
        if errors.is_empty() {
            String::new()
        } else {
            errors.to_string()
        }
    }

    fn never() -> Value {
        pod(json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}))
    }

    #[test]
    fn a_pods_addresses_are_addresses() {
        let check = |field: &str, value: Value, expect: &str| {
            let old = never();
            let mut new = with(&old, &format!("/status/{field}"), value.clone());
            Pod.prepare_for_status_update(&mut new, &old);
            let said = errors(&new, &old);
            assert!(
                if expect.is_empty() {
                    said.is_empty()
                } else {
                    said.contains(expect)
                },
                "{field} {value}: {said}"
            );
        };
        for field in ["podIPs", "hostIPs"] {
            check(field, json!([{"ip": "10.1.2.3"}, {"ip": "fd00::1"}]), "");
            check(
                field,
                json!([{"ip": "10.1.2.3; rm -rf"}]),
                "must be a valid IP address",
            );
            check(
                field,
                json!([{"ip": "::ffff:10.1.2.3"}]),
                "must not be an IPv4-mapped IPv6 address",
            );
            check(
                field,
                json!([{"ip": "10.1.2.3"}, {"ip": "10.1.2.4"}]),
                "no more than one IP for each IP family",
            );
            check(
                field,
                json!([{"ip": "10.1.2.3"}, {"ip": "10.1.2.3"}]),
                "Duplicate value",
            );
        }
        check("qosClass", json!("Guaranteed"), "field is immutable");
        check(
            "nominatedNodeName",
            json!("A b"),
            "status.nominatedNodeName: Invalid value",
        );
        check("nominatedNodeName", json!("n1"), "");
        check("hostIP", json!("10.0.0.1"), "");
        check(
            "observedGeneration",
            json!(-1),
            "must be a non-negative integer",
        );
        check(
            "conditions",
            json!([{"type": "Ready", "status": "True", "observedGeneration": -1}]),
            "must be a non-negative integer",
        );
        check(
            "conditions",
            json!([{"type": "Initialized", "status": "True"}, {"type": "example.org/ a", "status": "True"}]),
            "status.conditions[1].Type: Invalid value: \"example.org/ a\": name part must consist of",
        );
        check(
            "resourceClaimStatuses",
            json!([{"name": "x"}]),
            "must match the name of an entry",
        );
        let old = with(&never(), "/status/podIPs", json!([{"ip": "old"}]));
        assert_eq!(errors(&old, &old), "", "what is there may stay");
    }

    #[test]
    fn a_nodes_address_is_the_first_of_its_list_and_a_bound_pod_is_not_nominated() {
        let old = never();
        let mut new = with(&old, "/status/hostIP", json!("10.0.0.1"));
        new["status"]["hostIPs"] = json!([{"ip": "10.0.0.2"}]);
        Pod.prepare_for_status_update(&mut new, &old);
        assert_eq!(
            errors(&new, &old),
            "status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`"
        );
        let bound = with(&old, "/spec/nodeName", json!("n1"));
        let nominated = with(&bound, "/status/nominatedNodeName", json!("n2"));
        assert_eq!(
            errors(&nominated, &bound),
            "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
        );
        assert_eq!(errors(&nominated, &nominated), "", "what is there may stay");
    }

    #[test]
    fn what_has_ended_does_not_run_again_unless_it_may() {
        let running = json!([{"name": "c", "state": {"running": {}}}]);
        let check = |old: &Value, expect: &str| {
            let said = errors(
                &with(old, "/status/containerStatuses", running.clone()),
                old,
            );
            assert_eq!(said, expect, "{old}");
        };
        let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        check(&never(), refused);
        let on_failure = with(&never(), "/spec/restartPolicy", json!("OnFailure"));
        check(&on_failure, refused);
        check(
            &with(
                &on_failure,
                "/status/containerStatuses/0/state/terminated/exitCode",
                json!(1),
            ),
            "",
        );
        check(&with(&never(), "/spec/restartPolicy", json!("Always")), "");
        check(
            &with(
                &never(),
                "/spec/containers/0/restartPolicy",
                json!("Always"),
            ),
            "",
        );
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]);
        check(
            &with(&never(), "/spec/containers/0/restartPolicyRules", rules),
            "",
        );
    }
}
