mod bounds;
mod custom;
mod protobuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

fn json(body: &str, validation: FieldValidation) -> Result<Decoded, String> {
    decode(body.as_bytes(), ContentType::Json, &pod(), validation).map_err(|s| s.message)
}

#[test]
fn unknown_fields_and_nulls_go_and_kinds_come() {
    let decoded = json(
        r#"{"spec": {"x": {"y": 1}, "nodeName": null, "containers": [{"name": "a"}]}}"#,
        FieldValidation::Warn,
    );
    let decoded = decoded.expect("a pod");
    let expect =
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}]}});
    assert_eq!(decoded.object, expect);
    assert_eq!(decoded.warnings, [r#"unknown field "spec.x""#]);
}

#[test]
fn what_leaves_its_version_out_is_the_endpoints_but_a_reference_stays_without() {
    let regarding = json!({"kind": "Pod", "name": "a"});
    let body = json!({"metadata": {"name": "e"}, "regarding": regarding}).to_string();
    let gvk = Gvk::new("events.k8s.io", "v1", "Event");
    let event = decode(
        body.as_bytes(),
        ContentType::Json,
        &gvk,
        FieldValidation::Strict,
    )
    .expect("an event")
    .object;
    assert_eq!(
        (&event["apiVersion"], &event["regarding"]),
        (&json!("events.k8s.io/v1"), &regarding)
    );
}

#[test]
fn strict_decoding_reports_every_unknown_and_duplicate_field() {
    let body = r#"{"spec":{"containers":[{"name":"a","bad":1}],"x":1,"nodeName":"a","nodeName":"b"},"metadata":{"labels":{"k":"1","k":"2"}}}"#;
    let error = json(body, FieldValidation::Strict).expect_err("unknown fields");
    assert_eq!(
        error,
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.containers[0].bad", unknown field "spec.x", duplicate field "spec.nodeName", duplicate field "metadata.labels.k""#
    );
    assert_eq!(
        json(body, FieldValidation::Ignore).expect("a pod").warnings,
        [""; 0]
    );
}

#[test]
fn misfits_get_gos_words() {
    let handled = r#"Pod in version "v1" cannot be handled as a Pod: "#;
    let table = [
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":"80"}]}]}}"#,
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            r#"{"spec":[]}"#,
            "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            r#"{"spec":{"priority":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            r#"{"spec":{"priority":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            r#"{"spec":{"containers":{}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            r#"{"metadata":{"creationTimestamp":"x"}}"#,
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
        ),
    ];
    for (body, why) in table {
        assert_eq!(
            json(body, FieldValidation::Warn).map(|d| d.object),
            Err(format!("{handled}{why}")),
            "{body}"
        );
    }
}

#[test]
fn garbage_is_unrecognized() {
    let table = [
        (
            "garbage",
            "couldn't get version/kind; json parse error: invalid character 'g' looking for beginning of value (67617262616765)",
        ),
        (
            "{\"a\":",
            "couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\":)",
        ),
        (
            "{\"a\" 1}",
            "couldn't get version/kind; json parse error: invalid character '1' after object key ({\"a\" 1})",
        ),
        (
            "{} x",
            "couldn't get version/kind; json parse error: invalid character 'x' after top-level value ({} x)",
        ),
        (
            "",
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
    ];
    for (body, why) in table {
        let expect = format!("the object provided is unrecognized (must be of type Pod): {why}");
        assert_eq!(
            json(body, FieldValidation::Warn).map(|d| d.object),
            Err(expect),
            "{body}"
        );
    }
    let error = json("[]", FieldValidation::Warn).expect_err("a list");
    assert!(
        error.contains(
            "json: cannot unmarshal array into Go value of type struct { APIVersion string"
        ),
        "{error}"
    );
    let error = decode(b"xyz", ContentType::Protobuf, &pod(), FieldValidation::Warn)
        .expect_err("no protobuf");
    assert!(
        error
            .message
            .contains("expected prefix [107 56 115 0] (78797a)"),
        "{error}"
    );
}

#[test]
fn other_kinds_are_refused_in_upstreams_words() {
    let table = [
        (
            r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1}}"#,
            r#"Deployment in version "v1" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): unknown conversion"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"Foo"}"#,
            r#"Foo in version "v1" cannot be handled as a Pod: no kind "Foo" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
        ),
    ];
    for (body, expect) in table {
        assert_eq!(
            json(body, FieldValidation::Warn).map(|d| d.object),
            Err(expect.to_owned())
        );
    }
    let events = Gvk::new("events.k8s.io", "v1", "Event");
    let error = decode(
        br#"{"apiVersion":"v1","kind":"Event"}"#,
        ContentType::Json,
        &events,
        FieldValidation::Warn,
    );
    assert_eq!(
        error.map_err(|s| s.message).map(|d| d.object),
        Err("the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)".to_owned())
    );
    let unknown = Gvk::new("example.com", "v1", "Foo");
    assert_eq!(
        decode(b"{}", ContentType::Json, &unknown, FieldValidation::Warn)
            .map_err(|s| s.code)
            .err(),
        Some(400)
    );
}

#[test]
fn yaml_gives_the_same_and_names_the_lines_of_duplicates() {
    let body = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    80: 'x'\nspec:\n  containers:\n  - name: a\n    image: i\n  - name: b\n    image: j\n    image: k\n";
    let decoded = decode(
        body.as_bytes(),
        ContentType::Yaml,
        &pod(),
        FieldValidation::Warn,
    )
    .expect("a pod");
    assert_eq!(decoded.object["metadata"]["labels"], json!({"80": "x"}));
    assert_eq!(decoded.object["spec"]["containers"][1]["image"], "k");
    let expect = "error converting YAML to JSON: yaml: unmarshal errors:\n  line 13: key \"image\" already set in map";
    assert_eq!(decoded.warnings, [expect]);
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\nspec: {containers: [*d,*d,*d,*d,*d,*d,*d]}";
    assert!(
        decode(
            bomb.as_bytes(),
            ContentType::Yaml,
            &pod(),
            FieldValidation::Warn
        )
        .is_err()
    );
}

#[test]
fn values_become_canonical() {
    let body = r#"{"metadata":{"namespace":"","creationTimestamp":"2026-01-02T04:04:05.9+01:00","generation":0},
        "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":0.5,"memory":"1024Ki"}},
            "securityContext":{"runAsUser":0,"privileged":false},"ports":[{"containerPort":80,"hostPort":0}],
            "livenessProbe":{"httpGet":{"port":"web"},"timeoutSeconds":0}}],"volumes":[]}}"#;
    let object = json(body, FieldValidation::Strict).expect("a pod").object;
    let expect = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Mi"}},
            "securityContext": {"runAsUser": 0, "privileged": false}, "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": "web"}}}]}});
    assert_eq!(object, expect);
}

