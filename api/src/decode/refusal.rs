//! The answers to bodies that are not taken, in upstream's words.

use super::{ContentType, go_json, visit::Failure, yaml};
use crate::{
    resource::Gvk,
    schema::table,
    status::{Status, quote},
};

/// The answer to a body that could not be decoded. Slow: it looks at the body again.
pub(super) fn refuse(
    failure: Failure,
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
) -> Status {
    let why = match failure {
        Failure::Syntax(text) => return unrecognized(&text, body, content, expected),
        Failure::NoObject(value) => {
            let ty = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let text = format!("json: cannot unmarshal {value} into Go value of type {ty}");
            return unrecognized(&text, body, content, expected);
        }
        Failure::Raw(text) => return unrecognized_raw(&text, body, expected),
        Failure::Mismatch(text) => text,
    };
    let (api_version, kind) = match content {
        ContentType::Json => go_json::type_meta(body),
        ContentType::Yaml => yaml::type_meta(body),
        ContentType::Protobuf => None,
    }
    .unwrap_or_default();
    // The wrong kind is the better explanation for a field that does not fit.
    mismatch(&api_version, &kind, expected)
        .unwrap_or_else(|| cannot_be_handled(&api_version, &kind, expected, &why))
}

fn unrecognized(why: &str, body: &[u8], content: ContentType, expected: &Gvk) -> Status {
    match content {
        ContentType::Json => unrecognized_raw(
            &format!("couldn't get version/kind; json parse error: {why}"),
            body,
            expected,
        ),
        _ => unrecognized_raw(why, body, expected),
    }
}

fn unrecognized_raw(why: &str, body: &[u8], expected: &Gvk) -> Status {
    const SHOWN: usize = 30;
    let shown = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => format!(
            "{}{more}",
            shown.iter().map(|b| format!("{b:02x}")).collect::<String>()
        ),
    };
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({summary})",
        expected.kind
    ))
}

pub(super) fn cannot_be_handled(
    api_version: &str,
    kind: &str,
    expected: &Gvk,
    why: &str,
) -> Status {
    let kind = if kind.is_empty() {
        expected.kind.as_str()
    } else {
        kind
    };
    let given = Gvk::from_api_version(api_version, kind);
    let version = if given.version.is_empty() {
        expected.version.as_str()
    } else {
        given.version.as_str()
    };
    Status::bad_request(format!(
        "{kind} in version {} cannot be handled as a {}: {why}",
        quote(version),
        expected.kind
    ))
}

/// The answer to a body of another kind than the endpoint's.
pub(super) fn mismatch(api_version: &str, kind: &str, expected: &Gvk) -> Option<Status> {
    let mut given = Gvk::from_api_version(
        api_version,
        if kind.is_empty() {
            &expected.kind
        } else {
            kind
        },
    );
    if api_version.is_empty() {
        given.group.clone_from(&expected.group);
        given.version.clone_from(&expected.version);
    }
    if given == *expected {
        return None;
    }
    if table().by_gvk(&given).is_none() {
        return Some(cannot_be_handled(
            api_version,
            kind,
            expected,
            &not_registered(&given),
        ));
    }
    if given.kind != expected.kind {
        let package = if expected.group.is_empty() {
            "core"
        } else {
            expected.group.split('.').next().unwrap_or("")
        };
        let why = format!(
            "converting ({}.{}) to ({package}.{}): unknown conversion",
            given.version, given.kind, expected.kind
        );
        return Some(cannot_be_handled(api_version, kind, expected, &why));
    }
    Some(Status::bad_request(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        given.api_version(),
        expected.api_version()
    )))
}

pub(super) fn not_registered(gvk: &Gvk) -> String {
    let version = quote(&gvk.api_version());
    let kind = quote(&gvk.kind);
    format!(
        "no kind {kind} is registered for version {version} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )
}
