//! What slows it down: `TestConvertDesiredReplicasWithRules`, `TestNormalizeDesiredReplicas`,
//! `TestScalingWithRules`, `TestStoreScaleEvents`.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior,
};
use tokio::time::Instant;

use crate::pod_autoscaler::{
    history::{History, Windows},
    limits::{Wish, by_behavior, by_default},
};

fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// So many pods in so many seconds, and so many per cent of them.
fn rules(pods: (i32, i32), percent: (i32, i32), select: &str) -> HPAScalingRules {
    let policy = |type_: &str, (value, period_seconds): (i32, i32)| HPAScalingPolicy {
        type_: type_.to_owned(),
        value,
        period_seconds,
    };
    let policies = [policy("Pods", pods), policy("Percent", percent)];
    HPAScalingRules {
        policies: Some(
            policies
                .into_iter()
                .filter(|policy| policy.value != 0)
                .collect(),
        ),
        select_policy: Some(select.to_owned()),
        ..HPAScalingRules::default()
    }
}

#[test]
fn without_behaviours_it_at_most_doubles() {
    // Current, desired, least, most.
    let table = [
        ((5, 7, 3, 8), (7, "DesiredWithinRange")),
        ((3, 1, 2, 8), (2, "TooFewReplicas")),
        ((1, 0, 0, 10), (0, "DesiredWithinRange")),
        ((20, 1000, 1, 10), (10, "TooManyReplicas")),
        ((3, 1000, 1, 2000), (6, "ScaleUpLimit")),
        ((1, 1000, 1, 2000), (4, "ScaleUpLimit")),
    ];
    for ((current, desired, least, most), expect) in table {
        let limited = by_default(Wish {
            current,
            desired,
            least,
            most,
        });
        assert_eq!(
            (limited.replicas, limited.reason),
            expect,
            "{current} {desired}"
        );
    }
}

