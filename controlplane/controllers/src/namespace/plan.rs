//! What is left in a terminating namespace, as its conditions tell it. Pure.
//!
//! Source: `pkg/controller/namespace/deletion/status_condition_utils.go` at v1.37.

use std::{collections::BTreeMap, time::Duration};

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::{
    api::core::v1::NamespaceCondition, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};

/// Pause before the next look while something is left: at first, and at last. Most of what is left
/// tells of its end.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_CAP: Duration = Duration::from_secs(60);

/// What the last rounds of deletion in a namespace found.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last: Remains,
    unchanged: u32,
}

impl Rounds {
    /// How long to wait after a round that found `remains`: longer and longer for as long as it is
    /// the same.
    pub(super) fn pause(&mut self, remains: Remains) -> Duration {
        self.unchanged = if self.last == remains {
            self.unchanged.saturating_add(1)
        } else {
            0
        };
        self.last = remains;
        ExponentialBackoff::new(PAUSE_FIRST, PAUSE_CAP).after(self.unchanged)
    }
}

/// What one round of deletion found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Remains {
    /// Instances left by resource, such as `pods.` or `deployments.apps`.
    pub(super) resources: BTreeMap<String, usize>,
    /// Instances by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// What went wrong in asking which kinds there are.
    pub(super) discovery_error: Option<String>,
    /// What went wrong in deleting.
    pub(super) content_errors: Vec<String>,
}

impl Remains {
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
            && self.discovery_error.is_none()
            && self.content_errors.is_empty()
    }

    /// The five conditions, with transition times kept where the status stays. `None` if `present`
    /// says it all.
    pub(super) fn conditions(
        &self,
        present: &[NamespaceCondition],
        now: Timestamp,
    ) -> Option<Vec<NamespaceCondition>> {
        let mut conditions = present.to_vec();
        for finding in self.findings() {
            let Finding {
                kind,
                status,
                reason,
                message,
            } = finding;
            let old = conditions
                .iter()
                .position(|condition| condition.type_ == kind);
            let since = old
                .map(|at| conditions.remove(at))
                .filter(|condition| condition.status == status)
                .and_then(|condition| condition.last_transition_time);
            conditions.push(NamespaceCondition {
                type_: kind.into(),
                status: status.into(),
                reason: Some(reason.into()),
                message: Some(message),
                last_transition_time: since.or(Some(Time(now))),
            });
        }
        (conditions != present).then_some(conditions)
    }

    fn findings(&self) -> [Finding; 5] {
        [
            self.discovery(),
            // Cannot fail here, but is one of the five that upstream shows.
            Finding::good(
                "NamespaceDeletionGroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            self.content(),
            self.remaining(),
            self.remaining_finalizers(),
        ]
    }

    fn discovery(&self) -> Finding {
        let kind = "NamespaceDeletionDiscoveryFailure";
        match &self.discovery_error {
            None => Finding::good(
                kind,
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            Some(error) => Finding::bad(
                kind,
                "DiscoveryFailed",
                format!("Discovery failed for some groups: {error}"),
            ),
        }
    }

    fn content(&self) -> Finding {
        let (kind, errors) = ("NamespaceDeletionContentFailure", &self.content_errors);
        if errors.is_empty() {
            return Finding::good(
                kind,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            );
        }
        let (count, errors) = (errors.len(), errors.join(", "));
        Finding::bad(
            kind,
            "ContentDeletionFailed",
            format!("Failed to delete all resource types, {count} remaining: {errors}"),
        )
    }

    fn remaining(&self) -> Finding {
        let kind = "NamespaceContentRemaining";
        if self.resources.is_empty() {
            return Finding::good(kind, "ContentRemoved", "All content successfully removed");
        }
        let has = |(resource, count)| format!("{resource} has {count} resource instances");
        let list: Vec<String> = self.resources.iter().map(has).collect();
        Finding::bad(
            kind,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", list.join(", ")),
        )
    }

    fn remaining_finalizers(&self) -> Finding {
        let kind = "NamespaceFinalizersRemaining";
        if self.finalizers.is_empty() {
            return Finding::good(
                kind,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            );
        }
        let is_in = |(name, count)| format!("{name} in {count} resource instances");
        let list: Vec<String> = self.finalizers.iter().map(is_in).collect();
        let list = list.join(", ");
        Finding::bad(
            kind,
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {list}"),
        )
    }
}

/// What one condition shall say.
struct Finding {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn good(kind: &'static str, reason: &'static str, message: &str) -> Self {
        Self {
            kind,
            status: "False",
            reason,
            message: message.to_owned(),
        }
    }

    fn bad(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self {
            kind,
            status: "True",
            reason,
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_is_looked_at_less_and_less() {
        let remains = |count| Remains {
            resources: [("secrets.".to_owned(), count)].into(),
            ..Remains::default()
        };
        let mut rounds = Rounds::default();
        let pauses: Vec<u64> = (0..10)
            .map(|_| rounds.pause(remains(2)).as_secs())
            .collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(rounds.pause(remains(1)), PAUSE_FIRST, "something has gone");
    }

    #[test]
    fn remaining_content_is_told_in_upstreams_words() {
        let remains = Remains {
            resources: [("pods.".to_owned(), 3)].into(),
            finalizers: [("example.org/x".to_owned(), 1)].into(),
            ..Remains::default()
        };
        let conditions = remains.conditions(&[], Timestamp::UNIX_EPOCH).unwrap();
        let message = |kind: &str| {
            let found = conditions
                .iter()
                .find(|condition| condition.type_ == kind)
                .unwrap();
            (found.status.as_str(), found.message.as_deref().unwrap())
        };
        assert_eq!(
            message("NamespaceContentRemaining"),
            (
                "True",
                "Some resources are remaining: pods. has 3 resource instances"
            )
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            (
                "True",
                "Some content in the namespace has finalizers remaining: example.org/x in 1 resource instances"
            )
        );
        assert_eq!(message("NamespaceDeletionDiscoveryFailure").0, "False");
        assert_eq!(
            remains.conditions(&conditions, Timestamp::now()),
            None,
            "nothing new to say"
        );
    }
}
