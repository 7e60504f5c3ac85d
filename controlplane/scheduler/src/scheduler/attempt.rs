//! One pod's way to a decision: where it goes, or what is to be done about it that it fits nowhere.
//!
//! Pods for whom room is being made count where that is, for everybody who is not above them. So
//! that nothing depends on one that may yet go elsewhere, what only fits because of them does not
//! fit.

use std::{sync::Arc, time::Instant};

use coracle_telemetry::span;

use super::{Decision, Scheduler};
use crate::{
    framework::{ClusterEvent, CycleState, Diagnosis, Failed, Filters, Nomination},
    pod_info::PodInfo,
    schedule_one::SchedulingFailure,
};

impl Scheduler {
    /// The scheduling cycle of one pod, up to its binding, which runs beside the next.
    pub(super) fn decide_one(&mut self, pod: Arc<PodInfo>) {
        let (started, mut cycle) = (Instant::now(), CycleState::default());
        let nominated = self.cache.nomination(&pod.uid).map(str::to_owned);
        let lifted = self.cache.lift(&pod);
        let span = span!("Scheduling", pod = pod.key(), uid = &*pod.uid.0).entered();
        let decided = self.place(&mut cycle, &pod, nominated.as_deref());
        let (decided, nomination) = match decided {
            Err(SchedulingFailure::Unschedulable(diagnosis)) => {
                let (diagnosis, nomination) =
                    self.make_room(&cycle, &pod, nominated.as_deref(), diagnosis);
                (Err(SchedulingFailure::Unschedulable(diagnosis)), nomination)
            }
            other => (other, Nomination::default()),
        };
        drop(span);
        let took = started.elapsed();
        self.queue.charge(&pod.uid, took, started + took);
        self.metrics
            .decided(&pod.scheduler_name, took, decided.is_ok());
        if let Ok(node) = &decided {
            self.cache.assume(pod.clone(), node);
        }
        self.cache.put_back(lifted);
        if decided
            .as_ref()
            .is_ok_and(|node| nominated.as_ref().is_some_and(|kept| kept != node))
        {
            // What had been kept for it is free.
            let event = ClusterEvent::AssignedPodDeleted(&pod);
            self.queue.move_to_active_or_backoff(&event, started + took);
        }
        match decided {
            Ok(node) => {
                self.reports.forget(&pod.uid);
                self.start_binding(Decision {
                    pod,
                    node,
                    started,
                    cycle,
                });
            }
            Err(SchedulingFailure::Unschedulable(diagnosis)) => {
                let preempts = self.carry_out(&pod, nomination);
                let uid = pod.uid.clone();
                self.give_up(pod, diagnosis.refused_by, diagnosis.to_string());
                if preempts {
                    self.queue.hold(&uid);
                }
            }
            Err(SchedulingFailure::Error(status)) => self.attempt_failed(pod, &status),
        }
    }

    /// The node for `pod`.
    fn place(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        nominated: Option<&str>,
    ) -> Result<String, SchedulingFailure> {
        let node = self.schedule(cycle, pod, nominated)?;
        if !pod.leans_on_others() || !self.cache.has_nominated() {
            return Ok(node);
        }
        let without = self.cache.lift_all();
        if self.stands(pod, &node).is_ok() {
            self.cache.put_back(without);
            return Ok(node);
        }
        *cycle = CycleState::default();
        let other = self.schedule(cycle, pod, nominated);
        self.cache.put_back(without);
        let node = other?;
        self.stands(pod, &node)
            .map(|()| node)
            .map_err(SchedulingFailure::Unschedulable)
    }

    fn schedule(
        &mut self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        nominated: Option<&str>,
    ) -> Result<String, SchedulingFailure> {
        let snapshot = self.cache.snapshot();
        let node = self.algorithm.schedule(cycle, pod, nominated, &snapshot)?;
        Ok(node.name.clone())
    }

    /// Whether the pod fits on that node, by what can be seen now.
    fn stands(&self, pod: &PodInfo, node: &str) -> Result<(), Diagnosis> {
        let snapshot = self.cache.snapshot();
        let mut diagnosis = Diagnosis::of(snapshot.nodes().len());
        let Some(position) = snapshot.position(node) else {
            return Err(diagnosis);
        };
        let node = &snapshot.nodes()[position];
        let status = self.profiles.of(pod).run_filter_anew(pod, node, &snapshot);
        if status.is_success() {
            return Ok(());
        }
        diagnosis.add(position, &status);
        Err(diagnosis)
    }

    /// What the plugins say is to be done.
    fn make_room(
        &mut self,
        cycle: &CycleState,
        pod: &PodInfo,
        nominated: Option<&str>,
        mut diagnosis: Diagnosis,
    ) -> (Diagnosis, Nomination) {
        let framework = self.profiles.of(pod);
        if !framework.post_filter.is_empty() {
            self.metrics.preemption_tried();
        }
        let (nomination, message) = framework.run_post_filter(&mut Failed {
            filters: &**framework,
            extenders: &framework.extenders,
            cycle,
            pod,
            diagnosis: &diagnosis,
            nominated,
            cache: &mut self.cache,
        });
        diagnosis.set_post_filter(message);
        (diagnosis, nomination)
    }

    /// Says whether others are being ended for the pod.
    fn carry_out(&mut self, pod: &Arc<PodInfo>, nomination: Nomination) -> bool {
        match nomination {
            Nomination::Unchanged => false,
            Nomination::Withdrawn => {
                self.withdraw(&pod.uid);
                false
            }
            Nomination::Node { name, victims } => {
                // They may not fit there any more, and better look elsewhere now than later.
                for below in self.cache.nominated_below(pod.priority, &name) {
                    self.cache.withdraw(&below);
                    self.reports.nominated(&below, None, Instant::now());
                    self.queue.try_now(&below);
                }
                if self.cache.nomination(&pod.uid) != Some(&*name) {
                    self.withdraw(&pod.uid);
                }
                self.cache.nominate(pod.clone(), &name);
                self.metrics.preempted(victims.len());
                for victim in victims.iter().filter(|victim| !victim.terminating) {
                    self.cache.set_ending(&victim.uid, true);
                }
                self.evictions.begin(pod, &name, victims);
                true
            }
        }
    }
}
