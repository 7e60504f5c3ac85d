//! Event: something that happened to an object, for people to read.

use serde_json::Value;

use crate::registry::cells::{self, NAME, text, wide};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of Events.
pub struct Event;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    text("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    text("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    text("Reason", "This should be a short, machine understandable string that gives the reason for the transition into the object's current status."),
    text("Object", "The object that this event is about."),
    wide("Subobject", "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]."),
    wide("Source", "The component reporting this event. Should be a short machine understandable string."),
    text("Message", "A human-readable description of the status of this operation."),
    wide("First Seen", "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)"),
    wide("Count", "The number of times this event has occurred."),
    Column { priority: 1, ..NAME },
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

impl Strategy for Event {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let value = match path.split_once('.') {
            Some(("involvedObject", field)) => &object["involvedObject"][field],
            // Whichever of the two forms the reporter used.
            _ if path == "source" => match cells::string(&object["source"]["component"]) {
                "" => &object["reportingComponent"],
                _ => &object["source"]["component"],
            },
            _ => &object[path],
        };
        cells::string(value).to_owned()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let set = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let first = if set(&object["firstTimestamp"]) { &object["firstTimestamp"] } else { &object["eventTime"] };
        let first = cells::since(first, now_secs);
        let mut last =
            if set(&object["lastTimestamp"]) { cells::since(&object["lastTimestamp"], now_secs) } else { first.clone() };
        let mut count = cells::number(&object["count"]).max(1);
        if object["series"].is_object() {
            last = cells::since(&object["series"]["lastObservedTime"], now_secs);
            count = cells::number(&object["series"]["count"]);
        }
        let involved = &object["involvedObject"];
        let kind = cells::string(&involved["kind"]).to_lowercase();
        let target = match cells::string(&involved["name"]) {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        vec![
            last.into(),
            cells::string(&object["type"]).into(),
            cells::string(&object["reason"]).into(),
            target.into(),
            cells::string(&involved["fieldPath"]).into(),
            source(object).into(),
            cells::string(&object["message"]).trim().into(),
            first.into(),
            count.into(),
            cells::name(object),
        ]
    }
}

/// `component, host`, from the old fields or the new.
fn source(object: &Value) -> String {
    let component = cells::string_or(&object["source"]["component"], cells::string(&object["reportingComponent"]));
    let host = cells::string_or(&object["source"]["host"], cells::string(&object["reportingInstance"]));
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}
