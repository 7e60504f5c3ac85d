//! Stored bytes become entries.

use coracle_store::KeyValue;

use super::*;
use crate::watch_cache::{entry::EntrySource, fields::Fields, pool::Pool};

fn decode(stored: &str, kind: EventKind) -> Entry {
    let kv = KeyValue {
        key: "/registry/pods/ns/a".into(),
        value: stored.to_owned().into(),
        create_revision: Revision(3),
        mod_revision: Revision(42),
    };
    let source = EntrySource {
        kv: &kv,
        kind,
        prefix: PODS,
        namespaced: true,
        pool: &Pool::default(),
    };
    Entry::decode(&source, |_| Ok(Fields::default())).unwrap()
}

fn text(entry: &Entry) -> String {
    String::from_utf8(entry.json_bytes().to_vec()).unwrap()
}

#[test]
fn revision_is_spliced_into_the_metadata() {
    for (stored, expected) in [
        (
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":"a"},"spec":{}}"#,
        ),
        (
            r#"{"kind":"Pod","metadata":{}}"#,
            r#"{"kind":"Pod","metadata":{"resourceVersion":"42"}}"#,
        ),
        // Of older stores, and not as the API server stores it.
        (
            r#"{"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod","spec":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":"a"},"spec":{}}"#,
        ),
        (
            r#"{"metadata": {"resourceVersion":"7"},"kind":"Pod"}"#,
            r#"{"kind":"Pod","metadata":{"resourceVersion":"42"}}"#,
        ),
        (r#"{}"#, r#"{"metadata":{"resourceVersion":"42"}}"#),
    ] {
        let entry = decode(stored, EventKind::Added);
        assert_eq!(entry.json_bytes(), expected);
    }
}

#[test]
fn line_announces_any_kind_of_event() {
    for made_for in [EventKind::Added, EventKind::Modified, EventKind::Deleted] {
        let entry = decode(r#"{"metadata":{"name":"a"}}"#, made_for);
        for kind in [EventKind::Added, EventKind::Modified, EventKind::Deleted] {
            let expected = format!(
                "{{\"type\":\"{}\",\"object\":{}}}\n",
                kind.as_str(),
                text(&entry)
            );
            assert_eq!(entry.line(kind), expected);
        }
    }
}

#[test]
fn line_of_its_own_kind_is_not_copied() {
    let entry = decode(r#"{"metadata":{"name":"a"}}"#, EventKind::Modified);
    assert_eq!(
        entry.line(EventKind::Modified).as_ptr(),
        entry.line(EventKind::Modified).as_ptr()
    );
}

#[test]
fn labels_and_uid_are_found() {
    let entry = decode(
        r#"{"metadata":{"name":"a","labels":{"app":"web","tier":""},"uid":"u-1","deletionTimestamp":null},"spec":{"labels":{"no":"no"}}}"#,
        EventKind::Added,
    );
    assert_eq!(
        entry.labels().collect::<Vec<_>>(),
        [("app", "web"), ("tier", "")]
    );
    assert_eq!((entry.label("app"), entry.label("no")), (Some("web"), None));
    assert_eq!((entry.uid(), entry.is_terminating()), ("u-1", false));
}

#[test]
fn labels_with_escapes_are_unescaped() {
    let entry = decode(
        r#"{"metadata":{"labels":{"a\u0062":"c\"d","plain":"x"},"uid":"u"}}"#,
        EventKind::Added,
    );
    assert_eq!(
        entry.labels().collect::<Vec<_>>(),
        [("ab", "c\"d"), ("plain", "x")]
    );
    assert_eq!(entry.uid(), "u");
}

#[test]
fn object_being_deleted_is_terminating() {
    let entry = decode(
        r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","labels":null}}"#,
        EventKind::Added,
    );
    assert!(entry.is_terminating());
}

#[test]
fn key_gives_namespace_and_name() {
    let entry = decode(r#"{"metadata":{}}"#, EventKind::Added);
    assert_eq!((entry.namespace(), entry.name()), (Some("ns"), "a"));
    assert_eq!(
        (
            entry.field("metadata.namespace"),
            entry.field("metadata.name")
        ),
        (Some("ns"), Some("a"))
    );
    assert_eq!(entry.field("spec.nodeName"), None);
}

#[test]
fn gone_entry_keeps_all_but_the_revision() {
    let entry = decode(
        r#"{"kind":"Pod","metadata":{"name":"a","uid":"u-1","labels":{"app":"web"}}}"#,
        EventKind::Added,
    );
    let gone = entry.gone_at(Revision(1000));
    assert_eq!(
        text(&gone),
        r#"{"kind":"Pod","metadata":{"resourceVersion":"1000","name":"a","uid":"u-1","labels":{"app":"web"}}}"#
    );
    assert_eq!(
        (gone.uid(), gone.label("app"), gone.revision()),
        ("u-1", Some("web"), Revision(1000))
    );
}

#[test]
fn what_managers_own_is_shared_and_shown_again() {
    let owned = format!(r#"{{"f:spec":{{"f:{}":{{}}}}}}"#, "x".repeat(300));
    let managers = format!(
        r#"[{{"fieldsV1":{owned},"manager":"a"}},{{"fieldsV1":{{}},"manager":"b"}},{{"fieldsV1":{owned}}}]"#
    );
    let rest = r#""name":"a","uid":"u-1"},"spec":{}}"#;
    let stored = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"labels":{{"app":"web"}},"managedFields":{managers},{rest}"#
    );
    let whole = |revision: u64| {
        stored.replacen(
            r#"{"labels"#,
            &format!(r#"{{"resourceVersion":"{revision}","labels"#),
            1,
        )
    };
    let entry = decode(&stored, EventKind::Modified);
    let gone = entry.gone_at(Revision(1000));
    for (entry, kind, whole) in [
        (entry, EventKind::Modified, whole(42)),
        (gone, EventKind::Deleted, whole(1000)),
    ] {
        assert!(
            entry.unmanaged().len() + 2 * owned.len() < whole.len() + 10,
            "both are taken out"
        );
        assert!(serde_json::from_slice::<Value>(&entry.unmanaged()).is_ok());
        assert_eq!(
            (text(&entry), entry.json_len()),
            (whole.clone(), whole.len())
        );
        let line = format!("{{\"type\":\"{}\",\"object\":{whole}}}\n", kind.as_str());
        assert_eq!(
            (entry.line(kind), entry.line_len(kind)),
            (line.clone().into(), line.len())
        );
        assert_eq!((entry.uid(), entry.label("app")), ("u-1", Some("web")));
    }
}

#[test]
fn broken_bytes_are_refused() {
    let kv = KeyValue {
        key: "/registry/pods/ns/a".into(),
        value: "{\"metadata\":{\"labels\":[1".into(),
        create_revision: Revision(1),
        mod_revision: Revision(1),
    };
    let source = EntrySource {
        kv: &kv,
        kind: EventKind::Added,
        prefix: PODS,
        namespaced: true,
        pool: &Pool::default(),
    };
    assert!(Entry::decode(&source, |_| Ok(Fields::default())).is_err());
}
