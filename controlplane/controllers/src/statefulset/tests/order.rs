//! Scaling, in order and in parallel.

use super::*;

#[test]
fn pods_come_in_order_each_when_the_one_before_is_available() {
    let mut web = world(json!({}));
    for ordinal in 0..3 {
        let name = format!("web-{ordinal}");
        assert_eq!(web.round(), format!("create {name}"));
        assert_eq!(web.round(), "", "{name} is pending");
        web.becomes_ready(&name);
    }
    assert_eq!(web.round(), "");
    assert_eq!(web.status()["readyReplicas"], 3);
}

#[test]
fn pods_come_and_go_at_once_in_parallel() {
    let mut web = parallel(json!({}));
    assert_eq!(web.round(), "create web-0, create web-1, create web-2");
    assert_eq!(web.round(), "");
    web.set["spec"]["replicas"] = 1.into();
    assert_eq!(web.round(), "delete web-2, delete web-1");
    assert_eq!(web.round(), "", "they go");
}

#[test]
fn one_round_makes_a_bounded_number_of_pods() {
    let web = parallel(json!({"replicas": i32::MAX, "ordinals": {"start": 7}}));
    let plan = web.look(plan);
    let count: Vec<_> = plan.steps.iter().map(Vec::len).collect();
    assert_eq!(count, [500]);
    let web = parallel(json!({"replicas": 5, "ordinals": {"start": i32::MAX - 1}}));
    assert_eq!(
        web.planned(),
        "create web-2147483646, create web-2147483647"
    );
}

#[test]
fn pods_go_from_the_last_one_after_the_other() {
    let mut web = world(json!({"replicas": 1}))
        .has("web-0", "new")
        .has("web-1", "new")
        .has("web-2", "new");
    assert_eq!(web.round(), "delete web-2");
    assert_eq!(web.round(), "", "it goes");
    web.is_gone("web-2");
    assert_eq!(web.round(), "delete web-1");
    web.is_gone("web-1");
    assert_eq!(web.round(), "");
    assert_eq!(web.status()["replicas"], 1);
}

#[test]
fn nothing_goes_while_a_pod_that_stays_is_unwell() {
    let mut web = world(json!({"replicas": 1}))
        .has("web-0", "new")
        .has("web-1", "new");
    web.becomes_unready("web-0");
    assert_eq!(web.round(), "");
    web.becomes_ready("web-0");
    assert_eq!(web.round(), "delete web-1");
}

#[test]
fn of_those_too_many_the_first_that_is_unwell_holds_up_the_others() {
    let mut web = world(json!({"replicas": 0}))
        .has("web-0", "new")
        .has("web-1", "new")
        .has("web-2", "new");
    web.becomes_unready("web-1");
    assert_eq!(web.planned(), "delete web-2", "the last is well");
    web.becomes_unready("web-2");
    assert_eq!(web.planned(), "", "web-1 was unwell before");
    web.becomes_ready("web-1");
    assert_eq!(web.planned(), "delete web-2", "it alone is unwell");
}

#[test]
fn a_pod_that_goes_is_waited_for_before_its_place_is_taken() {
    for mut web in [world(json!({})), parallel(json!({}))] {
        web = web
            .has("web-0", "new")
            .has("web-1", "new")
            .has("web-2", "new");
        web.begins_to_go("web-1");
        assert_eq!(web.round(), "");
        web.is_gone("web-1");
        assert_eq!(web.round(), "create web-1");
    }
}

#[test]
fn a_pod_that_goes_holds_up_those_behind_it_in_order_alone() {
    let lacking = |web: World| {
        let mut web = web.has("web-0", "new");
        web.begins_to_go("web-0");
        web.planned()
    };
    assert_eq!(lacking(world(json!({}))), "");
    assert_eq!(lacking(parallel(json!({}))), "create web-1, create web-2");
}

#[test]
fn pods_that_have_ended_are_made_anew() {
    for phase in ["Failed", "Succeeded"] {
        let mut web = world(json!({}))
            .has("web-0", "new")
            .has("web-1", "new")
            .has("web-2", "new");
        web.pod("web-1")["status"] = json!({"phase": phase});
        assert_eq!(web.round(), "delete web-1", "{phase}");
        assert_eq!(web.round(), "");
        web.is_gone("web-1");
        assert_eq!(web.round(), "create web-1");
    }
    let mut web = parallel(json!({})).has("web-0", "old");
    web.fails("web-0");
    let planned = "delete web-0, create web-1, create web-2";
    assert_eq!(web.planned(), planned, "once, though its template is old");
}

#[test]
fn ordinals_begin_where_they_are_told_to() {
    let mut web = world(json!({"replicas": 2, "ordinals": {"start": 3}}));
    assert_eq!(web.round(), "create web-3");
    web.becomes_ready("web-3");
    assert_eq!(web.round(), "create web-4");
    web.becomes_ready("web-4");
    web.set["spec"]["ordinals"]["start"] = 4.into();
    assert_eq!(web.round(), "create web-5");
    web.becomes_ready("web-5");
    assert_eq!(web.round(), "delete web-3", "it is before the first");
    web.is_gone("web-3");
    assert_eq!(web.round(), "");
}

#[test]
fn a_pod_counts_once_it_has_been_ready_for_long_enough() {
    let mut web = world(json!({"minReadySeconds": 60})).has("web-0", "new");
    let since = |web: &World| (web.planned(), web.look(plan).again);
    let left = Some(std::time::Duration::from_secs(50));
    assert_eq!(since(&web), (String::new(), left));
    let status = web.status();
    assert_eq!(
        (&status["readyReplicas"], &status["availableReplicas"]),
        (&json!(1), &json!(0))
    );
    web.set["spec"]["minReadySeconds"] = 10.into();
    assert_eq!(since(&web), ("create web-1".to_owned(), None));
}

#[test]
fn a_set_that_goes_does_nothing_and_counts_on() {
    let mut web = world(json!({})).has("web-0", "new").has("web-7", "new");
    web.set["metadata"]["deletionTimestamp"] = "1970-01-12T13:46:40Z".into();
    assert_eq!(web.planned(), "");
    assert_eq!(web.status()["replicas"], 2);
}

#[test]
fn the_status_counts_what_is_there() {
    let mut web = world(json!({}))
        .has("web-0", "old")
        .has("web-1", "new")
        .has("web-2", "new")
        .has("web-3", "old");
    web.current = "old";
    web.becomes_unready("web-1");
    web.begins_to_go("web-3");
    web.set["status"] = json!({"replicas": 0, "collisionCount": 2, "conditions": [{"type": "Mine", "status": "True"}]});
    assert_eq!(
        web.status(),
        json!({
            "replicas": 4, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 1, "updatedReplicas": 2,
            "currentRevision": "old", "updateRevision": "new", "observedGeneration": 2, "collisionCount": 2,
            "conditions": [{"type": "Mine", "status": "True"}],
        })
    );
    let status = web.look(super::super::status::status);
    let differs = |old: Value| {
        let old = serde_json::from_value(old).unwrap();
        super::super::status::differs(Some(&old), Some(&status))
    };
    assert!(!differs(json!(status)) && differs(json!({"replicas": 4})));
}
