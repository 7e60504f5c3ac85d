//! Replacing pods of an older template.

use super::*;

/// Pods of which the numbered ones do not serve; `n` is of the new template, `o` of the old one,
/// `-` is missing, and `t` of the old one and going.
fn state(mut web: World, pods: &str, unready: &[usize]) -> World {
    web.current = "old";
    web.set["spec"]["replicas"] = pods.len().into();
    for (ordinal, revision) in pods.chars().enumerate() {
        let name = format!("web-{ordinal}");
        match revision {
            'n' => web = web.has(&name, "new"),
            'o' | 't' => web = web.has(&name, "old"),
            _ => continue,
        }
        if revision == 't' {
            web.begins_to_go(&name);
        }
        if unready.contains(&ordinal) {
            web.becomes_unready(&name);
        }
    }
    web
}

#[test]
fn old_pods_are_replaced_from_the_last_one_after_the_other() {
    let mut web = state(world(json!({})), "ooo", &[]);
    for ordinal in [2, 1, 0] {
        let name = format!("web-{ordinal}");
        assert_eq!(web.round(), format!("delete {name}"));
        assert_eq!(web.round(), "");
        web.is_gone(&name);
        assert_eq!(web.round(), format!("create {name}"));
        assert_eq!(web.round(), "");
        assert_eq!(web.status()["currentRevision"], "old");
        web.becomes_ready(&name);
    }
    assert_eq!(web.round(), "");
    let status = web.status();
    assert_eq!(
        (&status["currentRevision"], &status["currentReplicas"]),
        (&json!("new"), &json!(3)),
        "complete"
    );
}

#[test]
fn pods_below_the_partition_stay_and_come_again_as_they_were() {
    let spec = json!({"updateStrategy": rolling(2, json!(1))});
    let mut web = state(world(spec), "ooo", &[]);
    assert_eq!(web.round(), "delete web-2");
    web.is_gone("web-2");
    assert_eq!(web.round(), "create web-2");
    web.becomes_ready("web-2");
    assert_eq!(web.round(), "");
    assert_eq!(web.status()["currentRevision"], "old", "not complete");
    web.is_gone("web-1");
    assert_eq!(web.round(), "create web-1 of old");
    web.becomes_ready("web-1");
    web.set["spec"]["updateStrategy"] = rolling(9, json!(1));
    web.is_gone("web-2");
    assert_eq!(web.round(), "create web-2 of old");
}

#[test]
fn a_partition_counts_from_the_first_ordinal() {
    let spec =
        json!({"ordinals": {"start": 5}, "replicas": 2, "updateStrategy": rolling(1, json!(1))});
    let mut web = world(spec).has("web-5", "old").has("web-6", "old");
    web.current = "old";
    assert_eq!(web.planned(), "delete web-6");
    web.is_gone("web-5");
    assert_eq!(web.planned(), "create web-5 of old");
}

#[test]
fn on_delete_leaves_it_to_others() {
    let mut web = state(
        world(json!({"updateStrategy": {"type": "OnDelete"}})),
        "ooo",
        &[],
    );
    assert_eq!(web.round(), "");
    web.is_gone("web-1");
    assert_eq!(web.round(), "create web-1");
    web.becomes_ready("web-1");
    assert_eq!(web.status()["currentRevision"], "old", "it never completes");
}

#[test]
fn scaling_comes_before_replacing() {
    let mut web = state(world(json!({})), "ooo", &[]);
    web.set["spec"]["replicas"] = 2.into();
    assert_eq!(web.round(), "delete web-2");
    assert_eq!(web.round(), "");
    web.is_gone("web-2");
    assert_eq!(web.round(), "delete web-1");
}

