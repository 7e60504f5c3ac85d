//! How far the number of replicas may go in one step. Pure.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (convertDesiredReplicasWithRules,
//! convertDesiredReplicasWithBehaviorRate, calculateScaleUpLimitWithScalingRules,
//! calculateScaleDownLimitWithBehaviors) at v1.37.

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use tokio::time::Instant;

use super::{
    history::{History, policies_of},
    replicas::whole,
};

/// Without behaviours it may double, or come to four.
const UP_FACTOR: i32 = 2;
const UP_AT_LEAST: i32 = 4;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) least: i32,
    pub(super) most: i32,
}

/// What may be, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i32,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

const IN_RANGE: (&str, &str) = (
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_FAST_UP: (&str, &str) = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_MANY: (&str, &str) = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: (&str, &str) = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);

impl Limited {
    fn to(replicas: i32, (reason, message): (&'static str, &'static str)) -> Self {
        Self {
            replicas,
            reason,
            message,
        }
    }
}

/// Without behaviours.
pub(super) fn by_default(wish: Wish) -> Limited {
    let fastest = wish.current.saturating_mul(UP_FACTOR).max(UP_AT_LEAST);
    let (most, why) = if wish.most > fastest {
        (fastest, TOO_FAST_UP)
    } else {
        (wish.most, TOO_MANY)
    };
    if wish.desired < wish.least {
        Limited::to(wish.least, TOO_FEW)
    } else if wish.desired > most {
        Limited::to(most, why)
    } else {
        Limited::to(wish.desired, IN_RANGE)
    }
}

/// As behaviours say, of the direction that it goes.
pub(super) fn by_behavior(
    wish: Wish,
    behavior: &HorizontalPodAutoscalerBehavior,
    history: &History,
    now: Instant,
) -> Limited {
    if wish.desired > wish.current {
        let limit = fastest_up(wish.current, behavior.scale_up.as_ref(), history, now);
        let limit = limit.max(wish.current);
        let (most, why) = if wish.most > limit {
            (limit, TOO_FAST_UP)
        } else {
            (wish.most, TOO_MANY)
        };
        if wish.desired > most {
            return Limited::to(most, why);
        }
    } else if wish.desired < wish.current {
        let limit = fastest_down(wish.current, behavior.scale_down.as_ref(), history, now);
        let limit = limit.min(wish.current);
        let (least, why) = if wish.least < limit {
            (limit, TOO_FAST_DOWN)
        } else {
            (wish.least, TOO_FEW)
        };
        if wish.desired < least {
            return Limited::to(least, why);
        }
    }
    Limited::to(wish.desired, IN_RANGE)
}

fn fastest_up(
    current: i32,
    rules: Option<&HPAScalingRules>,
    history: &History,
    now: Instant,
) -> i32 {
    let proposals = policies_of(rules).map(|(kind, value, period)| {
        let before = history.before(current, period, now);
        match kind {
            // Rounded up, or a small number would never grow.
            "Percent" => whole((f64::from(before) * (1.0 + f64::from(value) / 100.0)).ceil()),
            _ => before.saturating_add(value),
        }
    });
    match select_policy(rules) {
        "Disabled" => current,
        "Min" => proposals.min().unwrap_or(i32::MAX),
        _ => proposals.max().unwrap_or(i32::MIN),
    }
}

fn fastest_down(
    current: i32,
    rules: Option<&HPAScalingRules>,
    history: &History,
    now: Instant,
) -> i32 {
    let proposals = policies_of(rules).map(|(kind, value, period)| {
        let before = history.before(current, period, now);
        match kind {
            "Percent" => whole(f64::from(before) * (1.0 - f64::from(value) / 100.0)),
            _ => before.saturating_sub(value),
        }
    });
    match select_policy(rules) {
        "Disabled" => current,
        // The least change is the highest number.
        "Min" => proposals.max().unwrap_or(i32::MIN),
        _ => proposals.min().unwrap_or(i32::MAX),
    }
}

fn select_policy(rules: Option<&HPAScalingRules>) -> &str {
    rules
        .and_then(|rules| rules.select_policy.as_deref())
        .unwrap_or("Max")
}
