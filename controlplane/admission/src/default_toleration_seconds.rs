//! DefaultTolerationSeconds: a pod stays for a while on a node that is gone, unless it says itself for how long.
//!
//! Source: `plugin/pkg/admission/defaulttolerationseconds/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::{
    cells::{items, string},
    resource::Resource,
};
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
    pod::{push, spec_mut},
};

/// How long a pod stays on a node that is gone.
const TOLERATION_SECS: i64 = 300;

pub(crate) struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, operation: Operation, resource: &Resource) -> bool {
        operation == Operation::Create && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if let Some(spec) = spec_mut(attributes) {
            fill(spec);
        }
        Ok(())
    }
}

/// Lets the pod stay for a while on a node that is not ready or not reachable.
fn fill(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(&spec["tolerations"]).iter().any(|toleration| {
            let (own_key, effect) = (string(&toleration["key"]), string(&toleration["effect"]));
            (own_key == key || own_key.is_empty()) && matches!(effect, "NoExecute" | "")
        });
        if !tolerated {
            let toleration =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECS});
            push(spec, "tolerations", toleration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tolerations_win() {
        let mut spec = json!({"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]});
        fill(&mut spec);
        assert_eq!(items(&spec["tolerations"]).len(), 2);
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 5);
        assert_eq!(spec["tolerations"][1]["key"], "node.kubernetes.io/unreachable");
        let mut spec = json!({"tolerations": [{"operator": "Exists"}]});
        fill(&mut spec);
        assert_eq!(items(&spec["tolerations"]).len(), 1);
    }
}
