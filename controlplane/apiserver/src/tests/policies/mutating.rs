//! What mutating policies make of objects.

use super::*;

fn labels(answer: &Answer) -> &Value {
    &answer.body["metadata"]["labels"]
}

#[tokio::test]
async fn sidecars_and_labels_are_added() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let sidecar = "Object{metadata: Object.metadata{labels: {'mesh': 'on'}}, spec: Object.spec{\
        containers: [Object.spec.containers{name: 'mesh', image: variables.image}]}}";
    let spec = json!({"variables": [{"name": "image", "expression": "'proxy:' + string(size(object.spec.containers))"}],
        "matchConditions": [{"name": "once", "expression": "!has(object.metadata.uid) && !object.spec.containers.exists(c, c.name == 'mesh')"}],
        "mutations": [apply(sidecar)]});
    mutating(&admin, "sidecar", "pods", spec, json!({})).await;
    let answer = until(&admin, PODS, &pod("a", false), |answer| {
        labels(answer).is_object()
    })
    .await;
    assert_eq!(labels(&answer), &json!({"mesh": "on"}));
    assert!(answer.body["metadata"]["uid"].is_string());
    let containers = answer.body["spec"]["containers"]
        .as_array()
        .expect("a list");
    let shown: Vec<[&Value; 3]> = containers
        .iter()
        .map(|one| [&one["name"], &one["image"], &one["terminationMessagePath"]])
        .collect();
    let path = json!("/dev/termination-log");
    // What is added has its defaults.
    assert_eq!(
        shown,
        [
            [&json!("c"), &json!("i:1"), &path],
            [&json!("mesh"), &json!("proxy:1"), &path]
        ]
    );
}

#[tokio::test]
async fn patches_are_applied_in_order_unless_a_test_fails() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"mutations": [
        patch("has(object.metadata.labels) ? [JSONPatch{op: 'test', path: '/data/a', value: 'no'}, \
            JSONPatch{op: 'add', path: '/data/wrong', value: 'yes'}] : \
            [JSONPatch{op: 'add', path: '/metadata/labels', value: {'first': object.data.a}}]"),
        patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/second'), \
            value: object.metadata.labels.first + '2'}]"),
        patch("[JSONPatch{op: 'test', path: '/data/a', value: 'no'}, JSONPatch{op: 'remove', path: '/data/a'}]"),
    ]});
    mutating(&admin, "m", "configmaps", spec, json!({})).await;
    let answer = until(
        &admin,
        CONFIGMAPS,
        &configmap("c", json!({"a": "x"})),
        |answer| labels(answer).is_object(),
    )
    .await;
    assert_eq!(
        labels(&answer),
        &json!({"first": "x", "example.com/second": "x2"})
    );
    assert_eq!(answer.body["data"], json!({"a": "x"}));
}

#[tokio::test]
async fn what_a_mutation_may_not_do_refuses_or_is_left() {
    for (mutation, why) in [
        (
            apply(
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', command: ['x']}]}}",
            ),
            "policy 'm' with binding 'm-b' denied request: error applying patch: invalid ApplyConfiguration: may not \
             mutate atomic arrays, maps or structs: .spec.containers[0].command",
        ),
        (
            apply("Object{spec: Object.wrong{}}"),
            "policy 'm' with binding 'm-b' denied request: type mismatch: unexpected type name \"Object.wrong\", \
             expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (
            apply("Object{spec: Object.spec{unheard: 1}}"),
            "policy 'm' with binding 'm-b' denied request: error applying patch: failed to convert patch object to typed \
             object: Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.unheard\"",
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/spec/absent'}]"),
            "policy 'm' with binding 'm-b' denied request: JSON Patch: error in remove for path: '/spec/absent': Unable to \
             remove nonexistent key: absent: missing value",
        ),
        (
            apply("Object{metadata: Object.metadata{labels: {'a': object.spec.missing}}}"),
            "policy 'm' with binding 'm-b' denied request: expression 'Object{metadata: Object.metadata{labels: {'a': \
             object.spec.missing}}}' resulted in error: no such key: missing",
        ),
    ] {
        for policy in ["Fail", "Ignore"] {
            let Cluster {
                admin,
                keeping: _keeping,
                ..
            } = cluster().await;
            let spec = json!({"failurePolicy": policy, "mutations": [mutation,
                apply("Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}")]});
            mutating(&admin, "m", "pods", spec, json!({})).await;
            if policy == "Ignore" {
                let answer = until(&admin, PODS, &pod("a", false), |answer| {
                    labels(answer).is_object()
                })
                .await;
                assert_eq!(labels(&answer), &json!({"seen": "yes"}));
                continue;
            }
            let answer = refused(&admin, PODS, &pod("a", false)).await;
            let found = (
                answer.code,
                answer.body["reason"].as_str(),
                answer.message(),
            );
            assert_eq!(found, (403, Some("Invalid"), why));
        }
    }
}

