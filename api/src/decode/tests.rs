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

/// A length-delimited protobuf field.
fn pb(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![
        tag << 3 | 2,
        u8::try_from(bytes.len()).expect("a short field"),
    ];
    out.extend(bytes);
    out
}

/// An enveloped protobuf body.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [pb(1, api_version.as_bytes()), pb(2, kind.as_bytes())].concat();
    [
        b"k8s\0".to_vec(),
        pb(1, &meta),
        pb(2, raw),
        pb(3, b""),
        pb(4, b""),
    ]
    .concat()
}

#[test]
fn zero_values_that_protobuf_always_carries_are_absent() {
    let empty = [2, 3, 4, 5, 6].map(|tag| pb(tag, b"")).concat();
    let meta = [pb(1, b"a"), empty, vec![7 << 3, 0], pb(8, b"")].concat();
    let port = [
        pb(1, b""),
        pb(2, b""),
        vec![3 << 3, 80],
        pb(4, &[1 << 3, 0, 2 << 3, 0, 26, 0]),
        vec![5 << 3, 0],
    ]
    .concat();
    let body = envelope(
        "v1",
        "Service",
        &[pb(1, &meta), pb(2, &pb(1, &port)), pb(3, &pb(1, b""))].concat(),
    );
    let service = Gvk::new("", "v1", "Service");
    let object = decode(
        &body,
        ContentType::Protobuf,
        &service,
        FieldValidation::Strict,
    )
    .expect("a service")
    .object;
    let expect = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {}}});
    assert_eq!(object, expect);
}

#[test]
fn protobuf_bodies_of_other_kinds_are_refused() {
    let body = envelope("apps/v1", "Deployment", b"");
    let error = decode(
        &body,
        ContentType::Protobuf,
        &pod(),
        FieldValidation::Strict,
    )
    .expect_err("another kind");
    assert!(
        error
            .message
            .starts_with("Deployment in version \"v1\" cannot be handled as a Pod: converting"),
        "{error}"
    );
    let body = envelope("v1", "Pod", &[0x0a, 0x7f, 1]);
    let error = decode(
        &body,
        ContentType::Protobuf,
        &pod(),
        FieldValidation::Strict,
    )
    .expect_err("a cut message");
    assert_eq!(
        error.message,
        "Pod in version \"v1\" cannot be handled as a Pod: unexpected EOF"
    );
}

#[test]
fn what_a_protobuf_body_does_not_name_is_the_endpoints() {
    let raw = pb(1, &pb(1, b"a"));
    for (api_version, kind) in [("v1", "Pod"), ("", "Pod"), ("v1", ""), ("", "")] {
        let body = envelope(api_version, kind, &raw);
        let decoded = decode(
            &body,
            ContentType::Protobuf,
            &pod(),
            FieldValidation::Strict,
        )
        .expect("a pod");
        assert_eq!(
            decoded.object,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
            "{kind}"
        );
    }
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

/// The tag, the length and the bytes of a field of protobuf.
fn field(tag: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut number in [tag << 3 | 2, bytes.len()] {
        while number >= 0x80 {
            out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).expect("seven bits"));
    }
    out.extend_from_slice(bytes);
    out
}

/// A ConfigMap in its envelope, whose `managedFields` hold `inner` where JSON should be.
fn enveloped(inner: &[u8]) -> Vec<u8> {
    let managed = field(7, &field(1, inner));
    let object = field(1, &field(17, &managed));
    let meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, &object)].concat()
}

#[test]
fn envelopes_within_envelopes_are_bounded() {
    let config_map = Gvk::new("", "v1", "ConfigMap");
    let decoded = |levels: usize| {
        let body = (0..levels).fold(b"{}".to_vec(), |inner, _| enveloped(&inner));
        decode(
            &body,
            ContentType::Protobuf,
            &config_map,
            FieldValidation::Ignore,
        )
    };
    assert!(decoded(3).is_ok());
    let refused = decoded(2_000).expect_err("it is refused");
    assert_eq!(refused.code, 400);
    assert!(refused.message.contains("exceeded max depth"), "{refused}");
}

#[test]
fn hostile_yaml_is_refused_before_anything_is_built_of_it() {
    let alias = format!(
        "kind: Pod\nmetadata:\n  name: &a \"{}\"\n  annotations:\n",
        "x".repeat(100_000)
    );
    let aliases: String = (0..20_000).map(|at| format!("    k{at}: *a\n")).collect();
    let table = [
        ("{a: ".repeat(150_000), "exceeded max depth"),
        ("[".repeat(3 << 20), "exceeded max depth"),
        ("- ".repeat(1 << 20), "exceeded max depth"),
        (alias + &aliases, "document contains excessive aliasing"),
    ];
    for (body, why) in table {
        for validation in [FieldValidation::Warn, FieldValidation::Strict] {
            let refused =
                decode(body.as_bytes(), ContentType::Yaml, &pod(), validation).expect_err(why);
            assert_eq!(refused.code, 400);
            let expect = format!("error converting YAML to JSON: yaml: {why}");
            assert!(refused.message.contains(&expect), "{refused}");
        }
    }
}

#[test]
fn deep_json_is_refused() {
    for open in ["[", r#"{"a":"#] {
        let body = open.repeat((3 << 20) / open.len());
        let refused = decode(
            body.as_bytes(),
            ContentType::Json,
            &pod(),
            FieldValidation::Warn,
        )
        .expect_err(open);
        assert_eq!(refused.code, 400, "{refused}");
    }
}

#[test]
fn a_body_of_nothings_is_not_a_million_values() {
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n > 0x7f {
            out.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
            n >>= 7;
        }
        out.push(u8::try_from(n).unwrap());
        out
    };
    let message = |inner: Vec<u8>| [vec![0x12], varint(inner.len()), inner].concat();
    // Empty containers in a spec in the envelope.
    let protobuf =
        |items: usize| [b"k8s\0".to_vec(), message(message([0x12, 0].repeat(items)))].concat();
    let json = |items: usize| {
        format!(
            r#"{{"spec":{{"containers":[{}{{}}]}}}}"#,
            "{},".repeat(items - 1)
        )
        .into_bytes()
    };
    let bodies: [(_, &dyn Fn(usize) -> Vec<u8>); 2] = [
        (ContentType::Protobuf, &protobuf),
        (ContentType::Json, &json),
    ];
    for (content, body) in bodies {
        let read = |items| decode(&body(items), content, &pod(), FieldValidation::Warn);
        assert_eq!(
            read(190_000).unwrap().object["spec"]["containers"]
                .as_array()
                .unwrap()
                .len(),
            190_000
        );
        let refused = read(210_000).unwrap_err();
        assert_eq!(refused.code, 400);
        assert!(
            refused
                .message
                .contains("document contains more than 200000 nodes"),
            "{refused}"
        );
    }
}