#[test]
fn the_highest_recent_recommendation_holds() {
    // Recommendations and the minutes since, what is wanted, and what comes of it.
    type Case = (&'static [(i32, u64)], i32, i32);
    let table: [Case; 5] = [
        (&[], 5, 5),
        (&[(4, 2), (5, 1)], 3, 5),
        (&[(1, 2), (2, 1)], 3, 3),
        (&[(10, 10), (9, 9)], 3, 3),
        (&[(10, 10), (4, 1), (5, 2), (9, 9)], 3, 5),
    ];
    for (past, wanted, expect) in table {
        let begin = Instant::now();
        let now = begin + minutes(60);
        let mut history = History::default();
        // With a window that keeps all of them.
        for (replicas, before) in past {
            history.stabilize(*replicas, minutes(60), now - minutes(*before));
        }
        let stable = history.stabilize(wanted, minutes(5), now);
        assert_eq!(stable.replicas, expect, "{past:?}");
    }
}

#[test]
fn behaviours_have_a_window_each_way() {
    // Recommendations and the seconds since, current, wanted, windows up and down, what comes.
    type Case = (
        &'static [(i32, u64)],
        i32,
        i32,
        (u64, u64),
        (i32, &'static str),
    );
    let table: [Case; 7] = [
        (&[], 100, 5, (0, 0), (5, "ScaleDownStabilized")),
        // It shall not go up: one of the last minute was lower.
        (
            &[(4, 30), (90, 20)],
            10,
            100,
            (60, 0),
            (10, "ScaleUpStabilized"),
        ),
        (
            &[(50, 30), (90, 20)],
            10,
            100,
            (60, 0),
            (50, "ScaleUpStabilized"),
        ),
        (
            &[(50, 30), (90, 20)],
            10,
            100,
            (25, 0),
            (90, "ScaleUpStabilized"),
        ),
        // Nor down: one of the last minute was higher.
        (
            &[(80, 30), (20, 20)],
            100,
            5,
            (0, 60),
            (80, "ScaleDownStabilized"),
        ),
        (
            &[(80, 90), (20, 20)],
            100,
            5,
            (0, 60),
            (20, "ScaleDownStabilized"),
        ),
        (
            &[(80, 30), (2, 20)],
            30,
            10,
            (60, 60),
            (30, "ScaleDownStabilized"),
        ),
    ];
    for (past, current, wanted, (up, down), expect) in table {
        let now = Instant::now() + minutes(60);
        let windows = |up, down| Windows {
            up: Duration::from_secs(up),
            down: Duration::from_secs(down),
        };
        let mut history = History::default();
        for (replicas, before) in past {
            let at = now - Duration::from_secs(*before);
            history.stabilize_within(*replicas, current, windows(3600, 3600), at);
        }
        let stable = history.stabilize_within(wanted, current, windows(up, down), now);
        assert_eq!(
            (stable.replicas, stable.reason),
            expect,
            "{past:?} {wanted}"
        );
    }
}

#[test]
fn policies_bound_each_step() {
    let up = |pods, percent| rules(pods, percent, "Max");
    let least = |pods, percent| rules(pods, percent, "Min");
    // The rules of the direction, what was done and the seconds since, current, desired, expected.
    type Case = (
        HPAScalingRules,
        &'static [(i32, i32, u64)],
        i32,
        i32,
        (i32, &'static str),
    );
    let table: [Case; 14] = [
        (up((4, 60), (100, 60)), &[], 1, 50, (5, "ScaleUpLimit")),
        (up((4, 60), (100, 60)), &[], 100, 500, (200, "ScaleUpLimit")),
        (
            least((4, 60), (100, 60)),
            &[],
            100,
            500,
            (104, "ScaleUpLimit"),
        ),
        (up((0, 0), (10, 60)), &[], 5, 50, (6, "ScaleUpLimit")),
        (
            rules((4, 60), (0, 0), "Disabled"),
            &[],
            5,
            50,
            (5, "ScaleUpLimit"),
        ),
        // What was added this minute is no longer free.
        (
            up((4, 60), (0, 0)),
            &[(5, 8, 30)],
            8,
            50,
            (9, "ScaleUpLimit"),
        ),
        (
            up((4, 60), (0, 0)),
            &[(5, 8, 90)],
            8,
            50,
            (12, "ScaleUpLimit"),
        ),
        (
            up((4, 60), (0, 0)),
            &[(5, 9, 30), (9, 20, 20)],
            20,
            50,
            (20, "ScaleUpLimit"),
        ),
        (
            up((4, 60), (0, 0)),
            &[],
            999,
            5000,
            (1000, "TooManyReplicas"),
        ),
        (up((10, 60), (0, 0)), &[], 50, 10, (40, "ScaleDownLimit")),
        (up((0, 0), (10, 60)), &[], 75, 10, (67, "ScaleDownLimit")),
        (
            least((10, 60), (50, 60)),
            &[],
            50,
            10,
            (40, "ScaleDownLimit"),
        ),
        (
            up((10, 60), (0, 0)),
            &[(50, 45, 30)],
            45,
            10,
            (40, "ScaleDownLimit"),
        ),
        (up((1000, 60), (0, 0)), &[], 50, 0, (1, "TooFewReplicas")),
    ];
    for (rules, past, current, desired, expect) in table {
        let now = Instant::now() + minutes(60);
        let mut history = History::default();
        for (from, to, before) in past {
            let at = now - Duration::from_secs(*before);
            history.scaled(*from, *to, Some(&rules), at);
        }
        let behavior = HorizontalPodAutoscalerBehavior {
            scale_up: Some(rules.clone()),
            scale_down: Some(rules.clone()),
        };
        let wish = Wish {
            current,
            desired,
            least: 1,
            most: 1000,
        };
        let limited = by_behavior(wish, &behavior, &history, now);
        let told = (limited.replicas, limited.reason);
        assert_eq!(told, expect, "{rules:?} {past:?} {current} {desired}");
    }
}

#[test]
fn changes_count_within_their_period() {
    let rules = rules((10, 60), (100, 60), "Max");
    let now = Instant::now() + minutes(60);
    let mut history = History::default();
    let before = |seconds| now - Duration::from_secs(seconds);
    history.scaled(0, 7, Some(&rules), before(61));
    history.scaled(7, 12, Some(&rules), before(59));
    history.scaled(12, 10, Some(&rules), before(1));
    let period = Duration::from_secs(60);
    assert_eq!(history.before(10, period, now), 10 - 5 + 2);
    assert_eq!(history.before(10, Duration::from_secs(10), now), 10 + 2);
    // One that no policy looks at any more is let go of.
    history.scaled(10, 11, Some(&rules), now);
    let all = Duration::from_secs(3600);
    assert_eq!(history.before(11, all, now), 11 - 5 + 2 - 1);
}
