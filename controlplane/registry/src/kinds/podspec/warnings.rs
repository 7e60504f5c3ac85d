//! What is allowed in a pod and yet hardly meant: deprecated, without function, or contradicting
//! itself.
//!
//! Source: `pkg/api/pod/warnings.go` at v1.37, of which this is the part that users meet.

use std::collections::{HashMap, HashSet};

use coracle_api::quantity::Quantity;
use serde_json::Value;

use super::{app_armor, defaults::CONTAINER_LISTS, overlaps};
use crate::value::{items, keys, string};

/// Labels of nodes that have other names now, and what is said of them.
const NODE_LABELS: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// With upstream's backslashes.
const SECCOMP: &str = r#"non-functional in v1.27+; use the \"seccompProfile\" field instead"#;

const VOLUMES: &[(&str, &str)] = &[
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    ("gitRepo", "deprecated in v1.11"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// With so many ports of the same number and protocol each is compared.
const COMPARED: usize = 16;
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warnings about a pod, whose `at` is empty, or about the template of one, such as
/// `spec.template`.
#[must_use]
pub fn template(at: &str, template: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &template["spec"];
    let annotations = &template["metadata"]["annotations"];
    let under = |field: &str| {
        if at.is_empty() {
            field.to_owned()
        } else {
            format!("{at}.{field}")
        }
    };
    let (path, annotation_path) = (under("spec"), under("metadata.annotations"));
    node_labels(&mut warnings, &path, spec);
    for (annotation, message) in ANNOTATIONS {
        if annotations[*annotation].is_string() {
            warnings.push(format!("{annotation_path}[{annotation}]: {message}"));
        }
    }
    volumes(&mut warnings, &path, spec);
    let aliases = format!("{path}.hostAliases");
    repeated(&mut warnings, &aliases, &spec["hostAliases"], "ip");
    let secrets = format!("{path}.imagePullSecrets");
    pull_secrets(&mut warnings, &secrets, &spec["imagePullSecrets"]);
    let overhead = format!("{path}.overhead");
    fractions_of_bytes(&mut warnings, &overhead, &spec["overhead"]);
    let of_pod = &spec["securityContext"];
    if of_pod["seccompProfile"].is_null() && annotations[SECCOMP_POD].is_string() {
        warnings.push(format!("{annotation_path}[{SECCOMP_POD}]: {SECCOMP}"));
    }
    for list in CONTAINER_LISTS {
        for (index, one) in items(&spec[list]).iter().enumerate() {
            for (annotation, message) in profile_annotations(one, of_pod, at.is_empty()) {
                if annotations[&annotation].is_string() {
                    warnings.push(format!("{annotation_path}[{annotation}]: {message}"));
                }
            }
            container(&mut warnings, &format!("{path}.{list}[{index}]"), one);
        }
    }
    ports(&mut warnings, &path, spec);
    let grace = spec["terminationGracePeriodSeconds"].as_i64();
    if grace.is_some_and(|grace| grace < 0) {
        warnings.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    let affinity = format!("{path}.affinity");
    pod_affinity(&mut warnings, &affinity, &spec["affinity"]);
    warnings
}

fn volumes(warnings: &mut Vec<String>, path: &str, spec: &Value) {
    for (index, volume) in items(&spec["volumes"]).iter().enumerate() {
        for (source, message) in VOLUMES {
            if volume[*source].is_null() {
                continue;
            }
            // Upstream has another spelling here than in the field.
            let source = if *source == "storageos" {
                "storageOS"
            } else {
                source
            };
            warnings.push(format!("{path}.volumes[{index}].{source}: {message}"));
        }
    }
    warnings.extend(overlaps::warnings(&spec["volumes"]));
}

fn pull_secrets(warnings: &mut Vec<String>, path: &str, secrets: &Value) {
    repeated(warnings, path, secrets, "name");
    for (index, secret) in items(secrets).iter().enumerate() {
        if string(&secret["name"]).is_empty() {
            warnings.push(format!("{path}[{index}].name: invalid empty name \"\""));
        }
    }
}

/// The annotations that profiles of a container had before they became fields, and what is said of
/// each: those whose field is not set.
fn profile_annotations(
    container: &Value,
    of_pod: &Value,
    is_pod: bool,
) -> Vec<(String, &'static str)> {
    let (name, own) = (string(&container["name"]), &container["securityContext"]);
    let mut found = Vec::new();
    if own["seccompProfile"].is_null() {
        found.push((format!("{SECCOMP_CONTAINER}{name}"), SECCOMP));
    }
    // Of a pod the annotation becomes the field, and what is said comes before that.
    let mut profiles = [own, of_pod].into_iter();
    if !is_pod && profiles.all(|context| context["appArmorProfile"].is_null()) {
        found.push((
            format!("{}{name}", app_armor::ANNOTATION),
            app_armor::DEPRECATED,
        ));
    }
    found
}

fn container(warnings: &mut Vec<String>, path: &str, container: &Value) {
    for amounts in ["limits", "requests"] {
        let path = format!("{path}.resources.{amounts}");
        fractions_of_bytes(warnings, &path, &container["resources"][amounts]);
    }
    hidden_variables(warnings, path, container);
    restart_rules(warnings, path, container);
}

fn node_label(label: &str) -> Option<&'static str> {
    NODE_LABELS
        .iter()
        .find_map(|(known, message)| (*known == label).then_some(*message))
}

fn node_labels(warnings: &mut Vec<String>, path: &str, spec: &Value) {
    for label in keys(&spec["nodeSelector"]) {
        warnings.extend(
            node_label(label).map(|message| format!("{path}.nodeSelector[{label}]: {message}")),
        );
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let at = format!("{path}.affinity.nodeAffinity");
    for (index, term) in items(&affinity[REQUIRED]["nodeSelectorTerms"])
        .iter()
        .enumerate()
    {
        node_term(
            warnings,
            &format!("{at}.{REQUIRED}.nodeSelectorTerms[{index}]"),
            term,
        );
    }
    for (index, term) in items(&affinity[PREFERRED]).iter().enumerate() {
        node_term(
            warnings,
            &format!("{at}.{PREFERRED}[{index}].preference"),
            &term["preference"],
        );
    }
    for (index, constraint) in items(&spec["topologySpreadConstraints"]).iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        let key = string(&constraint["topologyKey"]);
        warnings.extend(
            node_label(key).map(|message| format!("{path}.topologyKey: {key} is {message}")),
        );
        if constraint["labelSelector"].is_null() {
            warnings.push(format!("{path}.labelSelector: {NO_SELECTOR}"));
        }
    }
}

fn node_term(warnings: &mut Vec<String>, path: &str, term: &Value) {
    for (index, expression) in items(&term["matchExpressions"]).iter().enumerate() {
        let key = string(&expression["key"]);
        let said = node_label(key)
            .map(|message| format!("{path}.matchExpressions[{index}].key: {key} is {message}"));
        warnings.extend(said);
    }
}

fn pod_affinity(warnings: &mut Vec<String>, path: &str, affinity: &Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, inner) in [(REQUIRED, ""), (PREFERRED, ".podAffinityTerm")] {
            for (index, term) in items(&affinity[kind][list]).iter().enumerate() {
                let term = if inner.is_empty() {
                    term
                } else {
                    &term["podAffinityTerm"]
                };
                if term["labelSelector"].is_null() {
                    warnings.push(format!(
                        "{path}.{kind}.{list}[{index}]{inner}.labelSelector: {NO_SELECTOR}"
                    ));
                }
            }
        }
    }
}

