//! Pure: a pod and the nodes to one of them, or why there is none.
//!
//! Source: `pkg/scheduler/schedule_one.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    framework::{Code, CycleState, Framework, PluginSet, Reason, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Clusters up to this size are searched whole.
const FEASIBLE_MIN: usize = 100;

/// The plugins, and where the last search ended.
#[derive(Debug)]
pub(crate) struct Algorithm {
    framework: Arc<Framework>,
    /// Large clusters are searched in turns, so that every node is looked at in time.
    next_start: usize,
}

/// Why a pod was not placed.
#[derive(Debug)]
pub(crate) enum SchedulingFailure {
    /// It fits nowhere.
    Unschedulable(Diagnosis),
    /// A plugin has failed.
    Error(Status),
}

/// Why a pod fits nowhere:
/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`
///
/// Source: `FitError`, `Diagnosis` in `pkg/scheduler/framework/types.go` at v1.37.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    nodes_total: usize,
    /// By a PreFilter plugin, about all nodes at once.
    pre_filter: Option<String>,
    reasons: BTreeMap<Reason, usize>,
    /// What a PostFilter plugin has done about it.
    post_filter: Option<String>,
    /// All that have said no about any node.
    pub(crate) refused_by: PluginSet,
}

impl Diagnosis {
    fn add(&mut self, status: &Status) {
        self.refused_by.extend(status.plugin());
        for reason in status.reasons() {
            *self.reasons.entry(reason.clone()).or_insert(0) += 1;
        }
    }
}

impl std::fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            nodes_total,
            pre_filter,
            reasons,
            post_filter,
            ..
        } = self;
        if *nodes_total == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{nodes_total} nodes are available:")?;
        if let Some(message) = pre_filter {
            write!(f, " {message}.")?;
        } else if !reasons.is_empty() {
            // Upstream sorts the whole texts, count included.
            let mut texts: Vec<String> = reasons
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            texts.sort();
            write!(f, " {}.", texts.join(", "))?;
        }
        post_filter
            .iter()
            .try_for_each(|message| write!(f, " {message}"))
    }
}

impl Algorithm {
    pub(crate) fn new(framework: Arc<Framework>) -> Self {
        Self {
            framework,
            next_start: 0,
        }
    }

    /// The best node for `pod`.
    ///
    /// # Errors
    /// [`SchedulingFailure`], with the reasons of all nodes.
    pub(crate) fn schedule<'a>(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'a>,
    ) -> Result<&'a NodeInfo, SchedulingFailure> {
        let feasible = match self.feasible(cycle, pod, snapshot) {
            Err(SchedulingFailure::Unschedulable(diagnosis)) => {
                let post_filter = self.framework.run_post_filter(cycle, pod, snapshot);
                return Err(SchedulingFailure::Unschedulable(Diagnosis {
                    post_filter,
                    ..diagnosis
                }));
            }
            other => other?,
        };
        match feasible.as_slice() {
            [only] => Ok(only),
            _ => self.best(cycle, pod, &feasible, snapshot),
        }
    }

    fn feasible<'a>(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot<'a>,
    ) -> Result<Vec<&'a NodeInfo>, SchedulingFailure> {
        let nodes = snapshot.nodes();
        let mut diagnosis = Diagnosis {
            nodes_total: nodes.len(),
            ..Diagnosis::default()
        };
        if nodes.is_empty() {
            return Err(SchedulingFailure::Unschedulable(diagnosis));
        }
        let narrowed = match self.framework.run_pre_filter(cycle, pod, snapshot) {
            Ok(narrowed) => narrowed,
            Err(status) if status.is_refusal() => {
                diagnosis.refused_by.extend(status.plugin());
                diagnosis.pre_filter = Some(status.message());
                return Err(SchedulingFailure::Unschedulable(diagnosis));
            }
            Err(status) => return Err(SchedulingFailure::Error(status)),
        };
        let feasible = if let Some(narrowed) = &narrowed {
            let named = narrowed.names.iter().filter_map(|name| snapshot.node(name));
            let (feasible, looked_at) =
                self.search(cycle, pod, named, nodes.len(), &mut diagnosis)?;
            diagnosis.refused_by.extend(narrowed.by.iter().copied());
            if nodes.len() > looked_at {
                diagnosis
                    .reasons
                    .insert(narrowed.reason().into(), nodes.len() - looked_at);
            }
            feasible
        } else {
            let start = self.next_start % nodes.len();
            let in_turn = nodes[start..].iter().chain(&nodes[..start]);
            let wanted = feasible_wanted(nodes.len());
            let (feasible, looked_at) = self.search(cycle, pod, in_turn, wanted, &mut diagnosis)?;
            if !feasible.is_empty() {
                self.next_start = (start + looked_at) % nodes.len();
            }
            feasible
        };
        if feasible.is_empty() {
            Err(SchedulingFailure::Unschedulable(diagnosis))
        } else {
            Ok(feasible)
        }
    }

    /// As many of `nodes` as `wanted` that can take the pod, and how many were looked at. Nothing
    /// is allocated for one that can.
    fn search<'a>(
        &self,
        cycle: &CycleState,
        pod: &PodInfo,
        nodes: impl Iterator<Item = &'a NodeInfo>,
        wanted: usize,
        diagnosis: &mut Diagnosis,
    ) -> Result<(Vec<&'a NodeInfo>, usize), SchedulingFailure> {
        let (mut feasible, mut looked_at) = (Vec::new(), 0);
        for node in nodes {
            looked_at += 1;
            let status = self.framework.run_filter(cycle, pod, node);
            match status.code() {
                Code::Success => feasible.push(node),
                Code::Error => return Err(SchedulingFailure::Error(status)),
                _ => diagnosis.add(&status),
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        Ok((feasible, looked_at))
    }

    /// The node of the highest weighted sum; of equals the one with the fewest pods, then by name,
    /// so that decisions can be told in advance.
    fn best<'a>(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&'a NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Result<&'a NodeInfo, SchedulingFailure> {
        let totals = self
            .framework
            .run_score(cycle, pod, feasible, snapshot)
            .map_err(SchedulingFailure::Error)?;
        let ranked = feasible.iter().zip(totals);
        let best = ranked.max_by(|(a, a_total), (b, b_total)| {
            a_total
                .cmp(b_total)
                .then(b.pods.len().cmp(&a.pods.len()))
                .then(b.name.cmp(&a.name))
        });
        Ok(best.expect("there is a feasible node").0)
    }
}

/// How many feasible nodes are enough: all of a small cluster, a shrinking share of a large one.
fn feasible_wanted(nodes: usize) -> usize {
    if nodes <= FEASIBLE_MIN {
        return nodes.max(1);
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(FEASIBLE_MIN)
}

#[cfg(test)]
mod tests;
