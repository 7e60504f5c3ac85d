//! What an autoscaler has recommended and done lately: what slows it down. Pure, kept in memory
//! alone, as upstream does: after a restart it begins with the size that it finds.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (stabilizeRecommendation,
//! stabilizeRecommendationWithBehaviors, storeScaleEvent, getReplicasChangePerPeriod) at v1.37.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HPAScalingRules;
use tokio::time::Instant;

/// The recommendations and changes that still count. What is older than all who look is let go of,
/// so it is bounded by the longest window over the sync period.
#[derive(Debug, Default)]
pub(super) struct History {
    recommended: Vec<(i32, Instant)>,
    ups: Vec<Change>,
    downs: Vec<Change>,
}

/// So many replicas more, or fewer.
#[derive(Debug, Clone, Copy)]
struct Change {
    by: i32,
    at: Instant,
}

/// What the last while holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stabilized {
    pub(super) replicas: i32,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// What behaviours say of the past.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) up: Duration,
    pub(super) down: Duration,
}

const LOWEST: &str =
    "recent recommendations were lower than current one, applying the lowest recent recommendation";
const HIGHEST: &str = "recent recommendations were higher than current one, applying the highest recent recommendation";

impl History {
    /// The size that was found first.
    pub(super) fn begin(&mut self, replicas: i32, now: Instant) {
        if self.recommended.is_empty() {
            self.recommended.push((replicas, now));
        }
    }

    /// Without behaviours: the highest recommendation of the last `window` holds.
    pub(super) fn stabilize(&mut self, wanted: i32, window: Duration, now: Instant) -> Stabilized {
        self.recommended
            .retain(|(_, at)| now.duration_since(*at) <= window);
        let recent = self.recommended.iter().map(|(replicas, _)| *replicas);
        let replicas = recent.fold(wanted, i32::max);
        self.recommended.push((wanted, now));
        Stabilized {
            replicas,
            reason: "ScaleDownStabilized",
            message: HIGHEST,
        }
    }

    /// With behaviours: between the lowest recommendation of one window and the highest of the
    /// other it stays as it is.
    pub(super) fn stabilize_within(
        &mut self,
        wanted: i32,
        current: i32,
        windows: Windows,
        now: Instant,
    ) -> Stabilized {
        let longest = windows.up.max(windows.down);
        self.recommended
            .retain(|(_, at)| now.duration_since(*at) <= longest);
        let within = |window: Duration| {
            self.recommended
                .iter()
                .filter(move |(_, at)| now.duration_since(*at) < window)
                .map(|(replicas, _)| *replicas)
        };
        let least = within(windows.up).fold(wanted, i32::min);
        let most = within(windows.down).fold(wanted, i32::max);
        let replicas = current.max(least).min(most);
        self.recommended.push((wanted, now));
        let (reason, message) = if wanted >= current {
            ("ScaleUpStabilized", LOWEST)
        } else {
            ("ScaleDownStabilized", HIGHEST)
        };
        Stabilized {
            replicas,
            reason,
            message,
        }
    }

    /// It has been scaled; `rules` are those of this direction.
    pub(super) fn scaled(
        &mut self,
        from: i32,
        to: i32,
        rules: Option<&HPAScalingRules>,
        now: Instant,
    ) {
        let changes = if to > from {
            &mut self.ups
        } else {
            &mut self.downs
        };
        let longest = policies_of(rules).map(|(_, _, period)| period).max();
        let longest = longest.unwrap_or_default();
        changes.retain(|change| now.duration_since(change.at) <= longest);
        let by = (to - from).abs();
        changes.push(Change { by, at: now });
    }

    /// How many replicas there were `period` ago, as far as it was this controller's doing.
    pub(super) fn before(&self, current: i32, period: Duration, now: Instant) -> i32 {
        let sum = |changes: &[Change]| -> i32 {
            let recent = changes
                .iter()
                .filter(|change| now.duration_since(change.at) < period);
            recent.map(|change| change.by).sum()
        };
        current - sum(&self.ups) + sum(&self.downs)
    }
}

/// Type, value and period of each policy.
pub(super) fn policies_of(
    rules: Option<&HPAScalingRules>,
) -> impl Iterator<Item = (&str, i32, Duration)> {
    let policies = rules.and_then(|rules| rules.policies.as_deref());
    policies.unwrap_or_default().iter().map(|policy| {
        let period = Duration::from_secs(policy.period_seconds.unsigned_abs().into());
        (policy.type_.as_str(), policy.value, period)
    })
}
