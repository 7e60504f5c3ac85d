//! Event as `events.k8s.io/v1` shows it: the same objects as the core group's, other names.
//!
//! Source: `pkg/apis/events/v1/conversion.go`, `pkg/apis/core/validation/events.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    fill,
    kinds::core,
    strategy::{BuiltIn, Column, Conversion, ResourceInfo, Strategy, View},
    value::{number, string},
};

/// The strategy of the newer form of Events.
pub struct Event;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    create_on_update: true,
    ..ResourceInfo::in_group("events.k8s.io", "v1")
};

static VIEW: View = View {
    of: &core::event::Event,
    conversion: Conversion {
        to_stored,
        from_stored,
        stored_field,
    },
};

/// Names here, names in the core group.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

const FIELDS: [(&str, &str); 10] = [
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("regarding.apiVersion", "involvedObject.apiVersion"),
    (
        "regarding.resourceVersion",
        "involvedObject.resourceVersion",
    ),
    ("regarding.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];
const FIELD_NAMES: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

impl BuiltIn for Event {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn view(&self) -> Option<&'static View> {
        Some(&VIEW)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELD_NAMES
    }
}

impl Strategy for Event {
    fn default(&self, object: &mut Value) {
        fill::value(object, "eventTime", Value::Null);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // Those of the older form are only looked at, not written this way.
        if object["eventTime"].is_null() && number(&object["deprecatedCount"]) == 0 {
            errors.required("eventTime", "");
        }
        let kind = &object["type"];
        if !matches!(string(kind), "Normal" | "Warning") {
            errors.invalid(
                "type",
                &"".into(),
                format!("has invalid value: {}", string(kind)),
            );
        }
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        core::event::Event.field(&to_stored(object.clone()), stored_field(path))
    }

    fn columns(&self) -> &'static [Column] {
        core::event::Event.columns()
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        core::event::Event.row(&to_stored(object.clone()), now_secs)
    }
}

fn stored_field(field: &str) -> &str {
    FIELDS
        .iter()
        .find(|(own, _)| *own == field)
        .map_or(field, |(_, stored)| *stored)
}

fn rename(object: &mut Value, from: &str, to: &str) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    // Gone when empty: what the other form need not have it does not show.
    if let Some(value) = map.remove(from)
        && !value.is_null()
    {
        map.insert(to.to_owned(), value);
    }
}

fn to_stored(mut object: Value) -> Value {
    for (own, stored) in NAMES {
        rename(&mut object, own, stored);
    }
    object
}

fn from_stored(mut object: Value) -> Value {
    for (own, stored) in NAMES {
        rename(&mut object, stored, own);
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_differ_and_nothing_is_lost() {
        let modern = json!({"eventTime": "1970-01-01T00:00:10.000000Z", "note": "n", "regarding": {"kind": "Pod"},
            "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"});
        let stored = to_stored(modern.clone());
        assert_eq!(
            (&stored["message"], &stored["involvedObject"]["kind"]),
            (&json!("n"), &json!("Pod"))
        );
        assert_eq!(stored["reportingComponent"], "c");
        assert_eq!(from_stored(stored), modern);
        assert_eq!(Event.row(&modern, 100)[3], "pod");
    }

    #[test]
    fn new_events_have_a_time_and_a_type() {
        assert_eq!(
            Event.validate(&json!({"type": "x"})).to_string(),
            "[eventTime: Required value, type: Invalid value: \"\": has invalid value: x]"
        );
    }

    #[test]
    fn every_field_has_a_stored_name() {
        for field in FIELD_NAMES {
            let stored = stored_field(field);
            assert!(
                core::event::Event.selectable_fields().contains(&stored),
                "{field} {stored}"
            );
        }
    }
}
