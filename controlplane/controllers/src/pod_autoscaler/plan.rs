//! What becomes of an autoscaler's target in this round. Pure but for the history it is given.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (reconcileAutoscaler,
//! normalizeDesiredReplicas, normalizeDesiredReplicasWithBehaviors) at v1.37, where the gate
//! `HPAScaleToZero` is off, as it is by default: a target without pods is left alone.

use std::time::Duration;

use coracle_api::quantity;
use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, MetricStatus,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tokio::time::Instant;

use super::{
    history::{History, Windows},
    limits::{self, Wish},
    metrics::{self, Measured},
    replicas::{Seen, Tolerances},
    status::{ABLE_TO_SCALE, Draft, SCALING_ACTIVE, SCALING_LIMITED},
};

/// What the size alone says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Somebody has set it to zero.
    Disabled,
    /// It is out of bounds.
    Bound {
        /// The bound.
        to: i32,
        reason: &'static str,
    },
    /// The metrics decide.
    Measure,
}

/// What shall be.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) current: i32,
    pub(super) desired: i32,
    /// Why the size changes; `None` if it does not.
    pub(super) rescale: Option<String>,
    pub(super) metrics: Option<Vec<MetricStatus>>,
}

/// What the metrics are looked at with.
pub(super) struct Round<'a> {
    pub(super) hpa: &'a HorizontalPodAutoscaler,
    /// Its `current` is the target's.
    pub(super) seen: Seen<'a>,
    pub(super) measured: &'a Measured,
    /// Where behaviours do not say.
    pub(super) downscale_stabilization: Duration,
    pub(super) now: Instant,
}

/// Looks at the size before anything is measured.
pub(super) fn next(hpa: &HorizontalPodAutoscaler, current: i32) -> Next {
    let (least, most) = bounds(hpa);
    if current == 0 {
        Next::Disabled
    } else if current > most {
        Next::Bound {
            to: most,
            reason: "Current number of replicas above Spec.MaxReplicas",
        }
    } else if current < least {
        Next::Bound {
            to: least,
            reason: "Current number of replicas below Spec.MinReplicas",
        }
    } else {
        Next::Measure
    }
}

/// The target has no pods.
pub(super) fn disabled(draft: &mut Draft) -> Decision {
    draft.condition(
        SCALING_ACTIVE,
        false,
        "ScalingDisabled",
        "scaling is disabled since the replica count of the target is zero",
    );
    Decision {
        current: 0,
        desired: 0,
        rescale: None,
        metrics: None,
    }
}

/// As the metrics say; `None` if they cannot be told, which the draft says.
pub(super) fn measured(
    round: &Round<'_>,
    history: &mut History,
    draft: &mut Draft,
) -> Option<Decision> {
    let spec = &round.hpa.spec;
    let current = round.seen.current;
    let namespace = round.hpa.metadata.namespace.as_deref().unwrap_or_default();
    let specs = spec.metrics.as_deref().unwrap_or_default();
    let computed = metrics::compute(namespace, specs, &round.seen, round.measured, draft);
    let Some((proposed, metric)) = computed.best else {
        if let Some(failure) = computed.failure {
            draft.warn("FailedComputeMetricsReplicas", failure);
        }
        draft.settle(current, None, Some(computed.statuses));
        return None;
    };
    let proposed = proposed.max(0);
    let reason = if proposed > current {
        format!("{metric} above target")
    } else {
        "All metrics below target".to_owned()
    };
    let desired = match &spec.behavior {
        None => by_default(round, proposed, history, draft),
        Some(behavior) => by_behavior(round, proposed, behavior, history, draft),
    };
    Some(Decision {
        current,
        desired,
        rescale: (desired != current).then_some(reason),
        metrics: Some(computed.statuses),
    })
}

fn by_default(round: &Round<'_>, proposed: i32, history: &mut History, draft: &mut Draft) -> i32 {
    let stable = history.stabilize(proposed, round.downscale_stabilization, round.now);
    if stable.replicas == proposed {
        ready(draft);
    } else {
        draft.condition(ABLE_TO_SCALE, true, stable.reason, stable.message);
    }
    let limited = limits::by_default(wish(round, stable.replicas));
    limit(draft, stable.replicas, limited)
}

