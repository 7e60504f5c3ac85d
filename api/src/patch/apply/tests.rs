mod properties;
mod versions;

use serde_json::json;

use super::*;
use crate::{
    resource::Gvk,
    schema::{Schema, table},
};

fn deployment() -> Schema {
    let found = table().by_gvk(&Gvk::new("apps", "v1", "Deployment"));
    Schema::BuiltIn(found.expect("Deployment"))
}

fn by<'a>(manager: &'a str, time: &'a str) -> Writer<'a> {
    Writer {
        manager,
        api_version: "apps/v1",
        subresource: "",
        time,
    }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
}

fn applied(live: Option<&Value>, spec: &Value, manager: &str) -> Value {
    apply(&deployment(), live, &object(spec), by(manager, "T1"), false).expect("no conflict")
}

fn containers(list: &Value) -> Value {
    json!({"template": {"spec": {"containers": list}}})
}

#[test]
fn elements_that_cannot_be_told_apart_are_refused() {
    let table = [
        (
            json!([{"image": "i"}]),
            r#".spec.template.spec.containers: element 0: associative list with keys has an element that omits key field "name" (and doesn't have default value)"#,
        ),
        (
            json!([{"name": "a"}, {"name": "a"}]),
            r#".spec.template.spec.containers: duplicate entries for key {"name":"a"}"#,
        ),
    ];
    for (list, why) in table {
        let refused = apply(
            &deployment(),
            None,
            &object(&containers(&list)),
            by("m", "T1"),
            true,
        )
        .unwrap_err();
        assert_eq!(
            refused.message,
            format!("failed to create typed patch object: {why}")
        );
    }
}

#[test]
fn what_is_merged_is_nobodys_and_replaces_nothing_as_a_whole() {
    let live = object(&containers(&json!([{"name": "a", "image": "x"}])));
    let merged = |config: &Value| merge(&deployment(), &live, &object(config));
    assert_eq!(
        merged(&containers(
            &json!([{"name": "b"}, {"name": "a", "tty": true}])
        )),
        Ok(object(&containers(
            &json!([{"name": "b"}, {"name": "a", "image": "x", "tty": true}])
        )))
    );
    for (config, why) in [
        (
            containers(
                &json!([{"name": "a", "command": ["x"], "resources": {"claims": [{"name": "c"}]}}]),
            ),
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: \
             .spec.template.spec.containers[0].command",
        ),
        (
            json!({"selector": {"matchLabels": {"a": "b"}}}),
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            containers(&json!([{"image": "x"}])),
            "failed to convert patch object to typed object: .spec.template.spec.containers: element 0: \
             associative list with keys has an element that omits key field \"name\" (and doesn't have default value)",
        ),
    ] {
        assert_eq!(merged(&config), Err(why.to_owned()));
    }
}

#[test]
fn a_created_object_belongs_to_its_applier() {
    let created = applied(
        None,
        &containers(&json!([{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}])),
        "m",
    );
    assert_eq!(
        created["metadata"]["managedFields"],
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "apps/v1", "time": "T1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}}}])
    );
}

#[test]
fn paths_of_unknown_kinds_own_nothing() {
    for stray in [
        "-:template",
        "n:template",
        "v:template",
        "k:template",
        "template",
        ".",
    ] {
        let config = containers(&json!([{"name": "a", "image": "i"}]));
        let mut live = applied(None, &config, "m");
        live["metadata"]["managedFields"][0]["fieldsV1"] =
            json!({"f:spec": {"f:replicas": {}, stray: {"f:spec": {}}}});
        let again = applied(Some(&live), &config, "m");
        assert_eq!(again["spec"], config, "{stray}");
    }
}

#[test]
fn paths_in_two_spellings_are_one() {
    let spellings = json!({"f:b": {}, "k:{\"name\": \"a\"}": {"f:x": {}}, "k:{\"name\":\"a\"}": {"f:y": {}}, "f:a": {}});
    let mut set = Set::read(&spellings);
    assert_eq!(
        set.write(),
        json!({"f:a": {}, "f:b": {}, "k:{\"name\":\"a\"}": {"f:y": {}}})
    );
    set.merge(&Set::read(&json!({"f:aa": {}, "f:b": {"f:c": {}}})));
    set.remove(&["k:{\"name\":\"a\"}".to_owned(), "f:y".to_owned()]);
    set.prune();
    assert_eq!(
        set.write(),
        json!({"f:a": {}, "f:aa": {}, "f:b": {".": {}, "f:c": {}}})
    );
}

