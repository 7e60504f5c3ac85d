//! Upstream's conformance tests of definitions and their objects, retold: those that no other test
//! here asks.

use serde_json::{Value, json};

use super::{
    super::custom_resources::{watch, within},
    Cluster, DEFINITIONS, cluster, definition, established, memory, until,
};

/// A definition of a kind in a group, with a schema for each version.
fn kind(group: &str, kind: &str, versions: &[(&str, Value)]) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let versions = versions.iter().enumerate().map(|(at, (name, schema))| {
        json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": schema}})
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": {"e2e": kind}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions.collect::<Vec<_>>()},
    })
}

fn described(text: &str) -> Value {
    json!({"type": "object", "description": text, "properties": {
        "spec": {"type": "object", "properties": {"bars": {"type": "array", "description": "List of Bars.",
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "age": {"type": "string"}}}}}}}})
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The definition of a kind in OpenAPI v2 as soon as it is as it is to be.
async fn published(cluster: &Cluster, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let document = until(&cluster.admin, "/openapi/v2", |_, document| {
        holds(&document["definitions"][name])
    });
    document.await["definitions"][name].clone()
}

async fn changed(cluster: &Cluster, name: &str, patch: &Value) {
    let path = format!("{DEFINITIONS}/{name}");
    let json_patch = "application/json-patch+json";
    let patched = cluster
        .admin
        .send("PATCH", &path, json_patch, patch.to_string());
    let (code, answer) = patched.await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn what_happens_to_custom_objects_is_watched() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, kind("example.org", "Noxu", &[("v1", open())])).await;
    let noxus = "/apis/example.org/v1/namespaces/default/noxus";
    let mut events = watch(admin, noxus).await;
    let noxu = |name: &str| json!({"apiVersion": "example.org/v1", "kind": "Noxu", "metadata": {"name": name}, "content": {"key": "value"}});
    for name in ["a", "b"] {
        let (code, made) = admin.post(noxus, noxu(name)).await;
        assert_eq!(code, 201, "{made}");
    }
    admin
        .merge(&format!("{noxus}/a"), json!({"content": {"key": "other"}}))
        .await;
    admin.delete(&format!("{noxus}/a"), json!({})).await;
    admin.delete(&format!("{noxus}/b"), json!({})).await;
    let told = within(async {
        let mut told = Vec::new();
        while told.len() < 5 {
            let event = futures::StreamExt::next(&mut events).await.unwrap();
            let name = event["object"]["metadata"]["name"].clone();
            told.push(format!("{} {name}", event["type"]));
        }
        told
    });
    assert_eq!(
        told.await.join(", "),
        r#""ADDED" "a", "ADDED" "b", "MODIFIED" "a", "DELETED" "a", "DELETED" "b""#
    );
}

#[tokio::test]
async fn the_status_of_a_definition_is_read_replaced_and_patched() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let path = format!("{DEFINITIONS}/widgets.example.org/status");
    let (code, mut read) = admin.get(&path).await;
    assert_eq!(
        (code, &read["kind"]),
        (200, &json!("CustomResourceDefinition"))
    );
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "E2E", "message": "Set from a test"});
    let conditions = read["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(condition("StatusUpdate"));
    let (code, replaced) = admin.put(&path, read).await;
    assert_eq!(code, 200, "{replaced}");
    let mut conditions = replaced["status"]["conditions"].clone();
    conditions
        .as_array_mut()
        .unwrap()
        .push(condition("StatusPatched"));
    let (code, patched) = admin
        .merge(&path, json!({"status": {"conditions": conditions}}))
        .await;
    assert_eq!(code, 200, "{patched}");
    for kind in ["StatusUpdate", "StatusPatched", "Established"] {
        assert!(super::has(&patched, kind, "True"), "{kind}: {patched}");
    }
    // A version whose objects are all migrated is taken back here.
    let none = json!({"status": {"storedVersions": ["v1"]}});
    assert_eq!(admin.merge(&path, none).await.0, 200);
}

