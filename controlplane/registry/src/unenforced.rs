//! What this cluster takes, keeps and shows, and nothing acts on yet: whoever relies on it is told
//! so at once.
//!
//! The one list of them. Here stands what somebody relies on without a look: a policy that is
//! thought to hold and does not, a range that is thought to be used, room that is thought to be
//! made, traffic that is thought to stay near. Whoever makes one of them work removes its line.
//!
//! Not here: fields of pods that their node judges; kinds without a controller whose effect is
//! plainly seen to be missing, such as Ingress.

use serde_json::Value;

use super::{api_resource::ApiResource, strategy::Scope, value::keys};

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// Group, plural, and what follows from it.
const KINDS: &[(&str, &str, &str)] = &[
    (
        ADMISSION,
        "mutatingadmissionpolicies",
        "no request is changed by it",
    ),
    (
        ADMISSION,
        "mutatingadmissionpolicybindings",
        "no request is changed by it",
    ),
    (
        ADMISSION,
        "mutatingwebhookconfigurations",
        "its webhooks are never called",
    ),
    (
        ADMISSION,
        "validatingadmissionpolicies",
        "no request is refused by it",
    ),
    (
        ADMISSION,
        "validatingadmissionpolicybindings",
        "no request is refused by it",
    ),
    (
        ADMISSION,
        "validatingwebhookconfigurations",
        "its webhooks are never called",
    ),
    (FLOW, "flowschemas", "requests are not queued by it"),
    (
        FLOW,
        "prioritylevelconfigurations",
        "requests are not queued by it",
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        "it blocks no traffic",
    ),
];

/// Labels of Pod Security on namespaces; each also with `-version`.
const POD_SECURITY: [&str; 3] = [
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/warn",
];
/// The level that asks for nothing.
const PRIVILEGED: &str = "privileged";
/// Annotations of Services that ask for endpoints nearby; the second is the older one.
const TOPOLOGY: [&str; 2] = [
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
];
/// The range that Services' addresses come from.
pub const DEFAULT_SERVICE_CIDR: &str = "kubernetes";

/// Warnings about an object that is made or changed.
pub(crate) fn warnings(info: &ApiResource, object: &Value) -> Vec<String> {
    let found = KINDS
        .iter()
        .find(|(group, plural, _)| info.is(group, plural));
    if let Some((_, _, consequence)) = found {
        return vec![format!(
            "{} is not enforced by this cluster yet: {consequence}",
            info.kind
        )];
    }
    match (&*info.group, &*info.plural, info.scope) {
        ("", "namespaces", Scope::Cluster) => pod_security(&object["metadata"]["labels"]),
        ("", "pods", _) => preemption(&object["spec"], "priority"),
        ("scheduling.k8s.io", "priorityclasses", _) => preemption(object, "value"),
        ("", "services", _) => service(object),
        ("networking.k8s.io", "servicecidrs", _)
            if object["metadata"]["name"] != DEFAULT_SERVICE_CIDR =>
        {
            let range = format!("ServiceCIDR {DEFAULT_SERVICE_CIDR:?}");
            vec![format!(
                "ServiceCIDR is not used by this cluster yet: Services get addresses of {range} alone"
            )]
        }
        _ => Vec::new(),
    }
}

fn pod_security(labels: &Value) -> Vec<String> {
    let asks = |label: &&str| POD_SECURITY.contains(label) && labels[*label] != PRIVILEGED;
    let labels = keys(labels).filter(asks);
    labels
        .map(|label| {
            format!("label {label:?} is not enforced by this cluster yet: pods are not checked")
        })
        .collect()
}

/// Of a pod or a class of them, whose number has that name: nothing is put in its place.
fn preemption(object: &Value, number: &str) -> Vec<String> {
    let counts_on_it = object[number].as_i64().is_some_and(|value| value > 0);
    if counts_on_it && object["preemptionPolicy"] == "PreemptLowerPriority" {
        let policy =
            "preemptionPolicy \"PreemptLowerPriority\" is not enforced by this cluster yet";
        return vec![format!(
            "{policy}: no pod makes room for one of higher priority"
        )];
    }
    Vec::new()
}

