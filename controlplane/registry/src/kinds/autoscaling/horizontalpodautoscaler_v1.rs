//! HorizontalPodAutoscaler in version v1: one number for the CPU; all else travels in annotations.
//!
//! Source: `pkg/apis/autoscaling/v1/conversion.go` at v1.37.

use coracle_api::{meta, status::FieldErrors};
use serde_json::{Map, Value, json};

use super::horizontalpodautoscaler::{BOTH, COLUMNS, HorizontalPodAutoscaler};
use crate::{
    check, fill,
    strategy::{BuiltIn, Column, Conversion, ResourceInfo, Strategy, View},
    value::{items, string},
};

/// The strategy of HorizontalPodAutoscalers as version v1 shows them.
pub struct HorizontalPodAutoscalerV1;

static INFO: ResourceInfo = ResourceInfo {
    version: "v1",
    ..BOTH
};

static VIEW: View = View {
    of: &HorizontalPodAutoscaler,
    conversion: Conversion {
        to_stored,
        from_stored,
        stored_field: |field| field,
    },
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CPU_TARGET: &str = "targetCPUUtilizationPercentage";
const CPU_NOW: &str = "currentCPUUtilizationPercentage";

impl BuiltIn for HorizontalPodAutoscalerV1 {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn view(&self) -> Option<&'static View> {
        Some(&VIEW)
    }
}

impl Strategy for HorizontalPodAutoscalerV1 {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::value(&mut object["spec"], "minReplicas", 1);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let target = &object["spec"][CPU_TARGET];
        if target.as_i64().is_some_and(|target| target < 1) {
            let path = "spec.metrics[0].resource.target.averageUtilization";
            errors.invalid(path, target, "must be greater than 0");
        }
        check::not_negative(
            &mut errors,
            "spec.minReplicas",
            &object["spec"]["minReplicas"],
        );
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        HorizontalPodAutoscaler.row(&to_stored(object.clone()), now_secs)
    }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn from_stored(mut object: Value) -> Value {
    let mut notes = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let cpu = |metric: &&Value| {
            is_cpu(metric) && metric["resource"]["target"]["averageUtilization"].is_number()
        };
        // One goes where v1 has a field for it. A second one has no place there and travels with
        // the rest.
        let cpu_metric = items(&metrics).iter().find(cpu);
        if let Some(metric) = cpu_metric {
            spec.insert(
                CPU_TARGET.to_owned(),
                metric["resource"]["target"]["averageUtilization"].clone(),
            );
        }
        note(
            &mut notes,
            METRICS,
            items(&metrics)
                .iter()
                .filter(|one| cpu_metric != Some(one))
                .map(|one| flat(one, "target")),
        );
        if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
            notes.insert(BEHAVIOR.to_owned(), behavior.to_string().into());
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = status.remove("currentMetrics").unwrap_or_default();
        if let Some(metric) = items(&metrics).iter().find(|metric| is_cpu(metric)) {
            let now = &metric["resource"]["current"]["averageUtilization"];
            if now.is_number() {
                status.insert(CPU_NOW.to_owned(), now.clone());
            }
        }
        note(
            &mut notes,
            CURRENT_METRICS,
            items(&metrics).iter().map(|one| flat(one, "current")),
        );
        let conditions = status.remove("conditions").unwrap_or_default();
        note(&mut notes, CONDITIONS, items(&conditions).iter().cloned());
        status.entry("currentReplicas").or_insert_with(|| 0.into());
    }
    for (key, text) in notes {
        meta::set_annotation(&mut object, &key, string(&text));
    }
    object
}

fn note(notes: &mut Map<String, Value>, key: &str, list: impl Iterator<Item = Value>) {
    let list: Vec<Value> = list.collect();
    if !list.is_empty() {
        notes.insert(key.to_owned(), Value::from(list).to_string().into());
    }
}

fn to_stored(mut object: Value) -> Value {
    let mut take = |key: &str| -> Value {
        let annotations = object["metadata"]
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        let text = annotations.and_then(|annotations| annotations.remove(key));
        text.and_then(|text| serde_json::from_str(string(&text)).ok())
            .unwrap_or_default()
    };
    let (metrics, behavior) = (take(METRICS), take(BEHAVIOR));
    let (current, conditions) = (take(CURRENT_METRICS), take(CONDITIONS));
    if object["metadata"]["annotations"]
        .as_object()
        .is_some_and(Map::is_empty)
    {
        meta::remove(&mut object, &["metadata", "annotations"]);
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all = Vec::new();
        if let Some(target) = spec.remove(CPU_TARGET).filter(Value::is_number) {
            all.push(json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}}));
        }
        all.extend(items(&metrics).iter().map(|one| deep(one, "target")));
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), all.into());
        }
        if behavior.is_object() {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let now = status.remove(CPU_NOW).filter(Value::is_number);
        let mut all: Vec<_> = items(&current)
            .iter()
            .map(|one| deep(one, "current"))
            .collect();
        if let Some(now) = now {
            match all.iter_mut().find(|metric| is_cpu(metric)) {
                Some(metric) => metric["resource"]["current"]["averageUtilization"] = now,
                None => all.push(json!({"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageUtilization": now}}})),
            }
        }
        if !all.is_empty() {
            status.insert("currentMetrics".to_owned(), all.into());
        }
        // Always there in v1, never when zero in v2.
        if status
            .get("currentReplicas")
            .is_some_and(|count| *count == 0)
        {
            status.remove("currentReplicas");
        }
        if conditions.is_array() {
            status.insert("conditions".to_owned(), conditions);
        }
    }
    object
}

