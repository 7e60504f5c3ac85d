//! Pods to place.
//!
//! ```text
//! add --> Gated, as long as PreEnqueue says no, or others are being ended for it
//!   \---> Active --pop--> InFlight --placed--> (gone)
//!           ^                |-- does not fit --> Unschedulable --an event that may help--\
//!           |                \-- could not bind ------------------------------------------> Backoff
//!           \-------------------------------- back-off over --------------------------------/|
//!                                   InFlight <--pop, while nobody is active------------------/
//! ```
//! Pure: the caller brings the time. A parked pod knows which plugins have refused it, and an event
//! wakes it only if one of these says that it may help. Between pop and add_unschedulable nothing
//! happens: the scheduler decides without a break. Who is next of the active is the line's to say
//! (`queue/line.rs`), and of those that back off the back-off queue's (`queue/backoff.rs`).
//!
//! A pod may take a twentieth of the scheduler's time by itself: it backs off at least twenty times
//! as long as its last attempt took, however often it is changed meanwhile. Back-offs are waited
//! out by pods whose attempt failed, or could not be carried out, by pods that ask for much, whom
//! events wake unasked, and by those whose namespace has taken more than its share of time.
//!
//! Source: `pkg/scheduler/backend/queue` at v1.37 (initial back-off 1 s, at most 10 s, 5 minutes
//! unschedulable).

mod backoff;
mod line;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::ExponentialBackoff;

use self::{
    backoff::{Backoff, BackoffQueue},
    line::Line,
};
use crate::{
    framework::{ClusterEvent, PluginSet},
    pod_info::{PodInfo, PodUid},
    profiles::Profiles,
};

/// How many times as long as its last attempt a pod backs off at least.
const BACKOFF_FOR_TIME: u32 = 20;
/// After this long a pod that did not fit is tried again, whatever has (not) happened.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Gated,
    Active { priority: i32, sequence: u64 },
    InFlight,
    Backoff(Backoff),
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
    /// The last attempt failed, or its decision could not be carried out.
    is_error: bool,
    /// Others are being ended to make room for it: until that is done it is not tried.
    is_held: bool,
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
            is_error: false,
            is_held: false,
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

/// Pods that wait to be placed, each in one of the states above.
#[derive(Debug)]
pub(crate) struct SchedulingQueue {
    profiles: Profiles,
    /// Of pods whose attempt failed.
    waits: ExponentialBackoff,
    entries: HashMap<PodUid, Entry>,
    active: Line,
    backoff: BackoffQueue,
    unschedulable: BTreeSet<(Instant, PodUid)>,
    gated: usize,
}

impl SchedulingQueue {
    /// Without pods. `profiles` say which may be tried, and which events help which; `waits` is how
    /// long those back off that did not fit.
    pub(crate) fn new(profiles: Profiles, waits: ExponentialBackoff, now: Instant) -> Self {
        Self {
            profiles,
            waits,
            entries: HashMap::new(),
            active: Line::default(),
            backoff: BackoffQueue::new(now),
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
                let framework = self.profiles.of(&entry.pod);
                if framework.is_worth_requeuing(&entry.pod, entry.refused_by, &event) {
                    self.back_off(&uid, now);
                }
            }
            State::Active { .. } | State::InFlight | State::Backoff(_) => {}
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

    /// Takes the next pod; it stays known as in flight. Without active ones, one that backs off.
    pub(crate) fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let uid = self.active.pop().or_else(|| {
            self.backoff.pop(|uid| {
                let entry = self.entries.get(uid);
                entry.is_some_and(|entry| !self.active.owes(&entry.pod.namespace))
            })
        })?;
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
        entry.is_error = false;
        entry.state = State::Unschedulable { since: now };
        self.unschedulable.insert((now, uid.clone()));
        true
    }

    /// The attempt has failed, or the decision could not be carried out: again after the back-off.
    /// Whether the pod is still here.
    pub(crate) fn retry(&mut self, uid: &PodUid, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(uid) else {
            return false;
        };
        entry.last_failure = Some(now);
        entry.refused_by = PluginSet::default();
        entry.is_error = true;
        self.back_off(uid, now);
        true
    }

