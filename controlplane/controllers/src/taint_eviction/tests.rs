//! Which pods go from a tainted node, and when.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn taint(key: &str, seconds_ago: i64) -> Taint {
    let since = Timestamp::from_second(1_000_000 - seconds_ago).unwrap();
    Taint {
        key: key.into(),
        effect: NO_EXECUTE.into(),
        time_added: Some(Time(since)),
        value: None,
    }
}

fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        effect: Some(NO_EXECUTE.into()),
        toleration_seconds: seconds,
        value: None,
    }
}

#[test]
fn pod_stays_as_long_as_it_tolerates_the_taint() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let default = Duration::from_secs(120);
    let anything = Toleration {
        operator: Some("Exists".into()),
        ..Toleration::default()
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let admitted = vec![toleration(UNREACHABLE, Some(300))];
    type Case = (&'static str, Vec<Taint>, Vec<Toleration>, Option<Duration>);
    let table: [Case; 9] = [
        (
            "as admitted",
            vec![taint(UNREACHABLE, 100)],
            admitted,
            seconds(20),
        ),
        ("no taint", vec![], vec![], None),
        (
            "by default",
            vec![taint(UNREACHABLE, 100)],
            vec![],
            seconds(20),
        ),
        (
            "by default, over",
            vec![taint(NOT_READY, 301)],
            vec![],
            seconds(0),
        ),
        (
            "unknown taint",
            vec![taint("maintenance", 0)],
            vec![],
            seconds(0),
        ),
        (
            "own seconds",
            vec![taint(UNREACHABLE, 5)],
            vec![toleration(UNREACHABLE, Some(10))],
            seconds(5),
        ),
        (
            "for ever",
            vec![taint(UNREACHABLE, 5000)],
            vec![toleration(UNREACHABLE, None)],
            None,
        ),
        (
            "everything",
            vec![taint("maintenance", 5)],
            vec![anything],
            None,
        ),
        (
            "the shortest counts",
            vec![taint(UNREACHABLE, 0), taint("maintenance", 0)],
            vec![
                toleration(UNREACHABLE, Some(30)),
                toleration("maintenance", Some(20)),
            ],
            seconds(20),
        ),
    ];
    for (why, taints, tolerations, expected) in table {
        let exposure = Exposure::next(None, &pod(None), &taints, now);
        assert_eq!(
            time_left(&exposure, &tolerations, default, now),
            expected,
            "{why}"
        );
    }
}

#[test]
fn the_first_toleration_that_matches_counts() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let for_a = |time| toleration("a", time);
    let of_anything = Toleration {
        operator: Some("Exists".into()),
        ..Toleration::default()
    };
    let of_any_for = |time| Toleration {
        toleration_seconds: Some(time),
        ..of_anything.clone()
    };
    let table: [(&[Toleration], Option<Duration>); 8] = [
        (&[for_a(Some(60)), for_a(Some(20))], seconds(60)),
        (&[for_a(Some(20)), for_a(Some(60))], seconds(20)),
        (&[for_a(None), for_a(Some(20))], None),
        (&[for_a(Some(20)), for_a(None)], seconds(20)),
        (&[of_anything.clone(), for_a(Some(20))], None),
        (
            &[toleration("b", Some(5)), of_any_for(30), for_a(Some(60))],
            seconds(30),
        ),
        (&[for_a(Some(0)), for_a(Some(60))], seconds(0)),
        (&[for_a(Some(-1)), for_a(None)], seconds(0)),
    ];
    for (tolerations, expected) in table {
        let exposure = Exposure::next(None, &pod(None), &[taint("a", 0)], now);
        assert_eq!(
            time_left(&exposure, tolerations, Duration::ZERO, now),
            expected,
            "{tolerations:?}"
        );
    }
    // Each taint has its own first; the pod goes when the first of these times is over.
    let taints = [taint("a", 0), taint("b", 0)];
    let exposure = Exposure::next(None, &pod(None), &taints, now);
    let tolerations = [for_a(Some(60)), toleration("b", Some(40)), of_any_for(5)];
    assert_eq!(
        time_left(&exposure, &tolerations, Duration::ZERO, now),
        seconds(40)
    );
}

#[test]
fn it_is_said_once_that_a_pod_goes() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let next =
        |before: Exposure, pod: &Pod| Exposure::next(Some(before), pod, &[taint("a", 0)], now);
    let mut exposure = Exposure::next(None, &pod(None), &[taint("a", 0)], now);
    assert!(exposure.tell());
    let mut again = next(exposure, &pod(None));
    assert!(!again.tell() && !again.tell());
    let namesake = Pod {
        metadata: kube::api::ObjectMeta::default(),
        ..pod(None)
    };
    assert!(next(again, &namesake).tell());
}

/// A pod that was bound so many seconds before the end of the tests' time.
fn pod(bound_ago: Option<i64>) -> Pod {
    let bound = bound_ago.map(|ago| Timestamp::from_second(1_000_000 - ago).unwrap());
    let conditions = bound.map(
        |at| json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": Time(at)}]),
    );
    let metadata = json!({"name": "p", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}}))
        .unwrap()
}

fn left_at(exposure: &mut Option<Exposure>, pod: &Pod, taint: &Taint, now: i64) -> u64 {
    let now = Timestamp::from_second(1_000_000 + now).unwrap();
    let next = Exposure::next(exposure.take(), pod, std::slice::from_ref(taint), now);
    let left = time_left(
        &next,
        &[toleration(&taint.key, Some(30))],
        Duration::ZERO,
        now,
    )
    .unwrap();
    *exposure = Some(next);
    left.as_secs()
}

#[test]
fn a_taint_without_a_time_evicts_once_the_toleration_is_over() {
    let bare = Taint {
        time_added: None,
        ..taint("maintenance", 0)
    };
    let mut exposure = None;
    let left: Vec<u64> = [0, 20, 31]
        .map(|now| left_at(&mut exposure, &pod(Some(500)), &bare, now))
        .into();
    assert_eq!(left, [30, 10, 0]);
}

#[test]
fn an_old_taint_gives_a_new_pod_its_full_time() {
    let yesterday = taint("maintenance", 86_400);
    let mut exposure = None;
    let left: Vec<u64> = [0, 20, 31]
        .map(|now| left_at(&mut exposure, &pod(Some(0)), &yesterday, now))
        .into();
    assert_eq!(left, [30, 10, 0]);
    assert_eq!(
        left_at(&mut None, &pod(Some(25)), &yesterday, 0),
        5,
        "known again after a restart"
    );
    assert_eq!(
        left_at(&mut None, &pod(Some(25)), &taint("maintenance", -60), 0),
        30,
        "clocks may differ"
    );
}

#[test]
fn a_node_that_is_down_in_another_way_is_down_as_long() {
    let mut exposure = None;
    assert_eq!(
        left_at(&mut exposure, &pod(Some(500)), &taint(NOT_READY, 20), 0),
        10
    );
    assert_eq!(
        left_at(&mut exposure, &pod(Some(500)), &taint(UNREACHABLE, -5), 5),
        5
    );
    // Another taint, or the same one set anew, starts anew; so does a namesake of the pod.
    assert_eq!(
        left_at(&mut exposure, &pod(Some(500)), &taint("maintenance", -5), 5),
        30
    );
    assert_eq!(
        left_at(&mut exposure, &pod(Some(500)), &taint("maintenance", -9), 9),
        30
    );
    let namesake = Pod {
        metadata: kube::api::ObjectMeta::default(),
        ..pod(Some(-9))
    };
    assert_eq!(
        left_at(&mut exposure, &namesake, &taint("maintenance", -9), 19),
        20
    );
}
