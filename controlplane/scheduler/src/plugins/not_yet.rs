//! Plugins of upstream's whose work nobody does here yet. What a pod requires of them holds it
//! back: placed as if it had not asked, it would start without its device.

use crate::{
    framework::{CycleState, NodeNames, Plugin, PluginName, PreFilter, Status},
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Holds back a pod that claims devices. It asks for no events: nothing in the cluster helps.
#[derive(Clone, Copy)]
pub(super) struct DynamicResources;

impl Plugin for DynamicResources {
    fn name(&self) -> PluginName {
        PluginName::DynamicResources
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        if !pod.claims_resources {
            return (None, Status::SKIP);
        }
        let reason = "this scheduler does not support resource claims yet; the pod waits instead of being placed as if it \
                      had not asked";
        (None, Status::unresolvable(vec![reason.into()]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Nodes, pod_with};

    #[test]
    fn only_a_claimed_device_holds_a_pod_back() {
        let said = "this scheduler does not support resource claims yet; the pod waits instead of being placed as if it had \
                    not asked";
        let cases: [(Value, &str); 2] = [
            (
                json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
                "",
            ),
            (json!({"resourceClaims": [{"name": "gpu"}]}), said),
        ];
        for (mut spec, expected) in cases {
            spec["containers"] = json!([]);
            let nodes = Nodes::of(&[]);
            let snapshot = nodes.snapshot();
            let pod = pod_with("p", spec.clone());
            let (_, status) =
                DynamicResources.pre_filter(&mut CycleState::default(), &pod, &snapshot);
            assert_eq!(status.message(), expected, "{spec}");
        }
    }
}
