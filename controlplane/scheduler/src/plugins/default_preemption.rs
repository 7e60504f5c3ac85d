//! DefaultPreemption: ends pods of lower priority to make room for one that fits nowhere.
//!
//! Of each node that could take the pod without some of those on it, as few as possible are chosen,
//! and of the nodes the one where that costs least. The cache is what this is tried out in: pods
//! are taken out, the plugins asked, and all put back.
//!
//! Source: `pkg/scheduler/framework/preemption/preemption.go`,
//! `pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go` at v1.37.

mod candidate;
mod victims;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{
    config::PreemptionArgs,
    framework::{Candidate, Diagnosis, Failed, Nomination, Plugin, PluginName, PostFilter, Status},
    pod_info::PodInfo,
};

#[derive(Default)]
pub(super) struct DefaultPreemption {
    /// How many nodes are enough to choose from.
    enough: PreemptionArgs,
    /// Where the next search begins, so that not always the same nodes pay.
    next_start: AtomicUsize,
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> PluginName {
        PluginName::DefaultPreemption
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(&self, failed: &mut Failed<'_>) -> (Nomination, Status) {
        if let Err(why) = may_preempt(failed) {
            return (Nomination::Unchanged, refused(why));
        }
        match self.find(failed) {
            Ok(Candidate { node, victims, .. }) => {
                let name = failed.cache.snapshot().nodes()[node].name.clone();
                (Nomination::Node { name, victims }, Status::SUCCESS)
            }
            Err(Nobody::Fits(diagnosis)) => {
                (Nomination::Withdrawn, refused(&diagnosis.to_string()))
            }
            Err(Nobody::IsLeft) => (
                Nomination::Unchanged,
                refused("no candidate node for preemption"),
            ),
            Err(Nobody::Answers(status)) => {
                let why = format!("preemption: {}", status.message());
                (Nomination::Unchanged, Status::error(why))
            }
        }
    }
}

/// Why no room is made.
enum Nobody {
    /// Of no node the end of pods would help.
    Fits(Diagnosis),
    /// Extenders leave none of the nodes.
    IsLeft,
    /// An extender has failed.
    Answers(Status),
}

fn refused(why: &str) -> Status {
    Status::unschedulable(vec![format!("preemption: {why}").into()])
}

/// Whether the pod may have others ended, for it.
fn may_preempt(failed: &Failed<'_>) -> Result<(), &'static str> {
    if !failed.pod.preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let snapshot = failed.cache.snapshot();
    let position = failed.nominated.and_then(|name| snapshot.position(name));
    // If no end of a pod lets it have the room that is made for it, it needs other room.
    let position = position.filter(|position| failed.diagnosis.resolvable().contains(position));
    let ends =
        |placed: &PodInfo| placed.priority < failed.pod.priority && failed.cache.is_ending(placed);
    match position {
        Some(position)
            if snapshot.nodes()[position]
                .pods
                .values()
                .any(|pod| ends(pod)) =>
        {
            Err("not eligible due to a terminating pod on the nominated node.")
        }
        _ => Ok(()),
    }
}

impl DefaultPreemption {
    pub(super) fn new(enough: PreemptionArgs) -> Self {
        Self {
            enough,
            next_start: AtomicUsize::default(),
        }
    }

    /// The best of enough nodes that the extenders leave; or why there is none.
    fn find(&self, failed: &mut Failed<'_>) -> Result<Candidate, Nobody> {
        let candidates = self.candidates(failed).map_err(Nobody::Fits)?;
        let snapshot = failed.cache.snapshot();
        let mut left = failed
            .extenders
            .process_preemption(failed.pod, candidates, &snapshot)
            .map_err(Nobody::Answers)?;
        for Candidate { victims, .. } in &mut left {
            victims.sort_by_cached_key(candidate::by_importance);
        }
        candidate::cheapest(left).ok_or(Nobody::IsLeft)
    }

    /// Enough nodes; or why there is none.
    fn candidates(&self, failed: &mut Failed<'_>) -> Result<Vec<Candidate>, Diagnosis> {
        let positions = failed.diagnosis.resolvable();
        let total = failed.cache.snapshot().nodes().len();
        let mut diagnosis = Diagnosis::of(total);
        let unhelpful = total.saturating_sub(positions.len());
        diagnosis.add_many("Preemption is not helpful for scheduling".into(), unhelpful);
        if !failed
            .cache
            .snapshot()
            .priorities()
            .has_below(failed.pod.priority)
        {
            diagnosis.add_many(victims::NONE.into(), positions.len());
            return Err(diagnosis);
        }
        let percent = self.enough.min_candidate_nodes_percentage;
        let least = self.enough.min_candidate_nodes_absolute.max(1);
        let enough = (positions.len() * percent / 100).max(least);
        let start = self.next_start.load(Relaxed) % positions.len().max(1);
        let in_turn = positions[start..].iter().chain(&positions[..start]);
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut looked_at = 0;
        for &position in in_turn {
            looked_at += 1;
            match victims::select(failed, position) {
                Ok(candidate) => candidates.push(candidate),
                Err(status) => diagnosis.add(position, &status),
            }
            // Some node has to be there whose end no budget forbids.
            if candidates.len() >= enough && candidates.iter().any(|found| found.violations == 0) {
                break;
            }
        }
        self.next_start.store(start + looked_at, Relaxed);
        if candidates.is_empty() {
            return Err(diagnosis);
        }
        Ok(candidates)
    }
}

#[cfg(test)]
mod tests;
