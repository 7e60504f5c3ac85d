//! All nodes, as they stand for one attempt, and the labels of namespaces.
//!
//! A view into the cache, not a copy: the scheduler's one task decides without a break, so nothing changes under it.

use std::collections::HashMap;

use crate::{namespaces::Namespaces, node_info::NodeInfo};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot<'a> {
    nodes: &'a [NodeInfo],
    index: &'a HashMap<String, usize>,
    namespaces: &'a Namespaces,
}

impl<'a> Snapshot<'a> {
    /// `index` says where in `nodes` each is, by name.
    pub(crate) fn new(nodes: &'a [NodeInfo], index: &'a HashMap<String, usize>, namespaces: &'a Namespaces) -> Self {
        Self { nodes, index, namespaces }
    }

    /// In a stable order, so that the search for feasible nodes can go round.
    pub(crate) fn nodes(&self) -> &'a [NodeInfo] {
        self.nodes
    }

    pub(crate) fn namespaces(&self) -> &'a Namespaces {
        self.namespaces
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'a NodeInfo> {
        self.index.get(name).map(|&position| &self.nodes[position])
    }
}
