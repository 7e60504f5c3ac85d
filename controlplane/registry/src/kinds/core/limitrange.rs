//! LimitRange: what containers, pods and claims of a namespace may ask for.
//!
//! Enforces nothing: that is admission's.
//!
//! Source: `pkg/registry/core/limitrange/strategy.go`, `pkg/apis/core/validation` at v1.37.

use std::collections::{BTreeMap, BTreeSet};

use coracle_api::{quantity::Quantity, status::FieldErrors};
use serde_json::Value;

use crate::{
    cells::{self, CREATED_AT, NAME},
    check, fill,
    kinds::podspec::resources,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, items, string},
};

/// The strategy of LimitRanges.
pub struct LimitRange;

static INFO: ResourceInfo = ResourceInfo {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, CREATED_AT];
const LISTS: [&str; 5] = [
    "min",
    "max",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];

impl BuiltIn for LimitRange {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::each(&mut object["spec"], "limits", |limit| {
            if limit["type"] == "Container" {
                fill::object(limit, "default");
                fill_from(limit, "default", "max");
                fill::object(limit, "defaultRequest");
                fill_from(limit, "defaultRequest", "default");
                fill_from(limit, "defaultRequest", "min");
            }
        });
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let mut seen = BTreeSet::new();
        for (index, limit) in items(&object["spec"]["limits"]).iter().enumerate() {
            let path = format!("spec.limits[{index}]");
            let kind = string(&limit["type"]);
            let kind_path = format!("{path}.type");
            check::qualified_name(&mut errors, &kind_path, &kind.into());
            if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim")
            {
                let message = "must be a standard limit type or fully qualified";
                errors.invalid(&kind_path, &kind.into(), message);
            }
            if !seen.insert(kind) {
                errors.duplicate(&kind_path, &kind.into());
            }
            check_limit(&mut errors, &path, limit);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::created_at(object)]
    }
}

/// What `into` does not say it has from `from`.
fn fill_from(limit: &mut Value, into: &str, from: &str) {
    for (resource, amount) in limit[from].as_object().cloned().unwrap_or_default() {
        fill::value(&mut limit[into], &resource, amount);
    }
}

fn check_limit(errors: &mut FieldErrors, path: &str, limit: &Value) {
    let mut amounts: BTreeMap<(&str, &str), Quantity> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for list in LISTS {
        for (resource, amount) in limit[list].as_object().into_iter().flatten() {
            let path = format!("{path}.{list}[{resource}]");
            check::qualified_name(errors, &path, &resource.as_str().into());
            names.insert(resource.as_str());
            if let Some(quantity) = resources::quantity(errors, &path, amount) {
                amounts.insert((list, resource), quantity);
            }
        }
    }
    if limit["type"] == "Pod" {
        for list in ["default", "defaultRequest"] {
            if value::len(&limit[list]) > 0 {
                errors.forbidden(
                    format!("{path}.{list}"),
                    "may not be specified when `type` is 'Pod'",
                );
            }
        }
    }
    if limit["type"] == "PersistentVolumeClaim"
        && limit["min"]["storage"].is_null()
        && limit["max"]["storage"].is_null()
    {
        let message =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.required(format!("{path}.limits"), message);
    }
    for resource in names {
        order(errors, path, resource, limit, &amounts);
    }
}

/// The least, the defaults and the most must be in that order.
fn order(
    errors: &mut FieldErrors,
    path: &str,
    resource: &str,
    limit: &Value,
    amounts: &BTreeMap<(&str, &str), Quantity>,
) {
    const ORDER: [(&str, &str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min value", "max value"),
        (
            "min",
            "defaultRequest",
            "defaultRequest",
            "min value",
            "default request value",
        ),
        (
            "defaultRequest",
            "max",
            "defaultRequest",
            "default request value",
            "max value",
        ),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "default request value",
            "default limit value",
        ),
        ("min", "default", "default", "min value", "default value"),
        ("default", "max", "default", "default value", "max value"),
    ];
    for (less, more, at, less_name, more_name) in ORDER {
        let (Some(low), Some(high)) = (
            amounts.get(&(less, resource)),
            amounts.get(&(more, resource)),
        ) else {
            continue;
        };
        if low > high {
            let message = format!("{less_name} {low} is greater than {more_name} {high}");
            errors.invalid(
                format!("{path}.{at}[{resource}]"),
                &limit[at][resource],
                message,
            );
        }
    }
    if let Some(ratio) = amounts.get(&("maxLimitRequestRatio", resource))
        && ratio.milli_value() < 1000
    {
        let path = format!("{path}.maxLimitRequestRatio[{resource}]");
        errors.invalid(
            path,
            &limit["maxLimitRequestRatio"][resource],
            format!("ratio {ratio} is less than 1"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created};

    #[test]
    fn defaults_follow_the_bounds() {
        let limits = json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]);
        let object = created(&LimitRange, json!({"spec": {"limits": limits}}));
        let limit = &object["spec"]["limits"][0];
        assert_eq!(limit["default"], json!({"cpu": "2"}));
        assert_eq!(
            limit["defaultRequest"],
            json!({"cpu": "2", "memory": "1Mi"})
        );
    }

    #[test]
    fn limits_are_checked() {
        for (limit, expect) in [
            (json!({"type": "Container", "max": {"cpu": "2"}}), ""),
            (
                json!({"type": "x"}),
                "spec.limits[0].type: Invalid value: \"x\": must be a standard limit type or fully qualified",
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "2"}}),
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            ),
            (
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
        ] {
            assert_eq!(
                create_errors(&LimitRange, json!({"spec": {"limits": [limit]}})),
                expect
            );
        }
    }
}
