//! TaintNodesByCondition: nothing is placed on a new Node before it has said that it is ready.
//!
//! Without it, the node lifecycle controller would be in a race with the scheduler for the taint.
//! That controller takes it away, too, when the Node is ready.
//!
//! Source: `plugin/pkg/admission/nodetaint/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::{api_resource::ApiResource, fill, value::items};
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
    pod::push,
};

const KEY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

pub(crate) struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_core("nodes")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.is_core("nodes") && !is_tainted(attributes.object()) {
            taint(attributes.object_mut());
        }
        Ok(())
    }
}

/// A taint is the same if key and effect are.
fn is_tainted(node: &Value) -> bool {
    items(&node["spec"]["taints"])
        .iter()
        .any(|taint| taint["key"] == KEY && taint["effect"] == EFFECT)
}

fn taint(node: &mut Value) {
    fill::object(node, "spec");
    push(
        &mut node["spec"],
        "taints",
        json!({"key": KEY, "effect": EFFECT}),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_tainted_once_beside_its_own_taints() {
        let tainted = |spec: Value| {
            let mut node = json!({"metadata": {"name": "n"}, "spec": spec});
            let was = is_tainted(&node);
            if !was {
                taint(&mut node);
            }
            assert!(is_tainted(&node), "{node}");
            (was, node["spec"]["taints"].clone())
        };
        let not_ready = json!({"key": KEY, "effect": EFFECT});
        let (evicting, own) = (
            json!({"key": KEY, "effect": "NoExecute"}),
            json!({"key": "gpu", "value": "yes", "effect": EFFECT}),
        );
        assert_eq!(tainted(Value::Null), (false, json!([not_ready])));
        assert_eq!(
            tainted(json!({"taints": [evicting, own]})),
            (false, json!([evicting, own, not_ready]))
        );
        let said = json!([not_ready, own]);
        assert_eq!(tainted(json!({"taints": said})), (true, said));
    }
}
