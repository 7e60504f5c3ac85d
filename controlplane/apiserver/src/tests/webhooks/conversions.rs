//! What webhooks and policies see of a kind that a conversion webhook converts, where their rules
//! ask for another version than the request's.

use super::*;
use crate::tests::custom_resources::webhook::{ENDS, ENDS_V2, Mode, end, end_in_v2, served};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const REFUSED: &str = "conversion webhook for example.org/v2, Kind=End failed: connection refused";

/// A rule about ends of one version.
fn of_version(version: &str) -> Value {
    json!({"operations": ["*"], "apiGroups": ["example.org"], "apiVersions": [version],
        "resources": ["ends", "ends/status"]})
}

fn asked_of(version: &str) -> Value {
    json!({"rules": [of_version(version)]})
}

#[tokio::test]
async fn webhooks_are_shown_the_version_that_they_ask_for() {
    let (server, admin, converter) = served().await;
    let hooks = [
        Hook::allowing().await,
        Hook::allowing().await,
        Hook::allowing().await,
    ];
    let webhooks = [
        hooks[0].webhook("a", asked_of("v1")),
        hooks[1].webhook("b", asked_of("v1")),
        hooks[2].webhook(
            "c",
            json!({"rules": [of_version("v1")], "matchPolicy": "Exact"}),
        ),
    ];
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    assert_eq!(admin.post(ENDS_V2, end_in_v2("a", "h", "1")).await.0, 201);
    converter.calls();
    let one = format!("{ENDS_V2}/a");
    let (code, changed) = admin.merge(&one, json!({"spec": {"port": "2"}})).await;
    assert_eq!((code, &changed["spec"]["port"]), (200, &json!("2")));
    // What is stored and read, then the old object and the new one, once each for both webhooks.
    let calls = converter.calls();
    for hook in &hooks[..2] {
        let asked = hook.asked().pop().unwrap();
        let of = |what: &str| {
            (
                asked[what]["apiVersion"].clone(),
                asked[what]["spec"]["hostPort"].clone(),
            )
        };
        assert_eq!(
            of("object"),
            (json!("example.org/v1"), json!("h:2")),
            "{asked}"
        );
        assert_eq!(
            of("oldObject"),
            (json!("example.org/v1"), json!("h:1")),
            "{asked}"
        );
        assert_eq!(
            (&asked["kind"]["version"], &asked["requestKind"]["version"]),
            (&json!("v1"), &json!("v2"))
        );
        assert_eq!(
            asked["object"]["metadata"]["uid"],
            changed["metadata"]["uid"]
        );
    }
    admin.delete(&format!("{VALIDATING}/c"), json!({})).await;
    server.state.store.cache.catch_up().await.unwrap();
    admin.merge(&one, json!({"spec": {"port": "3"}})).await;
    assert_eq!(calls - converter.calls(), 2);
    assert_eq!(hooks[2].asked().len(), 0);
}

#[tokio::test]
async fn what_goes_is_shown_in_the_version_that_is_asked_for() {
    let (server, admin, _converter) = served().await;
    let hook = Hook::allowing().await;
    let webhooks = [hook.webhook("a", asked_of("v2"))];
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    admin.post(ENDS, end("a", "h:1")).await;
    assert_eq!(admin.delete(&format!("{ENDS}/a"), json!({})).await.0, 200);
    let asked = hook.asked().pop().unwrap();
    assert_eq!(
        (&asked["operation"], &asked["object"]),
        (&json!("DELETE"), &Value::Null)
    );
    assert_eq!(asked["oldObject"]["spec"]["host"], "h");
}

#[tokio::test]
async fn a_patch_in_another_version_is_taken_back() {
    let (server, admin, converter) = served().await;
    let first = Hook::that(patch(json!([
        {"op": "replace", "path": "/spec/hostPort", "value": "g:7"},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
        {"op": "add", "path": "/metadata/labels", "value": {"by": "first"}}])))
    .await;
    let second = Hook::that(patch(
        json!([{"op": "add", "path": "/spec/replicas", "value": 3}]),
    ))
    .await;
    let own = Hook::allowing().await;
    let webhooks = [
        first.webhook("a", asked_of("v1")),
        second.webhook("b", asked_of("v1")),
        own.webhook("c", asked_of("v2")),
    ];
    configure(&server, &admin, MUTATING, "c", &webhooks).await;
    let (code, made) = admin.post(ENDS_V2, end_in_v2("a", "h", "1")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["apiVersion"], "example.org/v2");
    assert_eq!(
        made["spec"],
        json!({"host": "g", "port": "7", "replicas": 3})
    );
    assert_eq!(made["metadata"]["labels"], json!({"by": "first"}));
    let seen = second.asked().remove(0);
    assert_eq!(seen["object"]["spec"]["hostPort"], "g:7");
    assert_eq!(seen["object"]["spec"].get("nonsense"), None);
    let seen = own.asked().remove(0);
    assert_eq!(
        seen["object"]["spec"],
        json!({"host": "g", "port": "7", "replicas": 3})
    );
    // To the first, back from both, to the store, and for the answer.
    assert_eq!(converter.calls(), 5);
    // Who owns what is told in the version of the request.
    let managers = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "{managers:?}");
    assert_eq!(managers[0]["apiVersion"], "example.org/v2");
    assert_eq!(
        managers[0]["fieldsV1"]["f:spec"],
        json!({"f:host": {}, "f:port": {}, "f:replicas": {}})
    );
}

