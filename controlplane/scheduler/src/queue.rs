//! Pods to place.
//!
//! ```text
//! add --> Gated, as long as PreEnqueue says no
//!   \---> Active --pop--> InFlight --placed--> (gone)
//!           ^                |-- does not fit --> Unschedulable --an event that may help--\
//!           |                \-- could not bind ------------------------------------------> Backoff
//!           \-------------------------------- back-off over --------------------------------/
//! ```
//! Pure: the caller brings the time. A parked pod knows which plugins have refused it, and an event
//! wakes it only if one of these says that it may help. Between pop and add_unschedulable nothing
//! happens: the scheduler decides without a break. Who is next of the active is the line's to say
//! (`queue/line.rs`).
//!
//! A pod may take a twentieth of the scheduler's time by itself: it backs off at least twenty times
//! as long as its last attempt took, however often it is changed meanwhile.
//!
//! Source: `pkg/scheduler/backend/queue` at v1.37 (initial back-off 1 s, at most 10 s, 5 minutes
//! unschedulable).

mod line;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::ExponentialBackoff;

use self::line::Line;
use crate::{
    framework::{ClusterEvent, Framework, PluginSet},
    pod_info::{PodInfo, PodUid},
};

const BACKOFF_INITIAL: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How many times as long as its last attempt a pod backs off at least.
const BACKOFF_FOR_TIME: u32 = 20;
/// After this long a pod that did not fit is tried again, whatever has (not) happened.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Gated,
    Active { priority: i32, sequence: u64 },
    InFlight,
    Backoff { until: Instant },
    Unschedulable { since: Instant },
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    state: State,
    attempts: u32,
    last_failure: Option<Instant>,
    /// How long the last attempt was.
    took: Duration,
    /// Who has said no in the last attempt; nobody if it failed otherwise.
    refused_by: PluginSet,
}

impl Entry {
    fn new(pod: Arc<PodInfo>) -> Self {
        let (attempts, last_failure, took) = (0, None, Duration::ZERO);
        Self {
            pod,
            state: State::InFlight,
            attempts,
            last_failure,
            took,
            refused_by: PluginSet::default(),
        }
    }
}

/// How many pods are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) active: usize,
    pub(crate) backoff: usize,
    pub(crate) unschedulable: usize,
    pub(crate) gated: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SchedulingQueue {
    framework: Arc<Framework>,
    entries: HashMap<PodUid, Entry>,
    active: Line,
    backoff: BTreeSet<(Instant, PodUid)>,
    unschedulable: BTreeSet<(Instant, PodUid)>,
    gated: usize,
}

impl SchedulingQueue {
    /// Without pods. `framework` says which may be tried, and which events help which.
    pub(crate) fn new(framework: Arc<Framework>) -> Self {
        Self {
            framework,
            entries: HashMap::new(),
            active: Line::default(),
            backoff: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            gated: 0,
        }
    }

