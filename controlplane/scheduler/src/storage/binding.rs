//! Pods whose volumes are being bound, and what becomes of them and their nodes meanwhile. Whoever
//! waits for the volumes has to know.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{node_info::NodeInfo, pod_info::PodUid};

/// The pods, from the moment in which their volumes are reserved.
#[derive(Debug, Default)]
pub(crate) struct Bindings(HashMap<PodUid, Binding>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) node: String,
    /// Of the node; `None` if that is gone.
    pub(crate) labels: Option<Arc<BTreeMap<String, String>>>,
    pub(crate) is_pod_gone: bool,
}

impl Bindings {
    /// The volumes of `pod` are about to be bound for `node`.
    pub(crate) fn begin(&mut self, pod: &PodUid, node: &NodeInfo) {
        let binding = Binding {
            node: node.name.clone(),
            labels: Some(Arc::new(node.labels.clone())),
            is_pod_gone: false,
        };
        self.0.insert(pod.clone(), binding);
    }

    /// They are bound, or will not be.
    pub(crate) fn end(&mut self, pod: &PodUid) {
        self.0.remove(pod);
    }

    pub(crate) fn get(&self, pod: &PodUid) -> Option<&Binding> {
        self.0.get(pod)
    }

    /// Says whether somebody has to know.
    pub(crate) fn pod_gone(&mut self, pod: &PodUid) -> bool {
        let binding = self.0.get_mut(pod);
        binding.map(|binding| binding.is_pod_gone = true).is_some()
    }

    /// A node has other labels now, or is gone. Says whether somebody has to know.
    pub(crate) fn node_changed(&mut self, node: &str, now: Option<&NodeInfo>) -> bool {
        let mut on_node = self
            .0
            .values_mut()
            .filter(|binding| binding.node == node)
            .peekable();
        if on_node.peek().is_none() {
            return false;
        }
        let labels = now.map(|node| Arc::new(node.labels.clone()));
        on_node.for_each(|binding| binding.labels.clone_from(&labels));
        true
    }
}
