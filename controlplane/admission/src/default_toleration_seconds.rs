//! DefaultTolerationSeconds: a pod stays for a while on a node that is gone, unless it says itself
//! for how long.
//!
//! Source: `plugin/pkg/admission/defaulttolerationseconds/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::{
    api_resource::ApiResource,
    value::{items, string},
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

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    /// On an update, too: who lists tolerations of its own takes none of these away.
    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let missing = missing(&attributes.object()["spec"]);
        // An object that stays as it is need not be put right again.
        if !missing.is_empty()
            && let Some(spec) = spec_mut(attributes)
        {
            missing
                .into_iter()
                .for_each(|toleration| push(spec, "tolerations", toleration));
        }
        Ok(())
    }
}

/// What lets the pod stay for a while on a node that is not ready or not reachable.
fn missing(spec: &Value) -> Vec<Value> {
    let is_tolerated = |key: &str| {
        items(&spec["tolerations"]).iter().any(|toleration| {
            let (own_key, effect) = (string(&toleration["key"]), string(&toleration["effect"]));
            (own_key == key || own_key.is_empty()) && matches!(effect, "NoExecute" | "")
        })
    };
    let keys = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    .into_iter();
    let missing = keys.filter(|key| !is_tolerated(key));
    missing
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECS}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tolerations_win() {
        let keys = |spec: Value| {
            missing(&spec)
                .iter()
                .map(|one| one["key"].clone())
                .collect::<Vec<_>>()
        };
        let own = json!({"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]});
        assert_eq!(keys(own), ["node.kubernetes.io/unreachable"]);
        assert!(keys(json!({"tolerations": [{"operator": "Exists"}]})).is_empty());
        assert_eq!(keys(json!({})).len(), 2);
    }
}
