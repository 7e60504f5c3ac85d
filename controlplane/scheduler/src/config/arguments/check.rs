//! What plugins cannot be told. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};

use super::{
    Arguments, NodeAffinityArgs, PreemptionArgs, ScoringStrategy, SpreadArgs, Strategy, Weighted,
};
use crate::config::ConfigError;

impl Arguments {
    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        let wrong =
            |field: &str, why: String| Err(ConfigError::at(format!("{place}.args.{field}"), why));
        let Self {
            fit,
            balanced,
            spread,
            inter_pod_affinity,
            preemption,
            ..
        } = self;
        if let Some(why) = wrong_ratio(&fit.scoring_strategy) {
            return wrong("scoringStrategy", why);
        }
        for weighted in &fit.scoring_strategy.resources {
            if !(1..=100).contains(&weighted.weight()) {
                let Weighted { name, weight } = weighted;
                return wrong(
                    "scoringStrategy.resources",
                    format!("weight {weight} of {name} not in valid range [1-100]"),
                );
            }
        }
        if let Some(weighted) = balanced.resources.iter().find(|one| one.weight() != 1) {
            return wrong(
                "resources",
                format!("weight of {} must be 1", weighted.name),
            );
        }
        if let Some((field, why)) = wrong_places(spread, &self.node_affinity) {
            return wrong(field, why);
        }
        if !(0..=100).contains(&inter_pod_affinity.hard_pod_affinity_weight) {
            return wrong(
                "hardPodAffinityWeight",
                "not in valid range [0-100]".to_owned(),
            );
        }
        let PreemptionArgs {
            min_candidate_nodes_percentage: percent,
            min_candidate_nodes_absolute: least,
        } = *preemption;
        if percent > 100 {
            return wrong(
                "minCandidateNodesPercentage",
                "not in valid range [0, 100]".to_owned(),
            );
        }
        if percent == 0 && least == 0 {
            let why =
                "both minCandidateNodesPercentage and minCandidateNodesAbsolute cannot be zero";
            return wrong("minCandidateNodesPercentage", why.to_owned());
        }
        Ok(())
    }
}

/// Of what is said about nodes and places, with the field.
fn wrong_places(spread: &SpreadArgs, nodes: &NodeAffinityArgs) -> Option<(&'static str, String)> {
    if spread.constraints().is_none() && !spread.default_constraints.is_empty() {
        let why = "when .defaultingType is System, .defaultConstraints must be empty";
        return Some(("defaultConstraints", why.to_owned()));
    }
    if let Some(why) = spread.default_constraints.iter().find_map(wrong_constraint) {
        return Some(("defaultConstraints", why));
    }
    let places = spread.default_constraints.iter();
    let places = places.map(|one| (&one.topology_key, &one.when_unsatisfiable));
    if places.collect::<BTreeSet<_>>().len() < spread.default_constraints.len() {
        let why = "Duplicate value: a topologyKey and whenUnsatisfiable are there twice";
        return Some(("defaultConstraints", why.to_owned()));
    }
    if let Some(why) = nodes.added_affinity.as_ref().and_then(wrong_affinity) {
        return Some(("addedAffinity", why));
    }
    None
}

fn wrong_ratio(strategy: &ScoringStrategy) -> Option<String> {
    let shape = strategy.shape();
    if strategy.strategy != Strategy::RequestedToCapacityRatio {
        return None;
    }
    if shape.is_empty() {
        return Some(
            "requestedToCapacityRatio.shape: at least one point must be specified".to_owned(),
        );
    }
    if !shape
        .windows(2)
        .all(|two| two[0].utilization < two[1].utilization)
    {
        return Some(
            "requestedToCapacityRatio.shape: utilization values must be sorted in increasing order"
                .to_owned(),
        );
    }
    let mut points = shape.iter();
    let wrong = points.find(|point| {
        !(0..=100).contains(&point.utilization) || !(0..=10).contains(&point.score)
    })?;
    Some(format!(
        "requestedToCapacityRatio.shape: utilization {} not in valid range [0-100], or score {} not in [0-10]",
        wrong.utilization, wrong.score
    ))
}

/// What could be met by no node, or would turn the order of nodes round.
fn wrong_affinity(affinity: &NodeAffinity) -> Option<String> {
    let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
    let preferred = preferred.as_deref().unwrap_or_default();
    if let Some(one) = preferred
        .iter()
        .find(|one| !(1..=100).contains(&one.weight))
    {
        return Some(format!("weight {} must be in the range 1-100", one.weight));
    }
    let required = &affinity.required_during_scheduling_ignored_during_execution;
    let required = required
        .iter()
        .flat_map(|selector| &selector.node_selector_terms);
    let terms = required.chain(preferred.iter().map(|one| &one.preference));
    let mut asked = terms.flat_map(|term| {
        term.match_expressions
            .iter()
            .chain(&term.match_fields)
            .flatten()
    });
    let wrong = asked.find(|one| {
        let count = one.values.as_ref().map_or(0, Vec::len);
        match one.operator.as_str() {
            "In" | "NotIn" => count == 0,
            "Exists" | "DoesNotExist" => count > 0,
            "Gt" | "Lt" => count != 1,
            _ => true,
        }
    })?;
    Some(format!(
        "{:?} cannot be asked by operator {:?} with these values",
        wrong.key, wrong.operator
    ))
}

fn wrong_constraint(constraint: &TopologySpreadConstraint) -> Option<String> {
    let why = match constraint {
        it if it.label_selector.is_some() => {
            "labelSelector: constraint must not define a selector, as they deduced for each pod"
        }
        it if it.max_skew <= 0 => "maxSkew: not in valid range (0, inf)",
        it if it.topology_key.is_empty() => "topologyKey: Required value: can not be empty",
        it if !matches!(
            it.when_unsatisfiable.as_str(),
            "DoNotSchedule" | "ScheduleAnyway"
        ) =>
        {
            "whenUnsatisfiable: supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
        }
        _ => return None,
    };
    Some(why.to_owned())
}