fn service(service: &Value) -> Vec<String> {
    let (spec, annotations) = (&service["spec"], &service["metadata"]["annotations"]);
    let mut said = Vec::new();
    if spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local" {
        let field = "spec.healthCheckNodePort is not served by this cluster yet";
        said.push(format!(
            "{field}: a load balancer cannot tell which nodes have endpoints"
        ));
    }
    if spec["trafficDistribution"].is_string() {
        said.push("spec.trafficDistribution is not used by this cluster yet: traffic goes to any endpoint".to_owned());
    }
    let asks = |key: &&&str| {
        annotations[**key]
            .as_str()
            .is_some_and(|mode| !mode.eq_ignore_ascii_case("disabled"))
    };
    if let Some(annotation) = TOPOLOGY.iter().find(asks) {
        said.push(format!(
            "annotation {annotation} is not used by this cluster yet: traffic goes to any endpoint"
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn info(group: &str, plural: &str) -> ApiResource {
        let mut all = kinds::all()
            .iter()
            .map(|strategy| ApiResource::from(strategy.resource()));
        all.find(|info| info.is(group, plural))
            .unwrap_or_else(|| panic!("no {plural}.{group}"))
    }

    #[test]
    fn every_kind_of_the_list_is_served_and_warned_of() {
        for (group, plural, consequence) in KINDS {
            let said = warnings(&info(group, plural), &json!({}));
            assert!(
                said.len() == 1 && said[0].ends_with(consequence),
                "{said:?}"
            );
        }
        assert!(warnings(&info("", "configmaps"), &json!({})).is_empty());
    }

    #[test]
    fn levels_of_pod_security_are_warned_of_unless_they_ask_for_nothing() {
        let check = |labels: Value, expect: &[&str]| {
            let object = json!({"metadata": {"labels": labels}});
            assert_eq!(warnings(&info("", "namespaces"), &object), expect);
        };
        check(Value::Null, &[]);
        check(
            json!({"pod-security.kubernetes.io/enforce": "privileged", "a": "b"}),
            &[],
        );
        check(
            json!({"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "v1"}),
            &[
                "label \"pod-security.kubernetes.io/enforce\" is not enforced by this cluster yet: pods are not checked",
            ],
        );
    }

    #[test]
    fn who_counts_on_preemption_is_told() {
        let told = |group: &str, plural: &str, object: Value| {
            warnings(&info(group, plural), &object).len()
        };
        let class = |value: i64, policy: &str| json!({"value": value, "preemptionPolicy": policy});
        assert_eq!(
            told(
                "scheduling.k8s.io",
                "priorityclasses",
                class(1, "PreemptLowerPriority")
            ),
            1
        );
        assert_eq!(
            told("scheduling.k8s.io", "priorityclasses", class(1, "Never")),
            0
        );
        assert_eq!(
            told(
                "scheduling.k8s.io",
                "priorityclasses",
                class(0, "PreemptLowerPriority")
            ),
            0
        );
        let pod = |priority: i64| json!({"spec": {"priority": priority, "preemptionPolicy": "PreemptLowerPriority"}});
        assert_eq!((told("", "pods", pod(9)), told("", "pods", pod(0))), (1, 0));
    }

    #[test]
    fn services_that_ask_for_what_is_not_done_are_warned_of() {
        let check = |spec: Value, annotations: Value, expect: &str| {
            let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
            let said = warnings(&info("", "services"), &object);
            assert!(
                said.len() == usize::from(!expect.is_empty()) && said.concat().starts_with(expect),
                "{said:?}"
            );
        };
        check(
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"}),
            json!({}),
            "",
        );
        check(
            json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
            json!({}),
            "",
        );
        let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        check(
            balanced,
            json!({}),
            "spec.healthCheckNodePort is not served",
        );
        check(
            json!({"trafficDistribution": "PreferSameNode"}),
            json!({}),
            "spec.trafficDistribution is not used",
        );
        let mode = |mode: &str| json!({"service.kubernetes.io/topology-mode": mode});
        check(
            json!({}),
            mode("Auto"),
            "annotation service.kubernetes.io/topology-mode is not used",
        );
        check(json!({}), mode("Disabled"), "");
    }

    #[test]
    fn ranges_besides_the_first_are_warned_of() {
        let named = |name: &str| {
            warnings(
                &info("networking.k8s.io", "servicecidrs"),
                &json!({"metadata": {"name": name}}),
            )
        };
        assert!(named("kubernetes").is_empty());
        assert_eq!(named("more").len(), 1);
    }
}
