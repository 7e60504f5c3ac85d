mod kubectl;

use serde_json::json;

use super::*;
use crate::{resource::Gvk, schema::table};

fn patched(kind: &str, object: &Value, patch: &Value) -> Result<Value, u16> {
    let group = if kind == "Deployment" { "apps" } else { "" };
    let ty = table()
        .by_gvk(&Gvk::new(group, "v1", kind))
        .expect("a kind");
    apply(ty, object, patch.to_string().as_bytes()).map_err(|s| s.code)
}

fn pod(containers: &Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn lists_merge_by_their_key() {
    let object = pod(
        &json!([{"name": "a", "image": "x", "env": [{"name": "K", "value": "1"}]}, {"name": "b"}]),
    );
    let patch = pod(&json!([{"name": "a", "image": "y", "env": [{"name": "L", "value": "2"}]}]));
    let expect = pod(&json!([
        {"name": "a", "image": "y", "env": [{"name": "L", "value": "2"}, {"name": "K", "value": "1"}]},
        {"name": "b"}
    ]));
    assert_eq!(patched("Pod", &object, &patch), Ok(expect));
}

#[test]
fn new_elements_come_before_the_servers_own() {
    let object = pod(&json!([{"name": "a"}, {"name": "b"}]));
    let expect = pod(&json!([{"name": "c"}, {"name": "a"}, {"name": "b"}]));
    assert_eq!(
        patched("Pod", &object, &pod(&json!([{"name": "c"}]))),
        Ok(expect)
    );
}

#[test]
fn the_order_that_kubectl_asks_for_is_kept() {
    let object = pod(&json!([{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]));
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "i"}],
    }});
    let names = |v: &Value| -> Vec<String> {
        let list = v["spec"]["containers"].as_array().expect("containers");
        list.iter()
            .map(|c| c["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let result = patched("Pod", &object, &patch).expect("a patch");
    assert_eq!(names(&result), ["sidecar", "b", "c", "a"]);
    assert!(result["spec"].get("$setElementOrder/containers").is_none());
}

#[test]
fn directives_delete_and_replace() {
    let object = pod(&json!([{"name": "a", "image": "x"}, {"name": "b"}]));
    let table = [
        (
            pod(&json!([{"name": "a", "$patch": "delete"}])),
            pod(&json!([{"name": "b"}])),
        ),
        (
            pod(&json!([{"$patch": "replace"}, {"name": "c"}])),
            pod(&json!([{"name": "c"}])),
        ),
        (
            json!({"spec": {"$patch": "replace", "nodeName": "n"}}),
            json!({"spec": {"nodeName": "n"}}),
        ),
        (json!({"spec": {"$patch": "delete"}}), json!({"spec": {}})),
        (json!({"spec": {"containers": null}}), json!({"spec": {}})),
        (
            pod(&json!([{"name": "gone", "$patch": "delete"}])),
            object.clone(),
        ),
    ];
    for (patch, expect) in table {
        assert_eq!(patched("Pod", &object, &patch), Ok(expect), "{patch}");
    }
}

#[test]
fn lists_of_single_values_merge_and_shrink() {
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}});
    let result = patched("Pod", &object, &patch).expect("a patch");
    let mut left: Vec<&str> = result["metadata"]["finalizers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["b", "c"]);
    let ordered = json!({"metadata": {
        "$setElementOrder/finalizers": ["b", "c"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "finalizers": ["c"],
    }});
    let expect = json!({"metadata": {"finalizers": ["b", "c"]}});
    assert_eq!(patched("Pod", &object, &ordered), Ok(expect));
}

#[test]
fn lists_without_a_key_are_replaced() {
    let object = pod(&json!([{"name": "a", "args": ["1", "2"]}]));
    let patch = pod(&json!([{"name": "a", "args": ["3"]}]));
    assert_eq!(patched("Pod", &object, &patch), Ok(patch));
}

#[test]
fn retained_keys_are_all_that_is_left() {
    let object =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let expect = json!({"spec": {"strategy": {"type": "Recreate"}}});
    assert_eq!(patched("Deployment", &object, &patch), Ok(expect));
    let wrong = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
    assert_eq!(patched("Deployment", &object, &wrong), Err(400));
}

#[test]
fn directives_of_absent_members_leave_no_trace() {
    let patch = json!({"spec": {
        "$setElementOrder/volumes": [{"name": "v"}],
        "volumes": [{"name": "v", "emptyDir": {"$patch": "replace", "medium": null}}],
        "nodeSelector": {"a": "b", "c": null},
        "securityContext": {"$retainKeys": ["runAsUser"], "runAsUser": 5},
    }});
    let expect = json!({"spec": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"a": "b"},
        "securityContext": {"runAsUser": 5},
    }});
    assert_eq!(patched("Pod", &json!({}), &patch), Ok(expect));
}

#[test]
fn what_is_malformed_or_does_not_fit_is_refused() {
    let object = pod(&json!([{"name": "a"}]));
    let table = [
        (json!({"spec": {"$patch": "shuffle"}}), 400),
        (pod(&json!([{"image": "no-name"}])), 422),
        (pod(&json!([{"name": "a", "$patch": "merge"}])), 400),
        (pod(&json!([1])), 422),
        (json!({"spec": {"$setElementOrder/containers": 5}}), 400),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            400,
        ),
    ];
    for (patch, code) in table {
        assert_eq!(patched("Pod", &object, &patch), Err(code), "{patch}");
    }
}

#[test]
fn service_ports_merge_by_port() {
    let object = json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "targetPort": "web"}, {"port": 443}]}});
    let result = patched("Service", &object, &patch).expect("a patch");
    assert_eq!(
        result["spec"]["ports"],
        json!([{"port": 80, "nodePort": 30000, "targetPort": "web"}, {"port": 443}])
    );
}

#[test]
fn conditions_merge_by_type_in_status_patches() {
    let object = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]}});
    let patch = json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Initialized"}], "conditions": [{"type": "Ready", "status": "True"}]}});
    let expect = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]}});
    assert_eq!(patched("Pod", &object, &patch), Ok(expect));
}

#[test]
fn long_lists_merge_in_linear_time() {
    const ELEMENTS: usize = 30_000;
    let env = |from: usize, value: &str| -> Vec<Value> {
        (from..from + ELEMENTS)
            .map(|n| json!({"name": format!("K{n}"), "value": value}))
            .collect()
    };
    let object = pod(&json!([{"name": "a", "env": env(0, "old")}]));
    let mut changed = env(ELEMENTS / 2, "new");
    changed.push(json!({"name": "K0", "$patch": "delete"}));
    let order: Vec<Value> = changed
        .iter()
        .take(ELEMENTS)
        .map(|e| json!({"name": e["name"]}))
        .collect();
    let finalizers: Vec<String> = (0..ELEMENTS).map(|n| format!("example.com/{n}")).collect();
    let patch = json!({
        "metadata": {"finalizers": finalizers},
        "spec": {"containers": [{"name": "a", "env": changed, "$setElementOrder/env": order}]},
    });
    let started = std::time::Instant::now();
    let result = patched("Pod", &object, &patch).expect("a patch");
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    let env = result["spec"]["containers"][0]["env"]
        .as_array()
        .expect("env");
    assert_eq!(
        (env.len(), &env[0]["name"]),
        (ELEMENTS / 2 * 3 - 1, &json!("K1"))
    );
    let again = patched(
        "Pod",
        &result,
        &json!({"metadata": {"finalizers": finalizers}}),
    )
    .expect("a patch");
    assert_eq!(again, result);
}
