//! What is told of the pods that a namespace has when it asks for more than before. They stay: a
//! level is held against what is made or changed.
//!
//! Looked at are 3,000 pods for a second at most, of each controller one before its others.
//!
//! Source: `EvaluatePodsInNamespace` in `k8s.io/pod-security-admission/admission/admission.go` at
//! v1.37.

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

use coracle_api::meta;
use coracle_registry::value::string;
use serde_json::Value;

use super::{level::LevelVersion, pod::Pod, standard::violations, violation::reasons};

/// How much is looked at.
pub(super) const LIMITS: Limits = Limits {
    pods: 3000,
    time: Duration::from_secs(1),
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) pods: usize,
    pub(super) time: Duration,
}

/// A pod that is parsed when its turn comes.
pub(super) trait Stored {
    /// `None` of what cannot be read.
    fn pod(&self) -> Option<Value>;
}

/// Pods that have the same against them.
#[derive(Debug, Default)]
struct Group {
    /// The first by name.
    first: String,
    count: usize,
}

/// What has been seen so far.
struct Look {
    asked: LevelVersion,
    limits: Limits,
    end: Instant,
    groups: BTreeMap<String, Group>,
    checked: usize,
}

/// What to tell of `pods`, in their order. `is_exempt` is asked with the name of a RuntimeClass.
///
/// Blocks for as long as [`Limits`] says: not for a thread that others wait for.
pub(super) fn warnings<S: Stored>(
    namespace: &str,
    asked: LevelVersion,
    pods: &[S],
    is_exempt: impl Fn(&str) -> bool,
    limits: Limits,
) -> Vec<String> {
    let mut look = Look {
        asked,
        limits,
        end: Instant::now() + limits.time,
        groups: BTreeMap::new(),
        checked: 0,
    };
    let (mut total, mut later) = (pods.len(), Vec::new());
    let mut controllers: HashSet<String> = HashSet::new();
    for stored in pods {
        if look.is_over() {
            break;
        }
        let pod = stored
            .pod()
            .filter(|pod| !is_exempt(Pod::of(pod).runtime_class()));
        let Some(pod) = pod else {
            total -= 1;
            continue;
        };
        let controller = meta::controller_of(&pod).map(|owner| string(&owner["uid"]));
        if controller.is_some_and(|uid| !controllers.insert(uid.to_owned())) {
            later.push(stored);
        } else {
            look.take(&pod);
        }
    }
    for stored in later {
        if look.is_over() {
            break;
        }
        if let Some(pod) = stored.pod() {
            look.take(&pod);
        }
    }
    look.told(namespace, total)
}

impl Look {
    fn is_over(&self) -> bool {
        self.checked >= self.limits.pods || Instant::now() >= self.end
    }

    fn take(&mut self, pod: &Value) {
        self.checked += 1;
        let violations = violations(self.asked, Pod::of(pod));
        if violations.is_empty() {
            return;
        }
        let name = meta::name(pod);
        let group = self.groups.entry(reasons(&violations)).or_default();
        if group.count == 0 || name < group.first.as_str() {
            name.clone_into(&mut group.first);
        }
        group.count += 1;
    }

    fn told(self, namespace: &str, total: usize) -> Vec<String> {
        let (asked, checked) = (self.asked, self.checked);
        let mut told = Vec::new();
        if checked < total {
            told.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !self.groups.is_empty() {
            told.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{asked}\""
            ));
        }
        let groups = self.groups.into_iter();
        let mut of_pods: Vec<String> = groups
            .map(|(reasons, Group { first, count })| match count {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                _ => format!("{first} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        of_pods.sort();
        told.extend(of_pods);
        told
    }
}