#[tokio::test]
async fn definitions_are_listed_and_deleted_by_their_labels() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    for at in 0..4 {
        let mut one = kind("example.org", &format!("Noxu{at}"), &[("v1", open())]);
        one["metadata"]["labels"] = json!({"list": if at < 3 { "yes" } else { "no" }});
        established(&cluster, one).await;
    }
    let some = format!("{DEFINITIONS}?labelSelector=list%3Dyes");
    let (_, list) = admin.get(&some).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert_eq!(admin.delete(&some, json!({})).await.0, 200);
    until(admin, DEFINITIONS, |_, list| {
        list["items"]
            .as_array()
            .is_some_and(|items| items.len() == 1)
    })
    .await;
}

#[tokio::test]
async fn discovery_tells_of_definitions() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    let version = json!({"groupVersion": "apiextensions.k8s.io/v1", "version": "v1"});
    let (_, groups) = admin.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap();
    let mut found = groups
        .iter()
        .filter(|group| group["name"] == "apiextensions.k8s.io");
    let found = found.next().unwrap();
    assert_eq!(found["versions"], json!([version]));
    let (_, group) = admin.get("/apis/apiextensions.k8s.io").await;
    assert_eq!(group["preferredVersion"], version);
    let (_, resources) = admin.get("/apis/apiextensions.k8s.io/v1").await;
    let resources = resources["resources"].as_array().unwrap();
    let names: Vec<&Value> = resources.iter().map(|one| &one["name"]).collect();
    assert!(
        names.contains(&&json!("customresourcedefinitions")),
        "{names:?}"
    );
}

#[tokio::test]
async fn defaults_come_with_requests_and_from_the_store() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"a": text, "b": text}});
    established(&cluster, kind("example.org", "Noxu", &[("v1", schema)])).await;
    let noxus = "/apis/example.org/v1/namespaces/default/noxus";
    let make = async |name: &str| {
        let noxu =
            json!({"apiVersion": "example.org/v1", "kind": "Noxu", "metadata": {"name": name}});
        let (code, made) = admin.post(noxus, noxu).await;
        assert_eq!(code, 201, "{made}");
        made
    };
    let before = make("before").await;
    assert!(before.get("a").is_none() && before.get("b").is_none());
    let field =
        |name: &str| format!("/spec/versions/0/schema/openAPIV3Schema/properties/{name}/default");
    changed(
        &cluster,
        "noxus.example.org",
        &json!([{"op": "add", "path": field("a"), "value": "A"}, {"op": "add", "path": field("b"), "value": "B"}]),
    )
    .await;
    let read = until(admin, &format!("{noxus}/before"), |_, one| one["a"] == "A").await;
    assert_eq!(read["b"], "B", "from the store");
    let made = make("with").await;
    assert_eq!((&made["a"], &made["b"]), (&json!("A"), &json!("B")));
    let other = json!([{"op": "replace", "path": field("a"), "value": "C"}, {"op": "remove", "path": field("b")}]);
    changed(&cluster, "noxus.example.org", &other).await;
    let read = until(admin, &format!("{noxus}/before"), |_, one| one["a"] == "C").await;
    assert!(read.get("b").is_none(), "it was never stored");
    let (_, read) = admin.get(&format!("{noxus}/with")).await;
    let kept = (&read["a"], &read["b"]);
    assert_eq!(kept, (&json!("A"), &json!("B")), "it was stored");
}

