//! Event: something that happened to an object, for people to read.

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    cells::{self, NAME, text, wide},
    check, fill,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, string},
};

/// The strategy of Events.
pub struct Event;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    text(
        "Last Seen",
        "The time at which the most recent occurrence of this event was recorded.",
    ),
    text(
        "Type",
        "Type of this event (Normal, Warning), new types could be added in the future",
    ),
    text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    ),
    text("Object", "The object that this event is about."),
    wide(
        "Subobject",
        "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2].",
    ),
    wide(
        "Source",
        "The component reporting this event. Should be a short machine understandable string.",
    ),
    text(
        "Message",
        "A human-readable description of the status of this operation.",
    ),
    wide(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    ),
    wide("Count", "The number of times this event has occurred."),
    Column {
        priority: 1,
        ..NAME
    },
];

const FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

impl BuiltIn for Event {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }
}

impl Strategy for Event {
    fn default(&self, object: &mut Value) {
        // Clients demand these, also when nobody filled them in.
        for (field, empty) in [
            ("source", json!({})),
            ("involvedObject", json!({})),
            ("reportingComponent", json!("")),
            ("reportingInstance", json!("")),
        ] {
            fill::value(object, field, empty);
        }
        for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
            if object.get(field).is_none() {
                object[field] = Value::Null;
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let involved = &object["involvedObject"];
        let namespace = string(&object["metadata"]["namespace"]);
        let own = string(&involved["namespace"]);
        if own.is_empty() {
            // Of an object without a namespace: such events live in the default one.
            if !matches!(namespace, "" | "default" | "kube-system") {
                errors.invalid(
                    "involvedObject.namespace",
                    &own.into(),
                    "does not match event.namespace",
                );
            }
        } else if own != namespace {
            errors.invalid(
                "involvedObject.namespace",
                &own.into(),
                "does not match event.namespace",
            );
        }
        check::invalid_all(
            &mut errors,
            "metadata.namespace",
            &namespace.into(),
            name::dns_subdomain_errors(namespace),
        );
        if object["eventTime"].is_string() {
            modern(&mut errors, object);
        }
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let value = match path.split_once('.') {
            Some(("involvedObject", field)) => &object["involvedObject"][field],
            // Whichever of the two forms the reporter used.
            _ if path == "source" => match value::string(&object["source"]["component"]) {
                "" => &object["reportingComponent"],
                _ => &object["source"]["component"],
            },
            _ => &object[path],
        };
        value::string(value).to_owned()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let set = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let first = if set(&object["firstTimestamp"]) {
            &object["firstTimestamp"]
        } else {
            &object["eventTime"]
        };
        let first = cells::since(first, now_secs);
        let mut last = if set(&object["lastTimestamp"]) {
            cells::since(&object["lastTimestamp"], now_secs)
        } else {
            first.clone()
        };
        // In the new API what has happened once has no count, and what happens again counts in its
        // series alone.
        let mut count = value::number(&object["count"]).max(1);
        if object["series"].is_object() {
            last = cells::since(&object["series"]["lastObservedTime"], now_secs);
            count = value::number(&object["series"]["count"]);
        }
        let involved = &object["involvedObject"];
        let kind = value::string(&involved["kind"]).to_lowercase();
        let target = match value::string(&involved["name"]) {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        vec![
            last.into(),
            value::string(&object["type"]).into(),
            value::string(&object["reason"]).into(),
            target.into(),
            value::string(&involved["fieldPath"]).into(),
            source(object).into(),
            value::string(&object["message"]).trim().into(),
            first.into(),
            count.into(),
            cells::name(object),
        ]
    }
}

/// `component, host`, from the old fields or the new.
fn source(object: &Value) -> String {
    let component = value::string_or(
        &object["source"]["component"],
        value::string(&object["reportingComponent"]),
    );
    let host = value::string_or(
        &object["source"]["host"],
        value::string(&object["reportingInstance"]),
    );
    if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    }
}

/// What is asked of events in the newer form, which have an `eventTime`.
fn modern(errors: &mut FieldErrors, object: &Value) {
    if check::required(errors, "reportingController", &object["reportingComponent"]) {
        check::qualified_name(errors, "reportingController", &object["reportingComponent"]);
    }
    for (field, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        if check::required(errors, field, &object[field]) && string(&object[field]).len() > max {
            errors.invalid(
                field,
                &"".into(),
                format!("can have at most {max} characters"),
            );
        }
    }
    if string(&object["message"]).len() > 1024 {
        errors.invalid("message", &"".into(), "can have at most 1024 characters");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::create_errors;

    fn event() -> Value {
        json!({
            "metadata": {"name": "e", "namespace": "a"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "a"},
            "reason": "Started", "message": " hello ", "type": "Normal", "source": {"component": "agent", "host": "n1"},
            "firstTimestamp": "1970-01-01T00:00:10Z", "lastTimestamp": "1970-01-01T00:00:40Z", "count": 3,
        })
    }

    #[test]
    fn events_are_checked() {
        assert_eq!(create_errors(&Event, event()), "");
        let mut other = event();
        other["involvedObject"]["namespace"] = json!("b");
        assert_eq!(
            create_errors(&Event, other),
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"
        );
        let mut modern = event();
        modern["eventTime"] = json!("1970-01-01T00:00:10.000000Z");
        assert_eq!(
            create_errors(&Event, modern),
            "[reportingController: Required value, reportingInstance: Required value, action: Required value]"
        );
    }

    #[test]
    fn rows_show_when_what_and_about_what() {
        assert_eq!(
            json!(Event.row(&event(), 100)),
            json!([
                "60s",
                "Normal",
                "Started",
                "pod/p",
                "",
                "agent, n1",
                "hello",
                "90s",
                3,
                "e"
            ])
        );
        let series = json!({"eventTime": "1970-01-01T00:00:10.000000Z", "series": {"count": 9, "lastObservedTime": "1970-01-01T00:01:30.000000Z"}});
        let row = Event.row(&series, 100);
        assert_eq!(
            (&row[0], &row[7], &row[8]),
            (&json!("10s"), &json!("90s"), &json!(9))
        );
    }

    #[test]
    fn field_selectors_read_the_involved_object() {
        for (path, expect) in [
            ("involvedObject.name", "p"),
            ("reason", "Started"),
            ("source", "agent"),
            ("type", "Normal"),
            ("involvedObject.uid", ""),
        ] {
            assert_eq!(Event.field(&event(), path), expect, "{path}");
        }
    }
}