    /// The pod is not tried until [`SchedulingQueue::release`].
    pub(crate) fn hold(&mut self, uid: &PodUid) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.is_held = true;
        }
    }

    /// The pod may be tried again, and is if an event has helped it meanwhile.
    pub(crate) fn release(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        entry.is_held = false;
        if entry.state == State::Gated {
            self.activate(uid);
        }
    }

    /// Lets the pod be tried at once, if it is parked or backs off.
    pub(crate) fn try_now(&mut self, uid: &PodUid) {
        let state = self.entries.get(uid).map(|entry| entry.state);
        if matches!(state, Some(State::Unschedulable { .. } | State::Backoff(_))) {
            self.activate(uid);
        }
    }

    /// Lets those parked pods go on that `event` may help, by what the plugins say that have
    /// refused them.
    pub(crate) fn move_to_active_or_backoff(&mut self, event: &ClusterEvent<'_>, now: Instant) {
        let parked = self.unschedulable.iter().map(|(_, uid)| uid);
        let helped = parked.filter(|uid| {
            let entry = self.entries.get(*uid);
            entry.is_some_and(|entry| {
                let framework = self.profiles.of(&entry.pod);
                framework.is_worth_requeuing(&entry.pod, entry.refused_by, event)
            })
        });
        for uid in helped.cloned().collect::<Vec<_>>() {
            self.back_off(&uid, now);
        }
    }

    /// Lets pods go on whose time has come.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.active.settle(now);
        for uid in self.backoff.pop_completed(now) {
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
        let backoff = self.backoff.next_completed();
        // Who has paid may go before its time again.
        let paid = self.active.next_settled();
        let paid = paid.filter(|_| self.backoff.has_early());
        let stuck = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + UNSCHEDULABLE_MAX);
        backoff.into_iter().chain(paid).chain(stuck).min()
    }

    /// Puts the pod behind its back-off, counted from its last failure; at once if that is over.
    fn back_off(&mut self, uid: &PodUid, now: Instant) {
        self.leave(uid);
        if !self.may_be_tried(uid) {
            return;
        }
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let failed = entry.last_failure.unwrap_or(now);
        let wait = self.waits.after(entry.attempts.saturating_sub(1));
        let for_time = entry
            .took
            .saturating_mul(BACKOFF_FOR_TIME)
            .min(UNSCHEDULABLE_MAX);
        let until = failed + wait.max(for_time);
        if until <= now {
            return self.activate(uid);
        }
        let early_from = if entry.is_error || entry.pod.asks_much {
            until
        } else {
            failed + for_time
        };
        let backoff = Backoff {
            priority: entry.pod.priority,
            failed,
            early_from,
            until,
        };
        entry.state = State::Backoff(backoff);
        self.backoff.push(uid, backoff, now);
    }

    /// Makes the pod active, unless PreEnqueue says no.
    fn activate(&mut self, uid: &PodUid) {
        self.leave(uid);
        if !self.may_be_tried(uid) {
            return;
        }
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let sequence = self.active.push(&entry.pod);
        entry.state = State::Active {
            priority: entry.pod.priority,
            sequence,
        };
    }

    /// Asks PreEnqueue about a pod that is nowhere; if that says no, it is gated.
    fn may_be_tried(&mut self, uid: &PodUid) -> bool {
        let Some(entry) = self.entries.get_mut(uid) else {
            return false;
        };
        let framework = self.profiles.of(&entry.pod);
        let may_be = !entry.is_held && framework.run_pre_enqueue(&entry.pod).is_success();
        if !may_be {
            entry.state = State::Gated;
            self.gated += 1;
        }
        may_be
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
            State::Backoff(backoff) => self.backoff.remove(uid, &backoff),
            State::Unschedulable { since } => {
                self.unschedulable.remove(&(since, uid.clone()));
            }
            State::InFlight => {}
        }
    }
}

#[cfg(test)]
mod tests;