#[tokio::test]
async fn openapi_tells_what_schemas_say_and_no_more() {
    let cluster = cluster(&memory()).await;
    let within = json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true, "properties": {"dummy": {"type": "string"}}}}});
    let mut at_root = described("Open at its root.");
    at_root["x-kubernetes-preserve-unknown-fields"] = json!(true);
    for (name, schema) in [
        ("Foo", described("Foo CRD for Testing")),
        ("Empty", open()),
        ("Root", at_root),
        ("Within", within),
    ] {
        established(&cluster, kind("example.org", name, &[("v1", schema)])).await;
    }
    let foo = published(&cluster, "org.example.v1.Foo", |found| !found.is_null()).await;
    assert_eq!(foo["description"], "Foo CRD for Testing");
    let bars = &foo["properties"]["spec"]["properties"]["bars"];
    assert_eq!(bars["items"]["required"], json!(["name"]));
    for name in ["Empty", "Root"] {
        let name = format!("org.example.v1.{name}");
        let found = published(&cluster, &name, |found| !found.is_null()).await;
        let told = (&found["type"], &found["properties"]);
        assert_eq!(told, (&json!("object"), &Value::Null), "{name}: {found}");
    }
    let found = published(&cluster, "org.example.v1.Within", |found| !found.is_null()).await;
    assert_eq!(
        found["properties"]["spec"],
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    );
}

#[tokio::test]
async fn openapi_tells_of_kinds_of_any_groups_and_versions() {
    let cluster = cluster(&memory()).await;
    let of = |text: &str| described(text);
    for one in [
        kind("a.example.org", "Foo", &[("v1", of("of a"))]),
        kind("b.example.org", "Foo", &[("v1", of("of b"))]),
        kind("b.example.org", "Bar", &[("v2", of("another version"))]),
        kind("a.example.org", "Baz", &[("v1", of("another kind"))]),
    ] {
        established(&cluster, one).await;
    }
    for (name, text) in [
        ("org.example.a.v1.Foo", "of a"),
        ("org.example.b.v1.Foo", "of b"),
        ("org.example.b.v2.Bar", "another version"),
        ("org.example.a.v1.Baz", "another kind"),
    ] {
        published(&cluster, name, |found| found["description"] == text).await;
    }
}

#[tokio::test]
async fn openapi_follows_the_versions_that_are_served() {
    let cluster = cluster(&memory()).await;
    let versions = [("v2", described("Two")), ("v3", described("Three"))];
    established(&cluster, kind("example.org", "Foo", &versions)).await;
    published(&cluster, "org.example.v3.Foo", |found| !found.is_null()).await;
    let renamed = json!([{"op": "replace", "path": "/spec/versions/1/name", "value": "v4"}]);
    changed(&cluster, "foos.example.org", &renamed).await;
    published(&cluster, "org.example.v3.Foo", Value::is_null).await;
    let (_, document) = cluster.admin.get("/openapi/v2").await;
    let of = |version: &str| &document["definitions"][format!("org.example.{version}.Foo")];
    let told = (&of("v2")["description"], &of("v4")["description"]);
    assert_eq!(told, (&json!("Two"), &json!("Three")));
    let hidden = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    changed(&cluster, "foos.example.org", &hidden).await;
    published(&cluster, "org.example.v4.Foo", Value::is_null).await;
    published(&cluster, "org.example.v2.Foo", |found| !found.is_null()).await;
}

#[tokio::test]
async fn openapi_calls_lists_as_their_definition_does() {
    let cluster = cluster(&memory()).await;
    let mut books = kind("example.org", "Book", &[("v1", described("One"))]);
    books["spec"]["names"]["listKind"] = "Shelf".into();
    established(&cluster, books).await;
    published(&cluster, "org.example.v1.Shelf", |found| !found.is_null()).await;
    let (_, document) = cluster.admin.get("/openapi/v2").await;
    let definitions = &document["definitions"];
    let list = &definitions["org.example.v1.Shelf"];
    let gvk = json!([{"group": "example.org", "version": "v1", "kind": "Shelf"}]);
    assert_eq!(list["x-kubernetes-group-version-kind"], gvk);
    assert_eq!(list["description"], "Shelf is a list of Book");
    assert!(definitions.get("org.example.v1.BookList").is_none());
    let list = &document["paths"]["/apis/example.org/v1/namespaces/{namespace}/books"]["get"];
    assert_eq!(list["description"], "list objects of kind Book");
    let schema = &list["responses"]["200"]["schema"];
    assert_eq!(schema["$ref"], "#/definitions/org.example.v1.Shelf");
}

