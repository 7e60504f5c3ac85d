//! What metrics look like in a table: `cpu: 10%/80%`.
//!
//! Source: `formatHPAMetrics` in `pkg/printers/internalversion/printers.go` at v1.37.

use serde_json::Value;

use crate::{
    cells::{NONE, UNKNOWN},
    value::{items, string},
};

/// More are only counted.
const SHOWN: usize = 2;

/// Present and wanted value of each metric.
pub(super) fn shown(specs: &Value, statuses: &Value) -> String {
    let specs = items(specs);
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let shown: Vec<_> = specs
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(index, spec)| one(spec, &statuses[index]))
        .collect();
    let shown = shown.join(", ");
    if specs.len() > SHOWN {
        format!("{shown} + {} more...", specs.len() - SHOWN)
    } else {
        shown
    }
}

fn one(spec: &Value, status: &Value) -> String {
    let (source, average_only) = match string(&spec["type"]) {
        "External" => ("external", false),
        "Pods" => ("pods", true),
        "Object" => ("object", false),
        "Resource" => ("resource", false),
        "ContainerResource" => ("containerResource", false),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[source]["target"], &status[source]["current"]);
    let is_resource = matches!(source, "resource" | "containerResource");
    let average = !target["averageValue"].is_null();
    let present = |field: &str, suffix: &str| match &current[field] {
        Value::String(text) => text.clone(),
        Value::Number(number) => format!("{number}{suffix}"),
        _ => UNKNOWN.to_owned(),
    };
    if average_only {
        return format!(
            "{}/{}",
            present("averageValue", ""),
            string(&target["averageValue"])
        );
    }
    if is_resource {
        let name = string(&spec[source]["name"]);
        if average {
            return format!(
                "{name}: {}/{}",
                present("averageValue", ""),
                string(&target["averageValue"])
            );
        }
        let wanted = target["averageUtilization"]
            .as_i64()
            .map_or_else(|| "<auto>".to_owned(), |own| format!("{own}%"));
        return format!("{name}: {}/{wanted}", present("averageUtilization", "%"));
    }
    if average {
        return format!(
            "{}/{} (avg)",
            present("averageValue", ""),
            string(&target["averageValue"])
        );
    }
    format!("{}/{}", present("value", ""), string(&target["value"]))
}
