//! What is allowed in a Service and yet hardly meant.
//!
//! Source: `pkg/api/service/warnings.go` at v1.37; warnings about the spelling of addresses are not
//! here: what they warn of is refused.

use serde_json::Value;

use crate::value::{items, string};

const OLD_TOPOLOGY: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY: &str = "service.kubernetes.io/topology-mode";

/// Warnings about a Service.
pub(super) fn of(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &service["spec"];
    if service["metadata"]["annotations"][OLD_TOPOLOGY].is_string() {
        warnings.push(format!(
            "annotation {OLD_TOPOLOGY} is deprecated, please use {TOPOLOGY} instead"
        ));
    }
    let is_external_name = spec["type"] == "ExternalName";
    let is_headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    let has_external_ips = !items(&spec["externalIPs"]).is_empty();
    if is_headless {
        for (field, is_set) in [
            (
                "loadBalancerIP",
                !string(&spec["loadBalancerIP"]).is_empty(),
            ),
            ("externalIPs", has_external_ips),
            ("SessionAffinity", spec["sessionAffinity"] != "None"),
        ] {
            if is_set {
                warnings.push(format!("spec.{field} is ignored for headless services"));
            }
        }
    }
    if has_external_ips && !is_headless && !is_external_name {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    if is_external_name && has_external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external_name && !string(&spec["externalName"]).is_empty() {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_ignored_or_deprecated_is_pointed_out() {
        let check =
            |spec: Value, expect: &[&str]| assert_eq!(of(&json!({"spec": spec})), expect, "{spec}");
        let plain =
            json!({"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "10.0.0.1"});
        check(plain, &[]);
        check(
            json!({"type": "ClusterIP", "sessionAffinity": "ClientIP", "clusterIP": "None", "externalIPs": ["1.2.3.4"]}),
            &[
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        );
        check(
            json!({"type": "NodePort", "externalIPs": ["1.2.3.4"], "externalName": "x"}),
            &[
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            ],
        );
        check(
            json!({"type": "ExternalName", "externalName": "x", "externalIPs": ["1.2.3.4"]}),
            &["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
        );
    }
}