#[tokio::test]
async fn fields_of_custom_objects_are_validated_as_it_is_asked() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    let fields = json!({"type": "object", "properties": {"foo": {"type": "string"},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "metadata": {"type": "object"}, "spec": {"type": "object"}}}}});
    let closed = json!({"type": "object", "properties": {"spec": fields}});
    established(&cluster, kind("example.org", "Closed", &[("v1", closed)])).await;
    established(&cluster, kind("example.org", "Open", &[("v1", open())])).await;
    let text = |kind: &str, rest: &str| {
        format!(r#"{{"apiVersion":"example.org/v1","kind":"{kind}",{rest}}}"#)
    };
    let path = |kind: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        format!("/apis/example.org/v1/namespaces/default/{plural}?fieldValidation=Strict")
    };
    for (kind, rest, expect) in [
        (
            "Closed",
            r#""metadata":{"name":"a"},"spec":{"foo":"x"}"#,
            "",
        ),
        ("Open", r#""metadata":{"name":"a"},"spec":{"any":1}"#, ""),
        (
            "Closed",
            r#""metadata":{"name":"b"},"spec":{"foo":"x","extra":1}"#,
            r#"strict decoding error: unknown field "spec.extra""#,
        ),
        (
            "Open",
            r#""metadata":{"name":"b"},"spec":{"any":1,"any":2}"#,
            r#"strict decoding error: duplicate field "spec.any""#,
        ),
        (
            "Open",
            r#""metadata":{"name":"b","odd":1},"spec":{}"#,
            r#"strict decoding error: unknown field "metadata.odd""#,
        ),
        (
            "Closed",
            r#""metadata":{"name":"b"},"spec":{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"odd":1},"spec":{}}}"#,
            r#"strict decoding error: unknown field "spec.template.metadata.odd""#,
        ),
    ] {
        let sent = text(kind, rest);
        let (code, answer) = admin
            .send("POST", &path(kind), "application/json", sent.clone())
            .await;
        let message = answer["message"].as_str().unwrap_or_default();
        let code_expected = if expect.is_empty() { 201 } else { 400 };
        assert!(
            code == code_expected && message.contains(expect),
            "{sent}: {code} {answer}"
        );
        // What is applied is looked at alike.
        let applied = format!("{}&fieldManager=e2e", path(kind).replacen('?', "/c?", 1));
        let sent = sent.replacen(r#""name":"b""#, r#""name":"c""#, 1);
        let sent = sent.replacen(r#""name":"a""#, r#""name":"c""#, 1);
        let (code, answer) = admin
            .send(
                "PATCH",
                &applied,
                "application/apply-patch+yaml",
                sent.clone(),
            )
            .await;
        assert_eq!(code < 300, expect.is_empty(), "{sent}: {code} {answer}");
    }
}

#[tokio::test]
async fn fields_of_built_in_objects_are_validated_as_it_is_asked() {
    let cluster = cluster(&memory()).await;
    let path = "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict";
    let template = r#""template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let selector = r#""selector":{"matchLabels":{"a":"b"}}"#;
    for (metadata, spec, expect) in [
        (
            r#""name":"a""#,
            r#""unknown1":"x","#,
            r#"unknown field "spec.unknown1""#,
        ),
        (
            r#""name":"a""#,
            r#""paused":true,"paused":false,"#,
            r#"duplicate field "spec.paused""#,
        ),
        (
            r#""name":"a","unknownMeta":"x""#,
            "",
            r#"unknown field "metadata.unknownMeta""#,
        ),
    ] {
        let sent = format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{{metadata}}},"spec":{{{spec}{selector},{template}}}}}"#
        );
        let (code, answer) = cluster
            .admin
            .send("POST", path, "application/json", sent.clone())
            .await;
        let message = answer["message"].as_str().unwrap_or_default();
        let expect = format!("strict decoding error: {expect}");
        assert!(code == 400 && message.contains(&expect), "{sent}: {answer}");
    }
}
