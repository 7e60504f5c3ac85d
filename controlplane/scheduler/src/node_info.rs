//! A Node with the pods on it and the sum of what they take.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_api::{quantity::Quantity, resource_list};
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{
    pod_info::{PodInfo, PodUid},
    resources::Resources,
};

/// A node, its pods and the sum of their requests. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    /// What its software can do, as pods may need it.
    pub(crate) declared_features: Vec<String>,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: i64,
    /// Image name to size in bytes.
    pub(crate) images: HashMap<String, i64>,
    pub(crate) requested: Resources,
    pub(crate) nonzero: Resources,
    pub(crate) pods: HashMap<PodUid, Arc<PodInfo>>,
    /// As the informer holds it: whole where an extender is told of it. Of tests `None`.
    pub(crate) object: Option<Arc<Node>>,
}

impl NodeInfo {
    /// Without pods.
    pub(crate) fn new(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let allocatable = status.allocatable.unwrap_or_default();
        let images = status.images.into_iter().flatten().flat_map(|image| {
            let size = image.size_bytes.unwrap_or(0);
            image
                .names
                .into_iter()
                .flatten()
                .map(move |name| (name, size))
        });
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            declared_features: status.declared_features.unwrap_or_default(),
            allocatable: Resources::from_list(&allocatable),
            pods_max: resource_list::amounts(&allocatable)
                .get("pods")
                .map_or(0, Quantity::value),
            images: images.collect(),
            ..Self::default()
        }
    }

    /// Takes over a new state of the Node object. Returns the one before, without pods.
    pub(crate) fn replace(&mut self, node: &Node) -> Self {
        let mut old = std::mem::replace(self, Self::new(node));
        self.requested = std::mem::take(&mut old.requested);
        self.nonzero = std::mem::take(&mut old.nonzero);
        self.pods = std::mem::take(&mut old.pods);
        old
    }

    /// Counts the pod, in place of an older state of it, which it returns.
    pub(crate) fn add_pod(&mut self, pod: Arc<PodInfo>) -> Option<Arc<PodInfo>> {
        let old = self.remove_pod(&pod.uid);
        self.requested.add(&pod.requests);
        self.nonzero.add(&pod.nonzero);
        self.pods.insert(pod.uid.clone(), pod);
        old
    }

    pub(crate) fn remove_pod(&mut self, uid: &PodUid) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.requested.subtract(&pod.requests);
        self.nonzero.subtract(&pod.nonzero);
        Some(pod)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{info, node_with};

    #[test]
    fn a_node_has_room_for_as_many_pods_as_it_says_in_whatever_form() {
        for (pods, expected) in [
            (json!("110"), 110),
            (json!("2k"), 2000),
            (json!("1Ki"), 1024),
        ] {
            assert_eq!(
                info(&node_with(
                    "n",
                    json!({}),
                    json!({"allocatable": {"pods": pods}})
                ))
                .pods_max,
                expected
            );
        }
    }
}
