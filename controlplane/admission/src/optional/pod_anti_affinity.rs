//! LimitPodHardAntiAffinityTopology: what a pod requires others to keep away from is a node. Who
//! could require a zone could keep it for one pod.
//!
//! Source: `plugin/pkg/admission/antiaffinity/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::{
    api_resource::ApiResource,
    value::{items, string},
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
};

const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) struct LimitPodHardAntiAffinityTopology;

#[async_trait]
impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        let other = other_topology(&attributes.object()["spec"]);
        other.map_or(Ok(()), |key| {
            Err(attributes.forbidden(format_args!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is \
                 allowed"
            )))
        })
    }
}

fn other_topology(spec: &Value) -> Option<&str> {
    let required =
        &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let mut keys = items(required)
        .iter()
        .map(|term| string(&term["topologyKey"]));
    keys.find(|key| *key != HOSTNAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_may_require_to_be_alone_on_a_node_only() {
        let affinity = |which: &str, keys: &[&str]| {
            let terms: Vec<Value> = keys.iter().map(|key| json!({"topologyKey": key})).collect();
            json!({"affinity": {"podAntiAffinity": {which: terms}}})
        };
        let (hard, soft) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        for (spec, expect) in [
            (json!({}), None),
            (affinity(hard, &[]), None),
            (affinity(hard, &[HOSTNAME]), None),
            (affinity(soft, &["zone"]), None),
            (affinity(hard, &["az"]), Some("az")),
            (affinity(hard, &[HOSTNAME, "zone"]), Some("zone")),
        ] {
            assert_eq!(other_topology(&spec), expect, "{spec}");
        }
    }
}