#[test]
fn options_name_any_group() {
    let body =
        br#"{"kind":"DeleteOptions","apiVersion":"policy/v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"}}"#;
    let options = decode_options(body, ContentType::Json, "DeleteOptions")
        .expect("options")
        .expect("a body");
    assert_eq!(
        (
            &options["gracePeriodSeconds"],
            &options["preconditions"]["uid"]
        ),
        (&json!(0), &json!("u"))
    );
    assert_eq!(
        decode_options(b"", ContentType::Json, "DeleteOptions"),
        Ok(None)
    );
    assert!(
        decode_options(
            br#"{"kind":"Pod","apiVersion":"v1"}"#,
            ContentType::Json,
            "DeleteOptions"
        )
        .is_err()
    );
}

#[test]
fn values_built_here_are_pruned_too() {
    let ty = table().by_gvk(&pod()).expect("Pod");
    let value = json!({"metadata": {"name": null, "x": 1}});
    assert_eq!(
        decode_value(&value, ty, FieldValidation::Warn).map(|d| d.object),
        Ok(json!({"metadata": {}}))
    );
    let value = json!({"metadata": 5});
    let error = decode_value(&value, ty, FieldValidation::Warn).map(|d| d.object);
    assert_eq!(
        error,
        Err(
            "json: cannot unmarshal number into Go struct field Pod.metadata of type v1.ObjectMeta"
                .to_owned()
        )
    );
}

proptest! {
    #[test]
    fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for content in [ContentType::Json, ContentType::Yaml, ContentType::Protobuf] {
            let _ = decode(&bytes, content, &pod(), FieldValidation::Strict);
        }
        let body: Vec<u8> = b"k8s\0\x12".iter().copied().chain([u8::try_from(bytes.len() & 127).unwrap_or(0)]).chain(bytes).collect();
        let _ = decode(&body, ContentType::Protobuf, &pod(), FieldValidation::Strict);
    }
}
