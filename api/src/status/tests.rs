use serde_json::json;

use super::*;

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

#[test]
fn messages_are_upstreams() {
    let deployments = GroupResource::new("apps", "deployments");
    let table = [
        (
            Status::not_found(&deployments, "x"),
            404,
            r#"deployments.apps "x" not found"#,
        ),
        (
            Status::already_exists(&pods(), "x"),
            409,
            r#"pods "x" already exists"#,
        ),
        (
            Status::modified(&pods(), "x"),
            409,
            r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            Status::forbidden(&pods(), "", "no"),
            403,
            "pods is forbidden: no",
        ),
        (
            Status::forbidden(&pods(), "x", "no"),
            403,
            r#"pods "x" is forbidden: no"#,
        ),
        (
            Status::forbidden(&GroupResource::default(), "x", "no"),
            403,
            "forbidden: no",
        ),
        (Status::unauthorized(), 401, "Unauthorized"),
        (
            Status::method_not_supported(&deployments, "patch"),
            405,
            r#"patch is not supported on resources of kind "deployments.apps""#,
        ),
        (
            Status::request_entity_too_large(3_145_728),
            413,
            "Request entity too large: limit is 3145728",
        ),
        (
            Status::too_large_resource_version(9, 4),
            504,
            "Timeout: Too large resource version: 9, current: 4",
        ),
        (
            Status::internal("boom"),
            500,
            "Internal error occurred: boom",
        ),
        (
            Status::invalid(&Gvk::new("", "v1", "Pod"), "x", FieldErrors::new()),
            422,
            r#"Pod "x" is invalid"#,
        ),
    ];
    for (status, code, message) in table {
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}

#[test]
fn several_field_errors_stand_in_brackets_and_equal_ones_once() {
    let mut errors = FieldErrors::new();
    errors.required("spec.containers[0].image", "");
    errors.invalid("metadata.name", &json!("A"), "must be lower case");
    errors.required("spec.containers[0].image", "");
    errors.not_supported("spec.x", &json!("c"), &["a", "b"]);
    let status = Status::invalid(&Gvk::new("apps", "v1", "Deployment"), "d", errors);
    assert_eq!(
        status.message,
        r#"Deployment.apps "d" is invalid: [spec.containers[0].image: Required value, metadata.name: Invalid value: "A": must be lower case, spec.x: Unsupported value: "c": supported values: "a", "b"]"#
    );
    let causes = &status.details.as_ref().expect("details").causes;
    assert_eq!(causes.len(), 4);
    assert_eq!(
        causes[1].message,
        r#"Invalid value: "A": must be lower case"#
    );
}

#[test]
fn bad_values_print_as_upstream_prints_them() {
    let mut errors = FieldErrors::new();
    errors.duplicate("a", &json!({"port": 80}));
    errors.too_long("b", &json!("xxxx"), 3);
    errors.too_many("c", 4, 3);
    errors.invalid("d", &json!(5), "");
    assert_eq!(
        errors.to_string(),
        r#"[a: Duplicate value: {"port":80}, b: Too long: may not be more than 3 bytes, c: Too many: 4: must have at most 3 items, d: Invalid value: 5]"#
    );
}

#[test]
fn json_form_reads_back() {
    let status = Status::too_large_resource_version(9, 4);
    let wire = status.to_json();
    assert_eq!(wire["details"]["retryAfterSeconds"], 1);
    assert_eq!(wire["status"], "Failure");
    assert_eq!(Status::from_json(&wire), Some(status));
    assert_eq!(Status::from_json(&json!({"kind": "Pod"})), None);
}

#[test]
fn quoting_is_gos() {
    assert_eq!(quote("a\"b\\c\n\u{1}ä"), r#""a\"b\\c\n\x01ä""#);
}

#[test]
fn what_is_wrong_a_million_times_is_not_told_a_million_times() {
    let mut errors = FieldErrors::new();
    for index in 0..1_000_000 {
        errors.required(format!("spec.ports[{index}].port"), "");
    }
    assert_eq!(errors.len(), 1_000_000);
    let mut all = FieldErrors::new();
    all.required("metadata.name", "");
    all.extend(errors);
    assert_eq!(all.len(), 1_000_001);
    let status = Status::invalid(&Gvk::new("", "v1", "Service"), "s", all);
    assert!(
        status
            .message
            .contains(": [metadata.name: Required value, spec.ports[0].port: Required value, ")
    );
    assert!(
        status
            .message
            .ends_with("spec.ports[98].port: Required value, and 999901 more]"),
        "{}",
        status.message
    );
    let causes = status.details.unwrap().causes;
    assert_eq!(
        (causes.len(), causes[100].message.as_str()),
        (101, "and 999901 more")
    );
}

#[test]
fn a_long_value_is_told_in_part() {
    let mut errors = FieldErrors::new();
    let long = json!("x".repeat(3 << 20));
    for _ in 0..100 {
        errors.invalid("data", &long, "must be short");
    }
    let answer = Status::invalid(&Gvk::new("", "v1", "ConfigMap"), "c", errors)
        .to_json()
        .to_string();
    assert!(answer.len() < 256 << 10, "{} bytes", answer.len());
    assert!(answer.contains(r#"xxx...\": must be short"#));
}