/// The parts of a metric in v2, by where v1's annotations have them. `*` stands for `target` or
/// `current`.
const PARTS: &[(&str, &[&str], &str)] = &[
    ("resource", &["name"], "name"),
    (
        "resource",
        &["*", "averageUtilization"],
        "*AverageUtilization",
    ),
    ("resource", &["*", "averageValue"], "*AverageValue"),
    ("containerResource", &["name"], "name"),
    ("containerResource", &["container"], "container"),
    (
        "containerResource",
        &["*", "averageUtilization"],
        "*AverageUtilization",
    ),
    ("containerResource", &["*", "averageValue"], "*AverageValue"),
    ("pods", &["metric", "name"], "metricName"),
    ("pods", &["metric", "selector"], "selector"),
    ("pods", &["*", "averageValue"], "*AverageValue"),
    ("object", &["describedObject"], "target"),
    ("object", &["metric", "name"], "metricName"),
    ("object", &["metric", "selector"], "selector"),
    ("object", &["*", "value"], "*Value"),
    ("object", &["*", "averageValue"], "averageValue"),
    ("external", &["metric", "name"], "metricName"),
    ("external", &["metric", "selector"], "metricSelector"),
    ("external", &["*", "value"], "*Value"),
    ("external", &["*", "averageValue"], "*AverageValue"),
];

/// A metric in the flat form of v1's annotations.
fn flat(metric: &Value, role: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, path, name) in PARTS {
        let path: Vec<_> = path.iter().map(|part| part.replace('*', role)).collect();
        let found = path
            .iter()
            .fold(&metric[*source], |value, part| &value[part.as_str()]);
        if !found.is_null() {
            out[*source][name.replace('*', role)] = found.clone();
        }
    }
    out
}

/// The same the other way.
fn deep(metric: &Value, role: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, path, name) in PARTS {
        let found = &metric[*source][name.replace('*', role)];
        if found.is_null() {
            continue;
        }
        let path = path.iter().map(|part| part.replace('*', role));
        *path.fold(&mut out[*source], |value, part| &mut value[part]) = found.clone();
    }
    for (source, _, _) in PARTS {
        if role == "target" && out[*source].is_object() {
            let target = &mut out[*source]["target"];
            // The annotations do not say what kind of target it is: it is the kind that is set.
            let kind = if !target["averageUtilization"].is_null() {
                "Utilization"
            } else if !target["averageValue"].is_null() {
                "AverageValue"
            } else {
                "Value"
            };
            if let Some(target) = target.as_object_mut() {
                target.retain(|_, value| !value.is_null());
            }
            fill::text(target, "type", kind);
        }
    }
    if let Some(out) = out.as_object_mut() {
        out.retain(|_, value| !value.is_null());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::defaulted;

    fn stored() -> Value {
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "minReplicas": 1, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
            {"type": "Object", "object": {"describedObject": {"kind": "K", "name": "n"}, "metric": {"name": "o"},
                "target": {"type": "Value", "value": "7"}}}],
            "behavior": {"scaleUp": {"selectPolicy": "Max"}}},
            "status": {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": 9, "averageValue": "10m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}]}})
    }

    #[test]
    fn v1_shows_the_cpu_and_keeps_the_rest_in_annotations() {
        let shown = from_stored(stored());
        assert_eq!(
            shown["spec"],
            json!({"maxReplicas": 3, "minReplicas": 1, CPU_TARGET: 50})
        );
        assert_eq!(shown["status"], json!({"currentReplicas": 2, CPU_NOW: 9}));
        let metrics: Value =
            serde_json::from_str(string(&shown["metadata"]["annotations"][METRICS])).unwrap();
        assert_eq!(
            metrics[0],
            json!({"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": "5"}})
        );
    }

    #[test]
    fn nothing_is_lost_on_the_way_there_and_back() {
        assert_eq!(to_stored(from_stored(stored())), stored());
    }

    #[test]
    fn a_new_v1_autoscaler_has_its_cpu_target() {
        let object = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, CPU_TARGET: 60}});
        let stored = to_stored(defaulted(&HorizontalPodAutoscalerV1, object));
        assert_eq!(
            stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
            60
        );
        assert_eq!(stored["spec"]["minReplicas"], 1);
        let row = HorizontalPodAutoscalerV1.row(&from_stored(stored), 0);
        assert_eq!(row[2], "cpu: <unknown>/60%");
    }
}
