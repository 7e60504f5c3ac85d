//! PodTopologyLabels: a pod that comes to a node gets the zone and the region of the node as
//! labels, whatever it says of them itself, so that its containers can be told where they are.
//!
//! Source: `plugin/pkg/admission/podtopologylabels/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{meta, status::Status};
use coracle_registry::{
    api_resource::ApiResource, resource::Registry, store::Store, value::string,
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

pub(crate) struct PodTopologyLabels {
    store: Store,
    registry: Arc<Registry>,
}

impl PodTopologyLabels {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// Those of the node. A node that is not there has none.
    async fn of_node(&self, name: &str) -> Result<Vec<(&'static str, String)>, Status> {
        let Some(nodes) = self.registry.core("nodes") else {
            return Ok(Vec::new());
        };
        let key = nodes.key("", name);
        // Every Binding comes here: a node is not parsed for two of its labels.
        if !self.store.cache.is_behind(&key)
            && let Some(entry) = nodes.cache.get(&key)
        {
            return Ok(labels(|label| entry.label(label)));
        }
        let node = self.store.current(nodes, &key).await?;
        Ok(node.map_or_else(Vec::new, |node| {
            labels(|label| meta::label(&node.object, label))
        }))
    }
}

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let Some(node) = node_of(attributes.subresource, attributes.object()) else {
            return Ok(());
        };
        let labels = self.of_node(node).await?;
        for (label, value) in labels {
            // From a Binding its pod gets them with the node's name.
            if meta::label(attributes.object(), label) != Some(&value) {
                meta::set_label(attributes.object_mut(), label, &value);
            }
        }
        Ok(())
    }
}

/// Where the pod is to be, if that is a node.
fn node_of<'a>(subresource: &str, object: &'a Value) -> Option<&'a str> {
    let name = match subresource {
        "" => string(&object["spec"]["nodeName"]),
        "binding" if object["target"]["kind"] == "Node" => string(&object["target"]["name"]),
        _ => "",
    };
    (!name.is_empty()).then_some(name)
}

fn labels<'a>(of: impl Fn(&str) -> Option<&'a str>) -> Vec<(&'static str, String)> {
    let there = LABELS.into_iter();
    there
        .filter_map(|label| Some((label, of(label)?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_and_bindings_say_where() {
        for (subresource, object, expect) in [
            ("", json!({"spec": {}}), None),
            ("", json!({"spec": {"nodeName": "n"}}), Some("n")),
            ("status", json!({"spec": {"nodeName": "n"}}), None),
            (
                "binding",
                json!({"target": {"kind": "Node", "name": "n"}}),
                Some("n"),
            ),
            ("binding", json!({"target": {"name": "n"}}), None),
            (
                "eviction",
                json!({"target": {"kind": "Node", "name": "n"}}),
                None,
            ),
        ] {
            assert_eq!(
                node_of(subresource, &object),
                expect,
                "{subresource} {object}"
            );
        }
    }

    #[test]
    fn zone_and_region_are_taken_and_nothing_else() {
        let node = json!({"metadata": {"labels": {
            "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/arbitrary": "a",
            "sub.topology.kubernetes.io/region": "s", "topology.kubernetes.io": "t"}}});
        let found = labels(|label| meta::label(&node, label));
        assert_eq!(found, [("topology.kubernetes.io/zone", "z".to_owned())]);
    }
}