    /// A pod to place has been seen: new, or changed. A changed pod that did not fit is tried again
    /// if that may help.
    pub(crate) fn add(&mut self, pod: impl Into<Arc<PodInfo>>, now: Instant) {
        let pod = pod.into();
        let uid = pod.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            self.entries.insert(uid.clone(), Entry::new(pod));
            self.activate(&uid);
            return;
        };
        let old = std::mem::replace(&mut entry.pod, pod);
        match entry.state {
            State::Gated => self.activate(&uid),
            State::Unschedulable { .. } => {
                let event = ClusterEvent::Updated {
                    old: &old,
                    new: &entry.pod,
                };
                if self
                    .framework
                    .is_worth_requeuing(&entry.pod, entry.refused_by, &event)
                {
                    self.back_off(&uid, now);
                }
            }
            State::Active { .. } | State::InFlight | State::Backoff { .. } => {}
        }
    }

    /// The pod is placed, gone or not ours any more.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        self.leave(uid);
        self.entries.remove(uid);
    }

    pub(crate) fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.unschedulable.len(),
            gated: self.gated,
        }
    }

    /// Takes the next pod; it stays known as in flight.
    pub(crate) fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let uid = self.active.pop()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.state = State::InFlight;
        entry.attempts = entry.attempts.saturating_add(1);
        Some(entry.pod.clone())
    }

    /// The attempt for this pod, which is in flight, has taken so long.
    pub(crate) fn charge(&mut self, uid: &PodUid, took: Duration, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        entry.took = took;
        self.active.charge(&entry.pod.namespace, took, now);
    }

    /// The pod fits nowhere, by what these plugins say: it waits for an event that may help. Says
    /// whether it is still there.
    pub(crate) fn add_unschedulable(
        &mut self,
        uid: &PodUid,
        refused_by: PluginSet,
        now: Instant,
    ) -> bool {
        let Some(entry) = self
            .entries
            .get_mut(uid)
            .filter(|entry| entry.state == State::InFlight)
        else {
            return false;
        };
        entry.last_failure = Some(now);
        entry.refused_by = refused_by;
        entry.state = State::Unschedulable { since: now };
        self.unschedulable.insert((now, uid.clone()));
        true
    }

    /// The attempt has failed, or the decision could not be carried out: again after the back-off.
    pub(crate) fn retry(&mut self, uid: &PodUid, now: Instant) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.last_failure = Some(now);
            entry.refused_by = PluginSet::default();
            self.back_off(uid, now);
        }
    }

    /// Lets those parked pods go on that `event` may help, by what the plugins say that have
    /// refused them.
    pub(crate) fn move_to_active_or_backoff(&mut self, event: &ClusterEvent<'_>, now: Instant) {
        let parked = self.unschedulable.iter().map(|(_, uid)| uid);
        let helped = parked.filter(|uid| {
            let entry = self.entries.get(*uid);
            entry.is_some_and(|entry| {
                self.framework
                    .is_worth_requeuing(&entry.pod, entry.refused_by, event)
            })
        });
        for uid in helped.cloned().collect::<Vec<_>>() {
            self.back_off(&uid, now);
        }
    }

    /// Lets pods go on whose time has come.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.active.settle(now);
        while let Some((until, uid)) = self.backoff.first().cloned() {
            if until > now {
                break;
            }
            self.activate(&uid);
        }
        while let Some((since, uid)) = self.unschedulable.first().cloned() {
            if now.saturating_duration_since(since) < UNSCHEDULABLE_MAX {
                break;
            }
            self.activate(&uid);
        }
    }

    /// When [`SchedulingQueue::flush`] has something to do next.
    pub(crate) fn next_flush(&self) -> Option<Instant> {
        let backoff = self.backoff.first().map(|(until, _)| *until);
        let stuck = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + UNSCHEDULABLE_MAX);
        backoff.into_iter().chain(stuck).min()
    }

    /// Puts the pod behind its back-off, counted from its last failure; at once if that is over.
    fn back_off(&mut self, uid: &PodUid, now: Instant) {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let wait = ExponentialBackoff::new(BACKOFF_INITIAL, BACKOFF_MAX)
            .after(entry.attempts.saturating_sub(1));
        let wait = wait
            .max(entry.took.saturating_mul(BACKOFF_FOR_TIME))
            .min(UNSCHEDULABLE_MAX);
        let until = entry.last_failure.unwrap_or(now) + wait;
        if until <= now {
            self.activate(uid);
        } else {
            entry.state = State::Backoff { until };
            self.backoff.insert((until, uid.clone()));
        }
    }

    /// Makes the pod active, unless PreEnqueue says no.
    fn activate(&mut self, uid: &PodUid) {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        if !self.framework.run_pre_enqueue(&entry.pod).is_success() {
            entry.state = State::Gated;
            self.gated += 1;
            return;
        }
        let sequence = self.active.push(&entry.pod);
        entry.state = State::Active {
            priority: entry.pod.priority,
            sequence,
        };
    }

    fn leave(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get(uid) else {
            return;
        };
        match entry.state {
            State::Gated => self.gated -= 1,
            State::Active { priority, sequence } => {
                self.active.remove(&entry.pod, priority, sequence)
            }
            State::Backoff { until } => {
                self.backoff.remove(&(until, uid.clone()));
            }
            State::Unschedulable { since } => {
                self.unschedulable.remove(&(since, uid.clone()));
            }
            State::InFlight => {}
        }
    }
}

#[cfg(test)]
mod tests;
