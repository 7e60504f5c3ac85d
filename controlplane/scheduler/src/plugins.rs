//! The plugins, named as upstream's, in the order in which they filter: the cheap and decisive ones first.

mod image_locality;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources;
mod node_unschedulable;
mod taint_toleration;

use crate::framework::{Filter, Score};

/// All filters.
pub(crate) fn filters() -> Vec<Box<dyn Filter>> {
    vec![
        Box::new(node_unschedulable::NodeUnschedulable),
        Box::new(node_name::NodeName),
        Box::new(taint_toleration::TaintToleration),
        Box::new(node_affinity::NodeAffinity),
        Box::new(node_ports::NodePorts),
        Box::new(node_resources::NodeResourcesFit),
    ]
}

/// All scores.
pub(crate) fn scores() -> Vec<Box<dyn Score>> {
    vec![
        Box::new(taint_toleration::TaintToleration),
        Box::new(node_affinity::NodeAffinity),
        Box::new(node_resources::LeastAllocated),
        Box::new(node_resources::BalancedAllocation),
        Box::new(image_locality::ImageLocality),
    ]
}
