//! Many terms about nodes, answered for all nodes at once: whoever writes a pod chooses how many.

use std::collections::{BTreeMap, HashMap};

use coracle_api::{
    scheduling::{NodeView, can_be_met, field_holds},
    selector::Operator,
};
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};

use crate::{bits::Bits, node_info::NodeInfo, postings::Postings};

/// Nodes by their labels.
pub(super) struct Nodes<'a> {
    nodes: Vec<&'a NodeInfo>,
    labels: Postings<'a>,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(nodes: impl Iterator<Item = &'a NodeInfo>) -> Self {
        let nodes: Vec<_> = nodes.collect();
        let labels = Postings::of(nodes.iter().map(|node| &node.labels));
        let by_name = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| (node.name.as_str(), number))
            .collect();
        Self {
            nodes,
            labels,
            by_name,
        }
    }

    /// Those that have all labels of `selector` and meet any of the terms.
    pub(super) fn allowed(
        &self,
        selector: &BTreeMap<String, String>,
        terms: &[NodeSelectorTerm],
    ) -> Vec<&'a NodeInfo> {
        let mut allowed = Bits::none(self.nodes.len());
        for term in terms {
            allowed.unite(&self.that_meet(term));
        }
        for (key, value) in selector {
            self.labels
                .narrow(&mut allowed, key, Operator::In, std::slice::from_ref(value));
        }
        allowed.iter().map(|number| self.nodes[number]).collect()
    }

    /// The sum of the weights of what each meets.
    pub(super) fn scores(&self, preferred: &[PreferredSchedulingTerm]) -> Vec<(&'a NodeInfo, i64)> {
        let mut scores = vec![0; self.nodes.len()];
        for one in preferred {
            self.that_meet(&one.preference)
                .iter()
                .for_each(|number| scores[number] += i64::from(one.weight));
        }
        self.nodes.iter().copied().zip(scores).collect()
    }

    /// As `coracle_api::scheduling::meets_term` says.
    fn that_meet(&self, term: &NodeSelectorTerm) -> Bits {
        if !can_be_met(term) {
            return Bits::none(self.nodes.len());
        }
        let mut meeting = Bits::all(self.nodes.len());
        for requirement in term.match_expressions.iter().flatten() {
            let values = requirement.values.as_deref().unwrap_or_default();
            match operator(&requirement.operator) {
                Some(operator) => {
                    self.labels
                        .narrow(&mut meeting, &requirement.key, operator, values)
                }
                None => return Bits::none(self.nodes.len()),
            }
        }
        for requirement in term.match_fields.iter().flatten() {
            self.narrow_by_field(&mut meeting, requirement);
        }
        meeting
    }

    fn narrow_by_field(&self, meeting: &mut Bits, requirement: &NodeSelectorRequirement) {
        let named = match requirement.values.as_deref() {
            Some([name]) if requirement.key == "metadata.name" => self.by_name.get(name.as_str()),
            _ => None,
        };
        let has = |number: usize| {
            let NodeInfo { name, labels, .. } = self.nodes[number];
            field_holds(requirement, NodeView { name, labels })
        };
        // All other nodes are one like the other.
        let name = format!(
            "{}/",
            requirement
                .values
                .iter()
                .flatten()
                .next()
                .map_or("", String::as_str)
        );
        let other = NodeView {
            name: &name,
            labels: &BTreeMap::new(),
        };
        let mut kept = if field_holds(requirement, other) {
            meeting.clone()
        } else {
            Bits::none(self.nodes.len())
        };
        if let Some(&number) = named {
            if meeting.contains(number) && has(number) {
                kept.insert(number)
            } else {
                kept.remove(number)
            }
        }
        *meeting = kept;
    }
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    })
}
