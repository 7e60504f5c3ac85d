//! The pod of a DaemonSet on one node. Pure.
//!
//! Source: `pkg/controller/daemon/util/daemonset_util.go` (CreatePodTemplate,
//! ReplaceDaemonSetPodNodeNameNodeAffinity, IsPodUpdated) at v1.37.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{self, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec},
};
use kube::api::ObjectMeta;

use super::node::tolerations;
use crate::{history::REVISION_HASH, owner::controller_reference, pod::Pod, pod_state};

/// Counts the templates of a DaemonSet; from before there were revisions, and still there.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The same on its pods.
const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The node that a pod is on, or that it is for. Empty if it is for none in particular.
pub(super) fn node_of(pod: &Pod) -> &str {
    let named = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.named_node.as_deref());
    match pod_state::node_name(pod) {
        "" => named.unwrap_or_default(),
        node => node,
    }
}

/// Whether a pod is of the template as it is.
pub(super) fn is_updated(ds: &DaemonSet, hash: &str, pod: &Pod) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref()?.get(key);
    let generation = generation(ds);
    label(REVISION_HASH).is_some_and(|of| of == hash)
        || generation.is_some() && label(POD_TEMPLATE_GENERATION) == generation
}

fn generation(ds: &DaemonSet) -> Option<&String> {
    ds.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION)
}

/// A pod of the revision `hash` for `node`. The scheduler binds it, and to no other node.
pub(super) fn pod_for(ds: &DaemonSet, hash: &str, node: &str) -> v1::Pod {
    let template = ds.spec.template.clone();
    let of_template = template.metadata.unwrap_or_default();
    let mut labels = of_template.labels.unwrap_or_default();
    labels.insert(REVISION_HASH.into(), hash.into());
    if let Some(generation) = generation(ds) {
        labels.insert(POD_TEMPLATE_GENERATION.into(), generation.clone());
    }
    let mut spec = template.spec.unwrap_or_default();
    spec.tolerations = Some(tolerations(&spec));
    require_node(&mut spec, node);
    v1::Pod {
        metadata: ObjectMeta {
            namespace: ds.metadata.namespace.clone(),
            generate_name: ds.metadata.name.as_ref().map(|name| format!("{name}-")),
            labels: Some(labels),
            annotations: of_template.annotations,
            finalizers: of_template.finalizers,
            owner_references: Some(vec![controller_reference(ds)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// This node alone is what it requires: that the node is one of the DaemonSet's is known already.
fn require_node(spec: &mut PodSpec, node: &str) {
    let affinity = spec.affinity.get_or_insert_default();
    let of_node = affinity.node_affinity.get_or_insert_default();
    let name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    of_node.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![name]),
        }],
    });
}
