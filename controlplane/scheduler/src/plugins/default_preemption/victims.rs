//! The fewest pods of a node that have to end for another to fit there.
//!
//! Source: `SelectVictimsOnNode` in
//! `pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use super::candidate::by_importance;
use crate::{
    cache::Lifted,
    framework::{Candidate, Failed, Status},
    pod_info::{PodInfo, PodUid},
};

/// Nobody on the node is of a lower priority, or the end of those who are changes nothing.
pub(super) const NONE: &str = "No preemption victims found for incoming pod";

/// Whom the node at `position` would have to do without; or why that does not help.
pub(super) fn select(failed: &mut Failed<'_>, position: usize) -> Result<Candidate, Status> {
    let on_node = failed.cache.snapshot().nodes()[position].pods.values();
    let lower = on_node.filter(|placed| placed.priority < failed.pod.priority);
    let mut lower: Vec<Arc<PodInfo>> = lower.cloned().collect();
    if lower.is_empty() {
        return Err(Status::unresolvable(vec![NONE.into()]));
    }
    lower.sort_by_cached_key(by_importance);
    let mut trial = Trial::begin(failed, position);
    lower.iter().for_each(|pod| trial.take_out(pod));
    let fits = trial.fits();
    let found = fits.is_success().then(|| trial.reprieve(&lower));
    trial.end();
    match found {
        // It is not the plugins that refuse the node, but an extender.
        Some((victims, _)) if victims.is_empty() => Err(Status::unresolvable(vec![NONE.into()])),
        Some((victims, violations)) => Ok(Candidate {
            node: position,
            victims,
            violations,
        }),
        None => Err(fits),
    }
}

/// A node without some of its pods.
struct Trial<'a, 'b> {
    failed: &'a mut Failed<'b>,
    position: usize,
    /// Whether more than the node itself has to be without them.
    everywhere: bool,
    out: HashMap<PodUid, (Arc<PodInfo>, Lifted)>,
}

impl<'a, 'b> Trial<'a, 'b> {
    fn begin(failed: &'a mut Failed<'b>, position: usize) -> Self {
        let everywhere =
            failed.diagnosis.is_of_pre_filter() || failed.filters.depend_on_pods(failed.cycle);
        let out = HashMap::new();
        Self {
            failed,
            position,
            everywhere,
            out,
        }
    }

    fn take_out(&mut self, pod: &Arc<PodInfo>) {
        let lifted = if self.everywhere {
            self.failed.cache.lift_these([&pod.uid])
        } else {
            self.failed.cache.take_off(self.position, pod);
            Lifted::default()
        };
        self.out.insert(pod.uid.clone(), (pod.clone(), lifted));
    }

    fn put_back(&mut self, uid: &PodUid) {
        let Some((pod, lifted)) = self.out.remove(uid) else {
            return;
        };
        if self.everywhere {
            self.failed.cache.put_back(lifted);
        } else {
            self.failed.cache.put_on(self.position, pod);
        }
    }

    fn fits(&self) -> Status {
        let Failed {
            filters,
            cycle,
            pod,
            cache,
            ..
        } = &*self.failed;
        let snapshot = cache.snapshot();
        let node = &snapshot.nodes()[self.position];
        if !self.everywhere {
            return filters.run_filter(cycle, pod, node);
        }
        filters.run_filter_anew(pod, node, &snapshot)
    }

    /// Lets as many stay as the pod leaves room for, those first whom a budget protects. Who is
    /// left, the most important first, and how many of them are protected.
    fn reprieve(&mut self, lower: &[Arc<PodInfo>]) -> (Vec<Arc<PodInfo>>, usize) {
        let (protected, others) = self.failed.cache.snapshot().budgets().split(lower);
        let mut must_end = |pods: Vec<Arc<PodInfo>>| -> Vec<Arc<PodInfo>> {
            let ends = pods.into_iter().filter(|pod| {
                self.put_back(&pod.uid);
                let fits = self.fits().is_success();
                if !fits {
                    self.take_out(pod);
                }
                !fits
            });
            ends.collect()
        };
        let mut victims = must_end(protected);
        let violations = victims.len();
        victims.extend(must_end(others));
        victims.sort_by_cached_key(by_importance);
        (victims, violations)
    }

    /// All are where they were.
    fn end(mut self) {
        for uid in self.out.keys().cloned().collect::<Vec<_>>() {
            self.put_back(&uid);
        }
    }
}
