//! How many nodes have each image.

use std::collections::HashMap;

use crate::node_info::NodeInfo;

/// By each of an image's names. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct Images(HashMap<String, usize>);

impl Images {
    /// The nodes that list an image under this name.
    pub(crate) fn nodes_with(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, node: &NodeInfo) {
        for name in node.images.keys() {
            match self.0.get_mut(name) {
                Some(nodes) => *nodes += 1,
                None => drop(self.0.insert(name.clone(), 1)),
            }
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeInfo) {
        for name in node.images.keys() {
            if let Some(nodes) = self.0.get_mut(name) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.0.remove(name);
                }
            }
        }
    }
}