fn by_behavior(
    round: &Round<'_>,
    proposed: i32,
    behavior: &HorizontalPodAutoscalerBehavior,
    history: &mut History,
    draft: &mut Draft,
) -> i32 {
    let window = |seconds: Option<i32>| {
        seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs().into()))
    };
    let up = behavior.scale_up.as_ref();
    let down = behavior.scale_down.as_ref();
    let windows = Windows {
        up: window(up.and_then(|rules| rules.stabilization_window_seconds)).unwrap_or_default(),
        down: window(down.and_then(|rules| rules.stabilization_window_seconds))
            .unwrap_or(round.downscale_stabilization),
    };
    let stable = history.stabilize_within(proposed, round.seen.current, windows, round.now);
    if stable.replicas == proposed {
        ready(draft);
    } else {
        draft.condition(ABLE_TO_SCALE, true, stable.reason, stable.message);
    }
    let wish = wish(round, stable.replicas);
    let limited = limits::by_behavior(wish, behavior, history, round.now);
    limit(draft, stable.replicas, limited)
}

fn ready(draft: &mut Draft) {
    let message = "recommended size matches current size";
    draft.condition(ABLE_TO_SCALE, true, "ReadyForNewScale", message);
}

fn limit(draft: &mut Draft, wanted: i32, limited: limits::Limited) -> i32 {
    let is_limited = limited.replicas != wanted;
    draft.condition(SCALING_LIMITED, is_limited, limited.reason, limited.message);
    limited.replicas
}

fn wish(round: &Round<'_>, desired: i32) -> Wish {
    let (least, most) = bounds(round.hpa);
    Wish {
        current: round.seen.current,
        desired,
        least,
        most,
    }
}

fn bounds(hpa: &HorizontalPodAutoscaler) -> (i32, i32) {
    (hpa.spec.min_replicas.unwrap_or(1), hpa.spec.max_replicas)
}

/// Those of the cluster, or its own.
///
/// Source: `tolerancesForHpa`; its gate, `HPAConfigurableTolerance`, is on.
pub(super) fn tolerances(hpa: &HorizontalPodAutoscaler, default: f64) -> Tolerances {
    let own = |amount: &Quantity| {
        quantity::Quantity::parse(&amount.0).map_or(default, |amount| amount.as_f64())
    };
    let behavior = hpa.spec.behavior.as_ref();
    let down = behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref());
    let up = behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref());
    Tolerances {
        down: down.map_or(default, own),
        up: up.map_or(default, own),
    }
}

/// The end of a round, once the target has been written or has not.
pub(super) fn settle(
    hpa: &HorizontalPodAutoscaler,
    decision: Decision,
    written: Result<(), String>,
    history: &mut History,
    draft: &mut Draft,
    now: Instant,
) {
    let Decision {
        current,
        desired,
        rescale,
        metrics,
    } = decision;
    let Some(reason) = rescale else {
        draft.settle(current, Some(current), metrics);
        return;
    };
    if let Err(why) = written {
        let message = format!("New size: {desired}; reason: {reason}; error: {why}");
        draft.warn("FailedRescale", message);
        let message = format!("the HPA controller was unable to update the target scale: {why}");
        draft.condition(ABLE_TO_SCALE, false, "FailedUpdateScale", message);
        draft.settle(current, None, metrics);
        return;
    }
    let message = format!("the HPA controller was able to update the target scale to {desired}");
    draft.condition(ABLE_TO_SCALE, true, "SucceededRescale", message);
    draft.tell(
        "SuccessfulRescale",
        format!("New size: {desired}; reason: {reason}"),
    );
    if let Some(behavior) = &hpa.spec.behavior {
        let rules = if desired > current {
            &behavior.scale_up
        } else {
            &behavior.scale_down
        };
        history.scaled(current, desired, rules.as_ref(), now);
    }
    draft.settle(current, Some(desired), metrics);
    draft.rescaled();
}
