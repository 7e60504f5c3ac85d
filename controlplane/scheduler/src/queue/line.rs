//! The active pods, and who is next: the highest priority, then who came first; but within a
//! priority, whoever has taken more than a share of the scheduler's time of late lets the others go
//! before.
//!
//! ```text
//! an attempt that took t --> its namespace owes 4 t, paid off as time passes
//! owes more than 100 ms  --> behind the others of its priority; of several such, who will have paid first
//! ```
//! One scheduler decides for all tenants, one pod after another, and what an attempt costs is the
//! tenant's to choose, by what its pods ask for. Nothing is lost by this: while nobody else waits,
//! who owes goes on. Nobody owes more than ten seconds, so that who had it to himself for an hour
//! is not behind for one. Priorities stand above it: they are the administrator's.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::pod_info::{PodInfo, PodUid};

/// A namespace may take one part in so many of the time.
const SHARE: u32 = 4;
/// What it may owe and be in line all the same.
const CREDIT: Duration = Duration::from_millis(100);
/// What it owes at most.
const DEBT_MAX: Duration = Duration::from_secs(10);
/// Debts beyond which those that are paid off are looked for.
const DEBTS_KEPT: usize = 256;

/// Pods in the order in which they came.
type Pods = BTreeMap<u64, PodUid>;

/// Who is first of a namespace's pods of one priority; the smallest is next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    priority: Reverse<i32>,
    /// Until when its namespace is behind the others.
    behind: Option<Instant>,
    sequence: u64,
    namespace: Arc<str>,
}

/// The active pods in the order in which they are taken.
#[derive(Debug, Default)]
pub(super) struct Line {
    namespaces: HashMap<Arc<str>, BTreeMap<Reverse<i32>, Pods>>,
    heads: BTreeSet<Head>,
    /// When each will have paid off what it owes.
    paid: HashMap<Arc<str>, Instant>,
    /// Those that are behind the others, and until when.
    behind: BTreeSet<(Instant, Arc<str>)>,
    len: usize,
    sequence: u64,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts the pod at the end. The number is what [`Line::remove`] wants.
    pub(super) fn push(&mut self, pod: &PodInfo) -> u64 {
        self.sequence += 1;
        let (sequence, priority) = (self.sequence, Reverse(pod.priority));
        let namespace = match self.namespaces.get_key_value(pod.namespace.as_str()) {
            Some((known, _)) => known.clone(),
            None => pod.namespace.as_str().into(),
        };
        let pods = self
            .namespaces
            .entry(namespace.clone())
            .or_default()
            .entry(priority)
            .or_default();
        let is_first = pods.is_empty();
        pods.insert(sequence, pod.uid.clone());
        if is_first {
            let behind = self.behind(&namespace);
            self.heads.insert(Head {
                priority,
                behind,
                sequence,
                namespace,
            });
        }
        self.len += 1;
        sequence
    }

    /// Takes the next pod.
    pub(super) fn pop(&mut self) -> Option<PodUid> {
        let Head {
            priority,
            sequence,
            namespace,
            ..
        } = self.heads.first().cloned()?;
        self.take(&namespace, priority.0, sequence)
    }

    /// Takes out a pod that is there.
    pub(super) fn remove(&mut self, pod: &PodInfo, priority: i32, sequence: u64) {
        self.take(&pod.namespace, priority, sequence);
    }

    fn take(&mut self, namespace: &str, priority: i32, sequence: u64) -> Option<PodUid> {
        let (namespace, priority) = (
            self.namespaces.get_key_value(namespace)?.0.clone(),
            Reverse(priority),
        );
        let behind = self.behind(&namespace);
        let priorities = self.namespaces.get_mut(&namespace)?;
        let pods = priorities.get_mut(&priority)?;
        let uid = pods.remove(&sequence)?;
        self.len -= 1;
        let mut head = Head {
            priority,
            behind,
            sequence,
            namespace,
        };
        let was_first = self.heads.remove(&head);
        if let Some((&next, _)) = pods.first_key_value() {
            if was_first {
                head.sequence = next;
                self.heads.insert(head);
            }
            return Some(uid);
        }
        priorities.remove(&priority);
        if priorities.is_empty() {
            self.namespaces.remove(&head.namespace);
        }
        Some(uid)
    }

    /// An attempt for a pod of this namespace has taken so long.
    pub(super) fn charge(&mut self, namespace: &str, took: Duration, now: Instant) {
        let key = match self.paid.get_key_value(namespace) {
            Some((known, _)) => known.clone(),
            None => namespace.into(),
        };
        let paid =
            self.paid.get(&key).copied().unwrap_or(now).max(now) + took.saturating_mul(SHARE);
        let paid = paid.min(now + DEBT_MAX);
        self.put(&key, (paid > now + CREDIT).then_some(paid - CREDIT));
        self.paid.insert(key, paid);
    }

    /// Lets those back into line that have paid.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some((until, namespace)) = self.behind.first().cloned()
            && until <= now
        {
            self.put(&namespace, None);
        }
        if self.paid.len() > DEBTS_KEPT {
            self.paid.retain(|_, paid| *paid > now);
        }
    }

    /// Whether a namespace has taken more than its share.
    pub(super) fn owes(&self, namespace: &str) -> bool {
        let known = self.paid.get_key_value(namespace);
        known.is_some_and(|(namespace, _)| self.behind(namespace).is_some())
    }

    /// When [`Line::settle`] has something to do next.
    pub(super) fn next_settled(&self) -> Option<Instant> {
        self.behind.first().map(|(until, _)| *until)
    }

    /// Puts a namespace behind the others, or back.
    fn put(&mut self, namespace: &Arc<str>, behind: Option<Instant>) {
        let before = self.behind(namespace);
        if before == behind {
            return;
        }
        for (priority, pods) in self.namespaces.get(namespace).into_iter().flatten() {
            let Some((&sequence, _)) = pods.first_key_value() else {
                continue;
            };
            let mut head = Head {
                priority: *priority,
                behind: before,
                sequence,
                namespace: namespace.clone(),
            };
            self.heads.remove(&head);
            head.behind = behind;
            self.heads.insert(head);
        }
        if let Some(until) = before {
            self.behind.remove(&(until, namespace.clone()));
        }
        if let Some(until) = behind {
            self.behind.insert((until, namespace.clone()));
        }
    }

    /// Until when a namespace is behind the others.
    fn behind(&self, namespace: &Arc<str>) -> Option<Instant> {
        let until = self.paid.get(namespace)?.checked_sub(CREDIT)?;
        self.behind
            .contains(&(until, namespace.clone()))
            .then_some(until)
    }
}
