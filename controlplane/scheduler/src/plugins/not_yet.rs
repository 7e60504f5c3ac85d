//! Plugins of upstream's whose work nobody does here yet. What a pod requires of them holds it
//! back: placed as if it had not asked, a database would start without its disk.

use crate::{
    framework::{CycleState, NodeNames, Plugin, PluginName, PreFilter, Status},
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Holds back a pod that requires what one of these plugins would do. It asks for no events:
/// nothing in the cluster helps.
#[derive(Clone, Copy)]
pub(super) struct NotYet {
    name: PluginName,
    /// What the pod requires, in words that follow "does not support".
    required: fn(&PodInfo) -> Vec<&'static str>,
}

impl NotYet {
    pub(super) const VOLUME_BINDING: Self = Self {
        name: PluginName::VolumeBinding,
        required: |pod| {
            told([
                (pod.claims.volumes, "persistent volume claims"),
                (pod.claims.ephemeral_volumes, "ephemeral volume claims"),
            ])
        },
    };
    pub(super) const DYNAMIC_RESOURCES: Self = Self {
        name: PluginName::DynamicResources,
        required: |pod| told([(pod.claims.resources, "resource claims")]),
    };
}

impl Plugin for NotYet {
    fn name(&self) -> PluginName {
        self.name
    }
}

impl PreFilter for NotYet {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let required = (self.required)(pod);
        if required.is_empty() {
            return (None, Status::SKIP);
        }
        let reason = format!(
            "this scheduler does not support {} yet; the pod waits instead of being placed as if it had not asked",
            required.join(", ")
        );
        (None, Status::unresolvable(vec![reason.into()]))
    }
}

fn told<const N: usize>(table: [(bool, &'static str); N]) -> Vec<&'static str> {
    table
        .into_iter()
        .filter(|(asked, _)| *asked)
        .map(|(_, what)| what)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Nodes, pod_with};

    #[test]
    fn only_what_is_required_holds_a_pod_back() {
        let volumes = NotYet::VOLUME_BINDING;
        let cases: [(Value, NotYet, &str); 4] = [
            (json!({}), volumes, ""),
            (
                json!({"resourceClaims": [{"name": "gpu"}]}),
                NotYet::DYNAMIC_RESOURCES,
                "resource claims",
            ),
            (
                json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
                volumes,
                "",
            ),
            (
                json!({"volumes": [
                    {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w", "ephemeral": {}},
                ]}),
                volumes,
                "persistent volume claims, ephemeral volume claims",
            ),
        ];
        for (mut spec, plugin, expected) in cases {
            spec["containers"] = json!([]);
            let nodes = Nodes::of(&[]);
            let snapshot = nodes.snapshot();
            let (_, status) = plugin.pre_filter(
                &mut CycleState::default(),
                &pod_with("p", spec.clone()),
                &snapshot,
            );
            let message = match expected {
                "" => String::new(),
                _ => format!(
                    "this scheduler does not support {expected} yet; the pod waits instead of being placed as if it had \
                     not asked"
                ),
            };
            assert_eq!(status.message(), message, "{spec}");
        }
    }
}