#[test]
fn fields_that_the_applier_drops_go_and_those_of_others_stay() {
    let live = applied(
        None,
        &json!({"replicas": 3, "minReadySeconds": 5, "paused": true}),
        "m",
    );
    let live = applied(Some(&live), &json!({"minReadySeconds": 5}), "other");
    let live = applied(Some(&live), &json!({"paused": true}), "m");
    assert_eq!(live["spec"], json!({"paused": true, "minReadySeconds": 5}));
    let live = applied(Some(&live), &json!({}), "other");
    assert_eq!(live["spec"], json!({"paused": true}));
}

#[test]
fn list_elements_merge_by_key_and_go_with_their_owner() {
    let live = applied(
        None,
        &containers(&json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])),
        "m",
    );
    let live = applied(
        Some(&live),
        &containers(&json!([{"name": "s", "image": "2"}])),
        "sidecars",
    );
    let live = applied(
        Some(&live),
        &containers(&json!([{"name": "b", "image": "3"}])),
        "m",
    );
    let list = &live["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        *list,
        json!([{"name": "b", "image": "3"}, {"name": "s", "image": "2"}])
    );
}

#[test]
fn what_another_manager_owns_is_a_conflict_unless_forced() {
    let live = applied(
        None,
        &containers(&json!([{"name": "a", "image": "1"}])),
        "m",
    );
    let config = object(&containers(&json!([{"name": "a", "image": "2"}])));
    let error =
        apply(&deployment(), Some(&live), &config, by("n", "T2"), false).expect_err("a conflict");
    let path = r#".spec.template.spec.containers[name="a"].image"#;
    assert_eq!(
        error.message,
        format!("Apply failed with 1 conflict: conflict with \"m\": {path}")
    );
    let cause = &error.details.expect("details").causes[0];
    assert_eq!(
        (cause.kind.as_str(), cause.field.as_str()),
        ("FieldManagerConflict", path)
    );
    let live = apply(&deployment(), Some(&live), &config, by("n", "T2"), true).expect("forced");
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["image"],
        "2"
    );
    // The field is n's now: m may drop it without removing it.
    let live = applied(Some(&live), &containers(&json!([{"name": "a"}])), "m");
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["image"],
        "2"
    );
}

#[test]
fn owner_of_an_empty_map_keeps_nobody_from_removing_what_is_in_it() {
    let of_two = applied(None, &json!({"replicas": 3}), "two");
    let of_both = applied(Some(&of_two), &json!({}), "one");
    assert_eq!(of_both["spec"], json!({"replicas": 3}));
    assert_eq!(
        applied(Some(&of_both), &json!({}), "two")["spec"],
        json!({})
    );
}

#[test]
fn kubectl_takes_over_from_its_client_side_apply() {
    let mut live = object(&containers(&json!([{"name": "a", "image": "1"}])));
    live["spec"]["replicas"] = json!(1);
    let last = live.to_string();
    meta::set_annotation(&mut live, LAST_APPLIED, &last);
    track(
        &deployment(),
        None,
        &mut live,
        by("kubectl-client-side-apply", "T1"),
    );
    let mut wanted = object(&containers(&json!([{"name": "a", "image": "2"}])));
    wanted["spec"]["replicas"] = json!(1);
    let other = apply(
        &deployment(),
        Some(&live),
        &wanted,
        by("other", "T2"),
        false,
    );
    assert_eq!(other.map_err(|status| status.code), Err(409));
    let taken = apply(
        &deployment(),
        Some(&live),
        &wanted,
        by("kubectl", "T2"),
        false,
    )
    .expect("its own");
    assert_eq!(
        taken["spec"]["template"]["spec"]["containers"][0]["image"],
        "2"
    );
    // What somebody has changed since is not its own any more.
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = json!(7);
    track(&deployment(), Some(&live), &mut scaled, by("hpa", "T2"));
    let error = apply(
        &deployment(),
        Some(&scaled),
        &wanted,
        by("kubectl", "T3"),
        false,
    )
    .expect_err("a conflict");
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"hpa\" using apps/v1 at T2: .spec.replicas"
    );
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut live = object(&json!({"replicas": 1, "paused": true}));
    track(&deployment(), None, &mut live, by("kubectl", "T1"));
    let error = apply(
        &deployment(),
        Some(&live),
        &object(&json!({"replicas": 2, "paused": false})),
        by("n", "T2"),
        false,
    );
    assert_eq!(
        error.expect_err("conflicts").message,
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1 at T1:\n- .spec.paused\n- .spec.replicas"
    );
}

