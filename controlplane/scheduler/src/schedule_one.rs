//! Pure: a pod and the nodes to one of them, or why there is none.
//!
//! Source: `pkg/scheduler/schedule_one.go` at v1.37.

use crate::{
    framework::{Code, CycleState, Diagnosis, Filters, Framework, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    profiles::Profiles,
    snapshot::Snapshot,
};

/// Clusters up to this size are searched whole.
const FEASIBLE_MIN: usize = 100;

/// The plugins, and where the last search ended.
#[derive(Debug)]
pub(crate) struct Algorithm {
    profiles: Profiles,
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

impl Algorithm {
    pub(crate) fn new(profiles: Profiles) -> Self {
        Self {
            profiles,
            next_start: 0,
        }
    }

    /// The best node for `pod`; `nominated`, where room was made for it, if that can take it.
    ///
    /// # Errors
    /// [`SchedulingFailure`], with the reasons of all nodes.
    pub(crate) fn schedule<'a>(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        nominated: Option<&str>,
        snapshot: &Snapshot<'a>,
    ) -> Result<&'a NodeInfo, SchedulingFailure> {
        let feasible = self.feasible(cycle, pod, nominated, snapshot)?;
        match feasible.as_slice() {
            [only] => Ok(only),
            _ => self.best(cycle, pod, &feasible, snapshot),
        }
    }

    fn feasible<'a>(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        nominated: Option<&str>,
        snapshot: &Snapshot<'a>,
    ) -> Result<Vec<&'a NodeInfo>, SchedulingFailure> {
        let nodes = snapshot.nodes();
        let mut diagnosis = Diagnosis::of(nodes.len());
        if nodes.is_empty() {
            return Err(SchedulingFailure::Unschedulable(diagnosis));
        }
        let framework = self.profiles.of(pod).as_ref();
        let narrowed = match framework.run_pre_filter(cycle, pod, snapshot) {
            Ok(narrowed) => narrowed,
            Err(status) if status.is_refusal() => {
                diagnosis.set_pre_filter(&status);
                return Err(SchedulingFailure::Unschedulable(diagnosis));
            }
            Err(status) => return Err(SchedulingFailure::Error(status)),
        };
        let narrows = narrowed.as_ref();
        let nominated =
            nominated.filter(|name| narrows.is_none_or(|narrowed| narrowed.names.contains(*name)));
        if let Some(node) = nominated.and_then(|name| snapshot.node(name))
            && framework.run_filter(cycle, pod, node).is_success()
            && framework.extenders.allow(pod, node)
        {
            return Ok(vec![node]);
        }
        let feasible = if let Some(narrowed) = &narrowed {
            let names = narrowed.names.iter();
            let named = names.filter_map(|name| snapshot.position(name));
            let wanted = (named, nodes.len());
            let (feasible, looked_at) =
                search(framework, cycle, pod, snapshot, wanted, &mut diagnosis)?;
            diagnosis.refused_by.extend(narrowed.by.iter().copied());
            diagnosis.add_many(narrowed.reason().into(), nodes.len() - looked_at);
            feasible
        } else {
            let start = self.next_start % nodes.len();
            let in_turn = (start..nodes.len()).chain(0..start);
            let enough = feasible_wanted(nodes.len(), framework.percent_of_nodes);
            let wanted = (in_turn, enough);
            let (feasible, looked_at) =
                search(framework, cycle, pod, snapshot, wanted, &mut diagnosis)?;
            if !feasible.is_empty() {
                self.next_start = (start + looked_at) % nodes.len();
            }
            feasible
        };
        let sifted = framework.extenders.filter(pod, feasible);
        let sifted = sifted.map_err(SchedulingFailure::Error)?;
        sifted.tell(&mut diagnosis, snapshot);
        let feasible = sifted.kept;
        if feasible.is_empty() {
            Err(SchedulingFailure::Unschedulable(diagnosis))
        } else {
            Ok(feasible)
        }
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
        let framework = self.profiles.of(pod);
        let totals = framework
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

/// Of the nodes at these positions as many as wanted that can take the pod, and how many were
/// looked at. Nothing is allocated for one that can.
fn search<'a>(
    framework: &Framework,
    cycle: &CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot<'a>,
    (positions, wanted): (impl Iterator<Item = usize>, usize),
    diagnosis: &mut Diagnosis,
) -> Result<(Vec<&'a NodeInfo>, usize), SchedulingFailure> {
    let (mut feasible, mut looked_at) = (Vec::new(), 0);
    for position in positions {
        let node = &snapshot.nodes()[position];
        looked_at += 1;
        let status = framework.run_filter(cycle, pod, node);
        match status.code() {
            Code::Success => feasible.push(node),
            Code::Error => return Err(SchedulingFailure::Error(status)),
            _ => diagnosis.add(position, &status),
        }
        if feasible.len() >= wanted {
            break;
        }
    }
    Ok((feasible, looked_at))
}

/// How many feasible nodes are enough: all of a small cluster, a shrinking share of a large one,
/// unless the profile says which.
fn feasible_wanted(nodes: usize, percent: Option<usize>) -> usize {
    if nodes <= FEASIBLE_MIN {
        return nodes.max(1);
    }
    let percent = percent.unwrap_or_else(|| 50_usize.saturating_sub(nodes / 125).max(5));
    (nodes * percent / 100).max(FEASIBLE_MIN)
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