/// A field that the kind does not have is told whatever the policy says of failures; of a custom
/// resource it would be left out.
#[tokio::test]
async fn a_patch_names_no_field_that_the_kind_does_not_have() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"failurePolicy": "Ignore",
        "mutations": [patch("[JSONPatch{op: 'add', path: '/spec/unheard', value: 1}]")]});
    mutating(&admin, "m", "pods", spec, json!({})).await;
    let answer = refused(&admin, PODS, &pod("a", false)).await;
    let why = "Internal error occurred: strict decoding error: unknown field \"spec.unheard\"";
    assert_eq!((answer.code, answer.message()), (500, why));
}

/// The first sees what the second has made of its work only if it asks for it.
#[tokio::test]
async fn policies_look_again_if_they_ask_for_it() {
    for (policy, expect) in [("Never", "1"), ("IfNeeded", "2")] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        let count =
            "Object{metadata: Object.metadata{labels: {'count': string(size(object.data))}}}";
        let spec = json!({"reinvocationPolicy": policy, "mutations": [apply(count)]});
        mutating(&admin, "a-first", "configmaps", spec, json!({})).await;
        let spec = json!({"mutations": [apply("Object{data: {'added': 'yes'}}")]});
        mutating(&admin, "b-second", "configmaps", spec, json!({})).await;
        let answer = until(
            &admin,
            CONFIGMAPS,
            &configmap("c", json!({"a": "x"})),
            |answer| labels(answer).is_object() && answer.body["data"]["added"] == "yes",
        )
        .await;
        assert_eq!(labels(&answer)["count"], expect, "{policy}");
    }
}

/// What is added belongs to nobody: an update without it takes it away unless the policy adds it
/// again. What a policy adds, a validating one sees.
#[tokio::test]
async fn custom_resources_are_changed_and_then_validated() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 80}}}}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gates.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "gates", "kind": "Gate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    made(&admin, definitions, definition).await;
    let spec = json!({"mutations": [apply(
        "Object{spec: Object.spec{ports: [Object.spec.ports{name: 'health'}]}}")]});
    mutating(&admin, "m", "example.org/gates", spec, json!({})).await;
    let spec = json!({"validations": [{"expression": "object.spec.ports.all(p, p.port < 1024)"}]});
    validating(&admin, "example.org/gates", spec, json!({})).await;
    let gate = |port: i64| {
        json!({"apiVersion": "example.org/v1", "kind": "Gate", "metadata": {"name": "g"},
            "spec": {"ports": [{"name": "a", "port": port}]}})
    };
    let gates = "/apis/example.org/v1/namespaces/default/gates";
    let answer = until(&admin, gates, &gate(443), |answer| {
        answer.body["spec"]["ports"]
            .as_array()
            .is_some_and(|ports| ports.len() == 2)
    })
    .await;
    assert_eq!(
        answer.body["spec"]["ports"],
        json!([{"name": "a", "port": 443}, {"name": "health", "port": 80}])
    );
    let answer = refused(&admin, gates, &gate(8080)).await;
    assert!(
        answer
            .message()
            .contains("failed expression: object.spec.ports.all")
    );
}
