//! Which pod goes when the node runs low, and what is said of it (pure).
//!
//! Source: `pkg/kubelet/eviction/helpers.go` at v1.37.

use std::{cmp::Reverse, fmt, sync::Arc};

use coracle_api::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::Pod;

use super::{Shortage, Signal};
use crate::pod::{PodExt, SYSTEM_CRITICAL};

/// `status.reason` of an evicted pod, and the event's.
pub(crate) const EVICTED: &str = "Evicted";

/// What is given back when a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

impl Resource {
    pub(super) fn of(signal: Signal) -> Self {
        match signal {
            Signal::MemoryAvailable => Self::Memory,
            Signal::NodefsAvailable | Signal::ImagefsAvailable => Self::EphemeralStorage,
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree => Self::Inodes,
            Signal::PidAvailable => Self::Pids,
        }
    }

    fn amount(self, amount: u64) -> Quantity {
        let format = match self {
            Self::Memory | Self::EphemeralStorage => Format::BinarySi,
            Self::Inodes | Self::Pids => Format::DecimalSi,
        };
        Quantity::from_units(i64::try_from(amount).unwrap_or(i64::MAX), format)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// A container's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) container: String,
    pub(super) used: u64,
    pub(super) requested: u64,
}

/// A pod that could go.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) pod: Arc<Pod>,
    pub(super) containers: Vec<Share>,
    /// What no container of it uses: its volumes.
    pub(super) shared: u64,
    /// Of the pod as a whole.
    pub(super) requested: u64,
}

impl Candidate {
    fn used(&self) -> u64 {
        self.containers
            .iter()
            .fold(self.shared, |sum, share| sum.saturating_add(share.used))
    }

    fn priority(&self) -> i32 {
        self.pod.spec_or_default().priority.unwrap_or(0)
    }
}

/// Who goes first comes first: pods that use more than they asked for, then those of low priority,
/// then those that use most beyond their request. Nobody asks for process IDs: there only priority
/// and number count.
pub(super) fn rank(resource: Resource, candidates: &mut [Candidate]) {
    match resource {
        Resource::Pids => candidates.sort_by_key(|one| (one.priority(), Reverse(one.used()))),
        _ => candidates.sort_by_key(|one| {
            let excess = i128::from(one.used()) - i128::from(one.requested);
            (excess <= 0, one.priority(), Reverse(excess))
        }),
    }
}

/// Whether the pod stays whatever happens: by its priority alone, which admission guards. Upstream
/// spares static pods, too; here are none, and the annotation of their mirrors anybody may write.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    pod.spec_or_default()
        .priority
        .is_some_and(|priority| priority >= SYSTEM_CRITICAL)
}

/// How the message of a pod begins that went for the node's sake, and not for what it did itself.
const SHORTAGE: &str = "The node was low on resource: ";

/// Whether a pod with this message went for the node's sake.
pub(crate) fn is_shortage(message: &str) -> bool {
    message.starts_with(SHORTAGE)
}

/// `status.message` of the evicted pod.
pub(super) fn message(shortage: &Shortage, candidate: &Candidate) -> String {
    let resource = Resource::of(shortage.supply.signal);
    let mut text = format!(
        "{SHORTAGE}{resource}. Threshold quantity: {}, available: {}. ",
        resource.amount(shortage.threshold),
        resource.amount(shortage.supply.available),
    );
    for share in candidate
        .containers
        .iter()
        .filter(|share| share.used > share.requested)
    {
        text.push_str(&format!(
            "Container {} was using {}, request is {}, has larger consumption of {resource}. ",
            share.container,
            resource.amount(share.used),
            resource.amount(share.requested),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eviction::Supply;

    fn candidate(name: &str, priority: i32, used: u64, requested: u64) -> Candidate {
        let pod =
            json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": []}});
        let share = Share {
            container: "c".to_owned(),
            used,
            requested,
        };
        let pod = Arc::new(serde_json::from_value(pod).expect("pod"));
        Candidate {
            pod,
            containers: vec![share],
            shared: 0,
            requested,
        }
    }

    fn order(resource: Resource, mut candidates: Vec<Candidate>) -> Vec<String> {
        rank(resource, &mut candidates);
        candidates
            .iter()
            .map(|one| one.pod.name().to_owned())
            .collect()
    }

    #[test]
    fn greed_counts_before_priority_and_priority_before_size() {
        let pods = || {
            vec![
                candidate("modest", 0, 900, 1000),
                candidate("greedy-and-important", 10, 500, 100),
                candidate("greedy", 0, 200, 100),
                candidate("greedier", 0, 300, 100),
                candidate("modest-and-idle", 0, 1, 1000),
                candidate("modest-and-important", 10, 1000, 1000),
            ]
        };
        let expected = [
            "greedier",
            "greedy",
            "greedy-and-important",
            "modest",
            "modest-and-idle",
            "modest-and-important",
        ];
        for resource in [
            Resource::Memory,
            Resource::EphemeralStorage,
            Resource::Inodes,
        ] {
            assert_eq!(order(resource, pods()), expected, "{resource}");
        }
        let pods = vec![
            candidate("important", 10, 9, 0),
            candidate("few", 0, 1, 0),
            candidate("many", 0, 8, 0),
        ];
        assert_eq!(order(Resource::Pids, pods), ["many", "few", "important"]);
    }

    #[test]
    fn volumes_count_for_the_pod_and_not_for_a_container() {
        let large = Candidate {
            shared: 1000,
            ..candidate("large", 0, 0, 0)
        };
        assert_eq!(
            order(
                Resource::EphemeralStorage,
                vec![candidate("small", 0, 1, 0), large]
            ),
            ["large", "small"]
        );
    }

    #[test]
    fn the_system_is_spared_and_nobody_by_an_annotation() {
        for (priority, mirror, spared) in [
            (0, false, false),
            (2_000_000_000, false, true),
            (0, true, false),
        ] {
            let mut pod = Pod::clone(&candidate("p", priority, 0, 0).pod);
            let annotation = ("kubernetes.io/config.mirror".to_owned(), "hash".to_owned());
            pod.metadata.annotations = mirror.then(|| [annotation].into());
            assert_eq!(is_critical(&pod), spared, "{priority} {mirror}");
        }
    }

    #[test]
    fn evicted_pods_are_told_why_in_upstreams_words() {
        let supply = |signal, available| Supply {
            signal,
            available,
            capacity: 1 << 30,
        };
        let shortage = Shortage {
            supply: supply(Signal::MemoryAvailable, 96 << 20),
            threshold: 100 << 20,
        };
        assert_eq!(
            message(&shortage, &candidate("p", 0, 300 << 10, 0)),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 96Mi. \
             Container c was using 300Ki, request is 0, has larger consumption of memory. "
        );
        let shortage = Shortage {
            supply: supply(Signal::PidAvailable, 9),
            threshold: 10,
        };
        assert_eq!(
            message(&shortage, &candidate("p", 0, 5, 5)),
            "The node was low on resource: pids. Threshold quantity: 10, available: 9. "
        );
    }
}