#[tokio::test]
async fn what_cannot_be_converted_ends_a_write_whatever_the_failure_policy_says() {
    for (path, wrapped) in [(VALIDATING, 1), (MUTATING, 2)] {
        let (server, admin, converter) = served().await;
        let hook = Hook::allowing().await;
        let changes = json!({"rules": [of_version("v2")], "failurePolicy": "Ignore"});
        configure(&server, &admin, path, "c", &[hook.webhook("a", changes)]).await;
        converter.set(Mode::Refuses);
        let (code, message) = make(&admin, ENDS, end("a", "h:1")).await;
        let why = "conversion webhook for example.org/v1, Kind=End failed: connection refused";
        let expect = format!("{}{why}", "Internal error occurred: ".repeat(wrapped));
        assert_eq!((code, message), (500, expect));
        assert_eq!(hook.asked().len(), 0);
        converter.set(Mode::Works);
        assert_eq!(admin.post(ENDS, end("a", "h:1")).await.0, 201);
    }
}

/// A policy about new ends of v1, and its binding.
async fn policy(server: &ApiServer, admin: &Raw, kind: &str, mut spec: Value) {
    let plural = format!("{}ies", kind.trim_end_matches('y').to_lowercase());
    spec["matchConstraints"] = json!({"resourceRules": [of_version("v1")]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "p"}, "spec": spec});
    let (code, made) = admin.post(&format!("{ADMISSION}/{plural}"), policy).await;
    assert_eq!(code, 201, "{made}");
    let mut binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}Binding"), "metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    if kind.starts_with("Validating") {
        binding["spec"]["validationActions"] = json!(["Deny"]);
    }
    let bindings = format!("{ADMISSION}/{}bindings", kind.to_lowercase());
    let (code, made) = admin.post(&bindings, binding).await;
    assert_eq!(code, 201, "{made}");
    server.state.store.cache.catch_up().await.unwrap();
    server.state.admission.refresh_policies();
}

#[tokio::test]
async fn policies_see_the_version_that_they_are_about() {
    let (server, admin, converter) = served().await;
    let spec = json!({"validations": [{"expression": "object.spec.hostPort != 'h:1' && (oldObject == null || \
        oldObject.spec.hostPort == 'g:1')", "messageExpression": "'no ' + object.spec.hostPort"}]});
    policy(&server, &admin, "ValidatingAdmissionPolicy", spec).await;
    let (code, message) = make(&admin, ENDS_V2, end_in_v2("a", "h", "1")).await;
    let denied = "ends.example.org \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    assert_eq!((code, message), (422, format!("{denied}no h:1")));
    assert_eq!(admin.post(ENDS_V2, end_in_v2("a", "g", "1")).await.0, 201);
    let one = format!("{ENDS_V2}/a");
    assert_eq!(
        admin.merge(&one, json!({"spec": {"port": "2"}})).await.0,
        200
    );
    assert_eq!(
        admin.merge(&one, json!({"spec": {"port": "3"}})).await.0,
        422
    );
    converter.set(Mode::Refuses);
    let (code, message) = make(&admin, ENDS_V2, end_in_v2("b", "g", "1")).await;
    let why = format!("failed to configure binding: failed to convert object version: {REFUSED}");
    assert_eq!(
        (code, message),
        (422, format!("{denied}{why}").replace("\"a\"", "\"b\""))
    );
}

#[tokio::test]
async fn what_a_policy_makes_in_another_version_is_taken_back() {
    let (server, admin, converter) = served().await;
    let expression = "Object{spec: Object.spec{hostPort: object.spec.hostPort + '0', replicas: 4}}";
    let spec = json!({"reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]});
    policy(&server, &admin, "MutatingAdmissionPolicy", spec).await;
    let (code, made) = admin.post(ENDS_V2, end_in_v2("a", "h", "1")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"],
        json!({"host": "h", "port": "10", "replicas": 4})
    );
    converter.set(Mode::Refuses);
    let (code, message) = make(&admin, ENDS_V2, end_in_v2("b", "h", "1")).await;
    assert_eq!(code, 403);
    let why = format!("policy \"p\" denied request: failed to configure policy: {REFUSED}");
    assert_eq!(message, why);
}

#[tokio::test]
async fn what_the_other_version_does_not_know_comes_back_from_a_patch() {
    let (server, admin) = cluster().await;
    let fields = |field: &str| json!({"size": {"type": "integer"}, field: {"type": "string"}});
    let things = [("v2", fields("flavour")), ("v1", fields("mode"))];
    versions::serve(&server, ("Thing", "things"), things).await;
    let hook = Hook::that(patch(json!([
        {"op": "add", "path": "/size", "value": 7},
        {"op": "add", "path": "/mode", "value": "fast"},
        {"op": "add", "path": "/nonsense", "value": 1}])))
    .await;
    let rule = json!({"operations": ["*"], "apiGroups": ["example.org"], "apiVersions": ["v1"],
        "resources": ["things"]});
    let webhook = hook.webhook("m", json!({"rules": [rule]}));
    configure(&server, &admin, MUTATING, "c", &[webhook]).await;
    let thing = json!({"apiVersion": "example.org/v2", "kind": "Thing", "metadata": {"name": "t"},
        "flavour": "sweet"});
    let path = "/apis/example.org/v2/namespaces/default/things";
    let (code, made) = admin.post(path, thing).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["flavour"], &made["size"]),
        (&json!("sweet"), &json!(7))
    );
    assert_eq!((made.get("nonsense"), made.get("mode")), (None, None));
    let asked = hook.asked().remove(0);
    assert_eq!(asked["object"]["apiVersion"], "example.org/v1");
    assert_eq!(asked["object"]["flavour"], "sweet");
}
