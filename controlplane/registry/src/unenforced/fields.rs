//! Fields, labels and annotations that nothing acts on, of kinds that somebody does act on.

use coracle_api::load_balancer;
use serde_json::Value;

use crate::{
    api_resource::ApiResource,
    value::{items, string},
};

/// The handlers of RuntimeClasses that nodes know: names of their one runtime.
const HANDLERS: [&str; 2] = ["coracle", "runc"];

/// What to tell the writer of an object.
pub(super) fn warnings(info: &ApiResource, object: &Value) -> Vec<String> {
    match (&*info.group, &*info.plural) {
        ("", "pods") => isolation(&object["spec"], "spec"),
        ("", "podtemplates") => isolation(&object["template"]["spec"], "template.spec"),
        ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs")
        | ("", "replicationcontrollers") => {
            isolation(&object["spec"]["template"]["spec"], "spec.template.spec")
        }
        ("batch", "cronjobs") => isolation(
            &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
            "spec.jobTemplate.spec.template.spec",
        ),
        ("node.k8s.io", "runtimeclasses") => runtime(&object["handler"]),
        ("", "services") => service(object),
        ("autoscaling", "horizontalpodautoscalers") => metrics(&object["spec"]["metrics"]),
        ("discovery.k8s.io", "endpointslices") => endpoint_slice(object),
        _ => Vec::new(),
    }
}

/// Of a pod at this path: its node makes no user namespace, and nothing of it without one.
fn isolation(spec: &Value, path: &str) -> Vec<String> {
    if spec["hostUsers"] != false {
        return Vec::new();
    }
    vec![format!(
        "{path}.hostUsers false is refused by this cluster's nodes: they make no user namespaces yet, and the pod does not start"
    )]
}

fn runtime(handler: &Value) -> Vec<String> {
    let handler = handler.as_str().unwrap_or_default();
    if HANDLERS.contains(&handler) {
        return Vec::new();
    }
    vec![format!(
        "handler {handler:?} is refused by this cluster's nodes: they have one runtime ({}), and no pod of this class starts",
        HANDLERS.join(" or ")
    )]
}

fn service(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let mut said = Vec::new();
    if spec["type"] == "LoadBalancer" {
        let class = spec["loadBalancerClass"].as_str();
        if let Some(class) = class.filter(|class| !load_balancer::is_served(Some(class))) {
            said.push(format!("spec.loadBalancerClass {class:?} needs an addon that is not part of this cluster: without it the Service gets no address from outside, and is reached by its node ports"));
        }
    }
    said
}

/// Metrics that come from elsewhere than the nodes.
fn metrics(metrics: &Value) -> Vec<String> {
    let said = |(index, metric): (usize, &Value)| {
        let group = match string(&metric["type"]) {
            "Pods" | "Object" => "custom.metrics.k8s.io",
            "External" => "external.metrics.k8s.io",
            _ => return None,
        };
        Some(format!(
            "spec.metrics[{index}] has no value in this cluster: {group} is not served yet, and nothing scales by it"
        ))
    };
    items(metrics).iter().enumerate().filter_map(said).collect()
}

/// What the proxy reads of a slice leaves these out.
fn endpoint_slice(slice: &Value) -> Vec<String> {
    if slice["addressType"] != "IPv6" {
        return Vec::new();
    }
    vec!["addressType \"IPv6\" is not used by this cluster yet: no traffic goes to the slice's endpoints".to_owned()]
}