#[test]
fn in_order_a_template_that_does_not_work_stops_at_its_first_pod() {
    let mut web = state(world(json!({})), "oon", &[2]);
    assert_eq!(web.round(), "");
    // Back to the former template: the pod that does not work stays until somebody deletes it.
    (web.current, web.update) = ("old", "old");
    assert_eq!(web.round(), "");
    web.begins_to_go("web-2");
    web.is_gone("web-2");
    assert_eq!(web.round(), "create web-2 of old");
}

/// Source: `TestGetStatefulSetMaxUnavailable`.
#[test]
fn a_share_of_the_pods_is_rounded_down_and_at_least_one() {
    for (number, replicas, expect) in [
        (Value::Null, 10, 1),
        (json!(3), 10, 3),
        (json!(3), 0, 3),
        (json!(0), 0, 1),
        (json!("10%"), 25, 2),
        (json!("100%"), 5, 5),
        (json!("50%"), 5, 2),
        (json!("10%"), 5, 1),
        (json!("1%"), 0, 1),
        (json!("0%"), 0, 1),
    ] {
        let web =
            world(json!({"replicas": replicas, "updateStrategy": rolling(0, number.clone())}));
        let found = web.look(|view| view.max_unavailable());
        assert_eq!(found, expect, "{number} of {replicas}");
    }
}

/// What is deleted of pods in this state.
fn rolled(order: &str, pods: &str, unready: &[usize], strategy: Value) -> String {
    let spec = json!({"podManagementPolicy": order, "updateStrategy": strategy});
    let planned = state(world(spec), pods, unready).planned();
    planned.replace("delete web-", "")
}

#[test]
fn as_many_are_replaced_at_once_as_may_be_missing() {
    let ordered = |pods: &str, unready: &[usize], max: Value| {
        rolled("OrderedReady", pods, unready, rolling(0, max))
    };
    assert_eq!(ordered("ooooo", &[], json!(2)), "4, 3");
    assert_eq!(ordered("ooooo", &[], json!("60%")), "4, 3, 2");
    assert_eq!(
        ordered("ooonn", &[4], json!(2)),
        "",
        "in order it is waited for"
    );
    assert_eq!(ordered("ooonn", &[], json!(2)), "2, 1");
    let partitioned = rolled("OrderedReady", "ooooo", &[], rolling(4, json!(3)));
    assert_eq!(partitioned, "4");
}

#[test]
fn in_parallel_what_is_missing_counts_wherever_it_is() {
    let rolled = |pods: &str, unready: &[usize], max: Value| {
        rolled("Parallel", pods, unready, rolling(0, max))
    };
    assert_eq!(rolled("ooooo", &[], json!(2)), "4, 3");
    assert_eq!(rolled("ooonn", &[4], json!(2)), "2");
    assert_eq!(rolled("ooonn", &[3, 4], json!(2)), "");
    assert_eq!(rolled("nnoon", &[0], json!(2)), "3", "also below");
    assert_eq!(rolled("ooot", &[], json!(1)), "", "one goes already");
    assert_eq!(rolled("oo-", &[], json!(1)), "create web-2", "one comes");
}

/// Source: kubernetes/kubernetes#137666.
#[test]
fn in_parallel_old_pods_that_do_not_serve_go_at_once() {
    let rolled = |pods: &str, unready: &[usize], strategy: Value| {
        rolled("Parallel", pods, unready, strategy)
    };
    let one = || rolling(0, json!(1));
    assert_eq!(rolled("o", &[0], one()), "0", "the only one");
    assert_eq!(
        rolled("ooooo", &[0, 1, 2], one()),
        "2, 1, 0",
        "none that serves"
    );
    assert_eq!(rolled("ooooo", &[0], rolling(0, json!(3))), "0, 4, 3");
    assert_eq!(rolled("ooonn", &[1, 4], one()), "1");
    assert_eq!(
        rolled("ooooo", &[0, 3], rolling(2, json!(1))),
        "3",
        "not below the partition"
    );
    assert_eq!(
        rolled("otooo", &[1], one()),
        "",
        "the one that goes is on its way"
    );
}