fn repeated(warnings: &mut Vec<String>, path: &str, list: &Value, field: &str) {
    let mut seen = HashSet::new();
    for (index, one) in items(list).iter().enumerate() {
        let value = string(&one[field]);
        if !seen.insert(value) {
            warnings.push(format!(
                "{path}[{index}].{field}: duplicate {field} {value:?}"
            ));
        }
    }
}

fn hidden_variables(warnings: &mut Vec<String>, path: &str, container: &Value) {
    let mut seen = HashSet::new();
    for (index, variable) in items(&container["env"]).iter().enumerate() {
        let (name, value) = (string(&variable["name"]), string(&variable["value"]));
        let reference = format!("$({name})");
        // A later one may refer to an earlier one of the same name; that is no mistake.
        let refers =
            value.contains(&reference) && value != reference && variable["valueFrom"].is_null();
        if !seen.insert(name) && !refers {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// Actions that no node carries out yet: the container follows its policy instead, and the others
/// go on.
fn restart_rules(warnings: &mut Vec<String>, path: &str, container: &Value) {
    for (index, rule) in items(&container["restartPolicyRules"]).iter().enumerate() {
        let action = string(&rule["action"]);
        if action != "Restart" {
            warnings.push(format!(
                "{path}.restartPolicyRules[{index}].action: {action:?} is not implemented by this cluster yet: \
                 the rule has no effect, the container follows its restartPolicy"
            ));
        }
    }
}

fn fractions_of_bytes(warnings: &mut Vec<String>, path: &str, amounts: &Value) {
    for resource in ["memory", "ephemeral-storage"] {
        let text = string(&amounts[resource]);
        if Quantity::parse(text).is_ok_and(|amount| amount.milli_value() % 1000 != 0) {
            warnings.push(format!(
                "{path}[{resource}]: fractional byte value {text:?} is invalid, must be an integer"
            ));
        }
    }
}

/// Ports of all containers together: they share the pod's address.
fn ports(warnings: &mut Vec<String>, path: &str, spec: &Value) {
    let mut seen: HashMap<_, Vec<(String, &Value)>> = HashMap::new();
    for list in CONTAINER_LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            for (number, port) in items(&container["ports"]).iter().enumerate() {
                let path = format!("{path}.{list}[{index}].ports[{number}]");
                let same = seen
                    .entry([&port["containerPort"], &port["protocol"]])
                    .or_default();
                for (at, other) in same.iter() {
                    let what = port_clash(port, other);
                    warnings.extend(
                        what.map(|what| format!("{path}: {what} port definition with {at}")),
                    );
                }
                if same.len() < COMPARED {
                    same.push((path, port));
                }
            }
        }
    }
}

/// What is odd about two ports of the same number and protocol.
fn port_clash(one: &Value, other: &Value) -> Option<&'static str> {
    let host_port = |port: &Value| port["hostPort"].as_i64().unwrap_or(0);
    let (port, other_port) = (host_port(one), host_port(other));
    let (ip, other_ip) = (string(&one["hostIP"]), string(&other["hostIP"]));
    if port == other_port && ip == other_ip {
        Some("duplicate")
    } else if port == 0 || other_port == 0 {
        Some("overlapping")
    } else if port == other_port && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(pod: Value, expect: &[&str]) {
        assert_eq!(template("", &pod), expect, "{pod}");
    }

    #[test]
    fn oddities_of_containers_are_pointed_out() {
        for (container, expect) in [
            (
                json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)"}]}),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                json!({"resources": {"limits": {"memory": "100m"}}}),
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ),
            (
                json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}),
                "spec.containers[0].restartPolicyRules[1].action: \"RestartAllContainers\" is not implemented by this cluster yet: \
                 the rule has no effect, the container follows its restartPolicy",
            ),
            (
                json!({"ports": [{"containerPort": 1}, {"containerPort": 1}]}),
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ),
            (
                json!({"ports": [{"containerPort": 1}, {"containerPort": 1, "hostPort": 2}]}),
                "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
            ),
        ] {
            check(json!({"spec": {"containers": [container]}}), &[expect]);
        }
        check(
            json!({"spec": {"containers": [{"env": [{"name": "A"}, {"name": "A", "value": "$(A):x"}]}]}}),
            &[],
        );
    }

    #[test]
    fn what_is_deprecated_is_pointed_out() {
        check(
            json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}),
            &[
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ],
        );
        let constraint =
            json!({"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}});
        check(
            json!({"spec": {"topologySpreadConstraints": [constraint]}}),
            &[
                "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated \
               since v1.17; use \"topology.kubernetes.io/zone\" instead",
            ],
        );
        check(
            json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}}}),
            &[
                "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \
               \\\"seccompProfile\\\" field instead",
            ],
        );
        for (source, expect) in [
            (
                "rbd",
                "spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                "cephfs",
                "spec.volumes[0].cephfs: deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                "glusterfs",
                "spec.volumes[0].glusterfs: deprecated in v1.25, non-functional in v1.26+",
            ),
            ("gitRepo", "spec.volumes[0].gitRepo: deprecated in v1.11"),
        ] {
            check(
                json!({"spec": {"volumes": [{"name": "v", source: {}}]}}),
                &[expect],
            );
        }
    }

    #[test]
    fn templates_are_named_by_their_path() {
        let pod = json!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
            "spec": {"containers": [{"name": "c"}], "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
        });
        assert_eq!(
            template("spec.template", &pod),
            [
                "spec.template.spec.imagePullSecrets[1].name: duplicate name \"a\"",
                "spec.template.spec.imagePullSecrets[2].name: invalid empty name \"\"",
                "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since \
                 v1.30; use the \\\"appArmorProfile\\\" field instead",
            ]
        );
    }
}
