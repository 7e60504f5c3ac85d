//! Pods to place.
//!
//! ```text
//! add --> Active --pop--> InFlight --placed--> (gone)
//!           ^                |-- does not fit --> Unschedulable --something changed--\
//!           |                \-- could not bind -----------------------------------> Backoff
//!           \-------------------------------- back-off over ---------------------------/
//! ```
//! Pure: the caller brings the time. Something that changes while a pod is in flight counts for it, too.
//!
//! Source: `pkg/scheduler/backend/queue` at v1.37 (initial back-off 1 s, at most 10 s, 5 minutes unschedulable).

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::Doubling;

use crate::pod_info::{PodInfo, PodUid};

const BACKOFF_INITIAL: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// After this long a pod that did not fit is tried again, whatever has (not) happened.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active {
        sequence: u64,
    },
    /// `moves` as it was when the pod was popped.
    InFlight {
        moves: u64,
    },
    Backoff {
        until: Instant,
    },
    Unschedulable {
        since: Instant,
    },
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    state: State,
    attempts: u32,
    last_failure: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SchedulingQueue {
    entries: HashMap<PodUid, Entry>,
    /// Highest priority first, then first come.
    active: BTreeSet<(Reverse<i32>, u64, PodUid)>,
    backoff: BTreeSet<(Instant, PodUid)>,
    unschedulable: BTreeSet<(Instant, PodUid)>,
    sequence: u64,
    /// Counts the changes that may help unschedulable pods.
    moves: u64,
}

impl SchedulingQueue {
    /// A pod to place has been seen: new, or changed. A changed pod that did not fit is tried again.
    pub(crate) fn add(&mut self, pod: impl Into<Arc<PodInfo>>) {
        let pod = pod.into();
        let uid = pod.uid.clone();
        match self.entries.get_mut(&uid) {
            None => {
                let state = State::Unschedulable { since: Instant::now() };
                self.entries.insert(uid.clone(), Entry { pod, state, attempts: 0, last_failure: None });
                self.activate(&uid);
            }
            Some(entry) => {
                let changed = places_differently(&entry.pod, &pod);
                entry.pod = pod;
                if changed && matches!(entry.state, State::Unschedulable { .. }) {
                    self.activate(&uid);
                }
            }
        }
    }

    /// The pod is placed, gone or not ours any more.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        self.leave(uid);
        self.entries.remove(uid);
    }

    /// The UIDs of all pods here, for comparing with a fresh list.
    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.entries.keys().cloned().collect()
    }

    /// How many pods are active, backing off, unschedulable.
    pub(crate) fn lengths(&self) -> [usize; 3] {
        [self.active.len(), self.backoff.len(), self.unschedulable.len()]
    }

    /// Takes the next pod; it stays known as in flight.
    pub(crate) fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let (_, _, uid) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.state = State::InFlight { moves: self.moves };
        entry.attempts = entry.attempts.saturating_add(1);
        Some(entry.pod.clone())
    }

    /// The pod fits nowhere: it waits for a change; if one came while it was in flight, only for its back-off.
    pub(crate) fn park(&mut self, uid: &PodUid, now: Instant) {
        let moves = self.moves;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.last_failure = Some(now);
        if entry.state == (State::InFlight { moves }) {
            entry.state = State::Unschedulable { since: now };
            self.unschedulable.insert((now, uid.clone()));
        } else {
            self.back_off(uid, now);
        }
    }

    /// The decision could not be carried out: again after the back-off.
    pub(crate) fn retry(&mut self, uid: &PodUid, now: Instant) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.last_failure = Some(now);
            self.back_off(uid, now);
        }
    }

    /// Something has changed that may let unschedulable pods fit.
    pub(crate) fn move_all(&mut self, now: Instant) {
        self.moves += 1;
        for (_, uid) in std::mem::take(&mut self.unschedulable) {
            self.back_off(&uid, now);
        }
    }

    /// Lets pods go on whose time has come.
    pub(crate) fn flush(&mut self, now: Instant) {
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
        let stuck = self.unschedulable.first().map(|(since, _)| *since + UNSCHEDULABLE_MAX);
        backoff.into_iter().chain(stuck).min()
    }

    /// Puts the pod behind its back-off, counted from its last failure; at once if that is over.
    fn back_off(&mut self, uid: &PodUid, now: Instant) {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let wait = Doubling::new(BACKOFF_INITIAL, BACKOFF_MAX).after(entry.attempts.saturating_sub(1));
        let until = entry.last_failure.unwrap_or(now) + wait;
        if until <= now {
            self.activate(uid);
        } else {
            entry.state = State::Backoff { until };
            self.backoff.insert((until, uid.clone()));
        }
    }

    fn activate(&mut self, uid: &PodUid) {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        self.sequence += 1;
        entry.state = State::Active { sequence: self.sequence };
        self.active.insert((Reverse(entry.pod.priority), self.sequence, uid.clone()));
    }

    fn leave(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.state {
            State::Active { sequence } => {
                // The priority may have been changed with the pod: look for the sequence, which is unique.
                self.active.retain(|(_, known, _)| *known != sequence);
            }
            State::Backoff { until } => drop(self.backoff.remove(&(until, uid.clone()))),
            State::Unschedulable { since } => drop(self.unschedulable.remove(&(since, uid.clone()))),
            State::InFlight { .. } => {}
        }
    }
}

