//! What the table rows of several kinds share: column definitions, ages, label and selector text.
//!
//! Pure text from values; no kind is known here. Cells are as kubectl prints them.
//!
//! Source: `pkg/printers/internalversion/printers.go` and `k8s.io/apimachinery/pkg/util/duration`
//! at v1.37.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    strategy::Column,
    value::{items, string, unix_seconds},
};

/// Shown where there is nothing.
pub const NONE: &str = "<none>";
/// Shown where something is not known.
pub const UNKNOWN: &str = "<unknown>";

/// The first column of nearly every kind.
pub const NAME: Column = Column {
    name: Cow::Borrowed("Name"),
    kind: Cow::Borrowed("string"),
    format: Cow::Borrowed("name"),
    description: Cow::Borrowed(
        "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    ),
    priority: 0,
};

/// How long ago the object was made.
pub const AGE: Column = text("Age", CREATION_TIMESTAMP);

/// The second column of kinds that have no columns of their own.
pub const CREATED_AT: Column = column("Created At", "date", CREATION_TIMESTAMP, 0);

const CREATION_TIMESTAMP: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// A column of text.
#[must_use]
pub const fn text(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description, 0)
}

/// A column of whole numbers.
#[must_use]
pub const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", description, 0)
}

/// A column of text that only `-o wide` shows.
#[must_use]
pub const fn wide(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description, 1)
}

/// A column of `true` and `false`.
#[must_use]
pub const fn flag(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", description, 0)
}

const fn column(
    name: &'static str,
    kind: &'static str,
    description: &'static str,
    priority: i32,
) -> Column {
    Column {
        name: Cow::Borrowed(name),
        kind: Cow::Borrowed(kind),
        format: Cow::Borrowed(""),
        description: Cow::Borrowed(description),
        priority,
    }
}

/// `-o wide` columns of kinds with a pod template.
pub const CONTAINERS: Column = wide("Containers", "Names of each container in the template.");
/// `-o wide` columns of kinds with a pod template.
pub const IMAGES: Column = wide(
    "Images",
    "Images referenced by each container in the template.",
);

/// `metadata.name` as a cell.
#[must_use]
pub fn name(object: &Value) -> Value {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .into()
}

/// The cell of [`AGE`].
#[must_use]
pub fn age(object: &Value, now_secs: i64) -> Value {
    since(&object["metadata"]["creationTimestamp"], now_secs).into()
}

/// The cell of [`CREATED_AT`].
#[must_use]
pub fn created_at(object: &Value) -> Value {
    object["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap_or_default()
        .into()
}

/// How long ago an RFC 3339 field was, or `<unknown>`.
#[must_use]
pub fn since(timestamp: &Value, now_secs: i64) -> String {
    unix_seconds(timestamp).map_or_else(
        || UNKNOWN.to_owned(),
        |then| human_duration(now_secs - then),
    )
}

/// A duration with two or three significant figures: `45s`, `5m10s`, `3h2m`, `47h`, `5d`, `2y10d`.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let pair = |big: i64, big_unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{big}{big_unit}")
        } else {
            format!("{big}{big_unit}{small}{small_unit}")
        }
    };
    // Two seconds of disagreement between clocks are forgiven.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    if seconds < 120 {
        format!("{}s", seconds.max(0))
    } else if minutes < 10 {
        pair(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        pair(days, 'd', hours % 24, 'h')
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        pair(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

/// `a=b,c=d`, or `<none>`.
#[must_use]
pub fn labels(map: &Value) -> String {
    match map.as_object() {
        Some(map) if !map.is_empty() => {
            let mut pairs: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{key}={}", string(value)))
                .collect();
            pairs.sort();
            pairs.join(",")
        }
        _ => NONE.to_owned(),
    }
}

/// A LabelSelector in the form that queries use: `a=b,c in (d,e),!f`; `<none>` when it selects
/// everything.
#[must_use]
pub fn label_selector(selector: &Value) -> String {
    // Requirements are ordered by key, as upstream's selectors are.
    let mut requirements: Vec<(String, String)> = Vec::new();
    if let Some(labels) = selector["matchLabels"].as_object() {
        requirements.extend(
            labels
                .iter()
                .map(|(key, value)| (key.clone(), format!("{key}={}", string(value)))),
        );
    }
    for expression in items(&selector["matchExpressions"]) {
        let key = string(&expression["key"]);
        let mut values: Vec<_> = items(&expression["values"]).iter().map(string).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match string(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        requirements.push((key.to_owned(), text));
    }
    if requirements.is_empty() {
        return NONE.to_owned();
    }
    requirements.sort_by(|a, b| a.0.cmp(&b.0));
    requirements
        .into_iter()
        .map(|(_, text)| text)
        .collect::<Vec<_>>()
        .join(",")
}

/// The cells of [`CONTAINERS`] and [`IMAGES`] for a pod template.
#[must_use]
pub fn containers_and_images(template: &Value) -> [Value; 2] {
    let containers = items(&template["spec"]["containers"]);
    let list = |field: &str| {
        containers
            .iter()
            .map(|c| string(&c[field]))
            .collect::<Vec<_>>()
            .join(",")
    };
    [list("name").into(), list("image").into()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_keep_two_or_three_figures() {
        for (seconds, expect) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (310, "5m10s"),
            (600, "10m"),
            (10799, "179m"),
            (10800, "3h"),
            (10920, "3h2m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (740 * 86400, "2y10d"),
            (3650 * 86400, "10y"),
        ] {
            assert_eq!(human_duration(seconds), expect, "{seconds}");
        }
    }

    #[test]
    fn selectors_print_as_queries_do() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "NotIn", "values": ["z"]},
            {"key": "d", "operator": "Exists"},
            {"key": "e", "operator": "DoesNotExist"}]});
        assert_eq!(label_selector(&selector), "a in (x,y),b=1,c notin (z),d,!e");
        assert_eq!(label_selector(&json!({})), "<none>");
    }
}
