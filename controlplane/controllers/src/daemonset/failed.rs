//! How long a node waits for the next pod after its last one has failed: a node that refuses a
//! DaemonSet's pod would have a new one at once, for ever. Pure, the time is told.
//!
//! Source: `pkg/controller/daemon/daemon_controller.go` (failedPodsBackoff), `Backoff` in
//! `k8s.io/client-go/util/flowcontrol/backoff.go` at v1.37.

use std::{collections::HashMap, time::Duration};

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::jiff::Timestamp;

const MOST: Duration = Duration::from_secs(15 * 60);
const PAUSES: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(1), MOST);
/// After so long without a failure the next one is the first.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * 15 * 60);

/// Where a pod has failed: the DaemonSet's uid, its generation and the node.
type Place = (String, i64, String);

/// The failures of all DaemonSets.
#[derive(Default)]
pub(super) struct Failures(HashMap<Place, Failure>);

struct Failure {
    at: Timestamp,
    /// Before this one.
    failures: u32,
}

impl Failures {
    /// A failed pod is seen on `node`: `None` if it may go at once, and how long it stays
    /// otherwise.
    pub(super) fn seen(
        &mut self,
        (uid, generation): (&str, i64),
        node: &str,
        now: Timestamp,
    ) -> Option<Duration> {
        let since = |failure: &Failure| now.duration_since(failure.at).unsigned_abs();
        let place = (uid.to_owned(), generation, node.to_owned());
        let last = self
            .0
            .get(&place)
            .filter(|one| since(one) <= FORGOTTEN_AFTER);
        if let Some(last) = last {
            let left = PAUSES.after(last.failures).checked_sub(since(last));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                return Some(left);
            }
        }
        let failures = last.map_or(0, |last| last.failures + 1);
        self.0.insert(place, Failure { at: now, failures });
        self.0.retain(|_, one| since(one) <= FORGOTTEN_AFTER);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_a_node_waits_twice_as_long_and_is_forgotten_in_the_end() {
        let mut failures = Failures::default();
        let start = Timestamp::from_second(1_000_000).unwrap();
        let mut see = |node: &str, seconds: u64| {
            failures.seen(("uid", 1), node, start + Duration::from_secs(seconds))
        };
        let seconds = |number| Some(Duration::from_secs(number));
        assert_eq!(see("a", 0), None);
        assert_eq!(see("b", 0), None, "another node");
        assert_eq!(see("a", 0), seconds(1));
        assert_eq!(see("a", 1), None);
        assert_eq!(see("a", 2), seconds(1));
        assert_eq!(see("a", 3), None);
        assert_eq!(see("a", 3), seconds(4));
        assert_eq!(see("a", 3 + 1801), None);
        assert_eq!(see("a", 3 + 1802), None, "a second after the first");
    }
}