#[test]
fn equal_values_are_shared() {
    let live = applied(None, &json!({"replicas": 3}), "m");
    let live = applied(Some(&live), &json!({"replicas": 3}), "n");
    let live = applied(Some(&live), &json!({}), "m");
    assert_eq!(live["spec"]["replicas"], 3);
}

#[test]
fn other_writes_take_what_they_change() {
    let live = applied(None, &json!({"replicas": 3, "paused": true}), "m");
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = json!(5);
    track(&deployment(), Some(&live), &mut scaled, by("hpa", "T2"));
    let entries = scaled["metadata"]["managedFields"]
        .as_array()
        .expect("entries")
        .clone();
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(
        (&entries[1]["manager"], &entries[1]["fieldsV1"]),
        (&json!("hpa"), &json!({"f:spec": {"f:replicas": {}}}))
    );
    // An applier that names the field again meets its new owner.
    let error = apply(
        &deployment(),
        Some(&scaled),
        &object(&json!({"replicas": 3})),
        by("m", "T3"),
        false,
    );
    assert_eq!(error.map_err(|s| s.code), Err(409));
    // A write that changes nothing owns nothing.
    let mut same = scaled.clone();
    track(&deployment(), Some(&scaled), &mut same, by("noop", "T4"));
    assert_eq!(same, scaled);
}

#[test]
fn fields_that_vanish_are_forgotten() {
    let live = applied(None, &json!({"replicas": 3, "paused": true}), "m");
    let mut edited = live.clone();
    meta::remove(&mut edited, &["spec", "paused"]);
    track(&deployment(), Some(&live), &mut edited, by("editor", "T2"));
    assert_eq!(
        edited["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}}})
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let live = applied(
        None,
        &json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}),
        "m",
    );
    let config = object(&json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}));
    assert_eq!(
        apply(&deployment(), Some(&live), &config, by("m", "T9"), false),
        Ok(live)
    );
}

#[test]
fn atomic_values_are_owned_as_a_whole() {
    let live = applied(None, &json!({"selector": {"matchLabels": {"a": "b"}}}), "m");
    assert_eq!(
        live["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:selector": {}}})
    );
}

#[test]
fn long_lists_are_applied_in_linear_time() {
    const ELEMENTS: usize = 10_000;
    let ports = |from: usize, name: &str| -> Value {
        let list = (from..from + ELEMENTS)
            .map(|n| json!({"containerPort": n + 1, "protocol": "TCP", "name": name}));
        containers(&json!([{"name": "a", "ports": list.collect::<Vec<_>>()}]))
    };
    let started = std::time::Instant::now();
    let live = applied(None, &ports(0, "x"), "m");
    let live = applied(Some(&live), &ports(ELEMENTS / 2, "x"), "n");
    let config = object(&ports(ELEMENTS / 2, "y"));
    let error =
        apply(&deployment(), Some(&live), &config, by("n", "T2"), false).expect_err("conflicts");
    assert_eq!(error.details.expect("details").causes.len(), ELEMENTS / 2);
    let mut live = apply(&deployment(), Some(&live), &config, by("n", "T2"), true).expect("forced");
    let before = live.clone();
    live["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"] = json!("z");
    track(&deployment(), Some(&before), &mut live, by("o", "T3"));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    let list = live["spec"]["template"]["spec"]["containers"][0]["ports"]
        .as_array()
        .expect("ports");
    assert_eq!(list.len(), ELEMENTS / 2 * 3);
}