/// Whether a new state of a pod may fit where the old one did not.
fn places_differently(old: &PodInfo, new: &PodInfo) -> bool {
    old.requests != new.requests
        || old.tolerations != new.tolerations
        || old.node_selector != new.node_selector
        || old.affinity != new.affinity
        || old.host_ports != new.host_ports
        || old.unsupported != new.unsupported
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::testing::pod;

    fn popped(queue: &mut SchedulingQueue) -> Option<String> {
        queue.pop().map(|pod| pod.name.clone())
    }

    #[test]
    fn higher_priority_goes_first_then_first_come() {
        let mut queue = SchedulingQueue::default();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            let mut pod = pod(name, "1");
            pod.priority = priority;
            queue.add(pod);
        }
        let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue)).collect();
        assert_eq!(order, ["b", "d", "a", "c"]);
    }

    #[test]
    fn a_parked_pod_comes_back_after_a_change_and_its_backoff() {
        let mut queue = SchedulingQueue::default();
        let start = Instant::now();
        queue.add(pod("a", "1"));
        let parked = queue.pop().expect("a").uid.clone();
        queue.park(&parked, start);
        queue.flush(start + Duration::from_secs(60));
        assert_eq!(popped(&mut queue), None, "nothing has changed");
        queue.move_all(start + Duration::from_millis(500));
        assert_eq!(popped(&mut queue), None, "still backing off");
        assert_eq!(queue.next_flush(), Some(start + BACKOFF_INITIAL));
        queue.flush(start + BACKOFF_INITIAL);
        assert_eq!(popped(&mut queue).as_deref(), Some("a"));
    }

    #[test]
    fn a_change_during_the_attempt_is_not_lost() {
        let mut queue = SchedulingQueue::default();
        let start = Instant::now();
        queue.add(pod("a", "1"));
        let uid = queue.pop().expect("a").uid.clone();
        queue.move_all(start);
        queue.park(&uid, start);
        queue.flush(start + BACKOFF_INITIAL);
        assert_eq!(popped(&mut queue).as_deref(), Some("a"));
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let mut queue = SchedulingQueue::default();
        let mut now = Instant::now();
        queue.add(pod("a", "1"));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let uid = queue.pop().expect("a").uid.clone();
            queue.retry(&uid, now);
            let next = queue.next_flush().expect("backing off");
            waits.push((next - now).as_secs());
            now = next;
            queue.flush(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn a_pod_that_asks_for_less_is_tried_at_once() {
        let mut queue = SchedulingQueue::default();
        queue.add(pod("a", "8"));
        let uid = queue.pop().expect("a").uid.clone();
        queue.park(&uid, Instant::now());
        queue.add(pod("a", "8"));
        assert_eq!(popped(&mut queue), None);
        queue.add(pod("a", "1"));
        assert_eq!(popped(&mut queue).as_deref(), Some("a"));
    }

    #[test]
    fn a_removed_pod_is_forgotten_in_every_state() {
        let mut queue = SchedulingQueue::default();
        let now = Instant::now();
        for name in ["active", "flight", "parked", "backoff"] {
            queue.add(pod(name, "1"));
        }
        let by_name = |name: &str| PodUid(name.into());
        while popped(&mut queue).is_some() {}
        queue.park(&by_name("parked"), now);
        queue.retry(&by_name("backoff"), now);
        queue.add(pod("active", "1"));
        for name in ["active", "flight", "parked", "backoff"] {
            queue.remove(&by_name(name));
        }
        queue.move_all(now);
        queue.flush(now + Duration::from_secs(1000));
        assert_eq!((popped(&mut queue), queue.next_flush(), queue.uids().len()), (None, None, 0));
    }
}
