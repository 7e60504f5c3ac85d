//! FlowSchema: which requests are of which priority level.
//!
//! Source: `pkg/registry/flowcontrol/flowschema/strategy.go`, `pkg/apis/flowcontrol/validation` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{self, items, number, string},
};

/// The strategy of FlowSchemas.
pub struct FlowSchema;

static INFO: ResourceInfo = ResourceInfo {
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "PriorityLevel",
        "`priorityLevelConfiguration` should reference a PriorityLevelConfiguration in the cluster.",
    ),
    text(
        "MatchingPrecedence",
        "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request.",
    ),
    text(
        "DistinguisherMethod",
        "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema.",
    ),
    AGE,
    text(
        "MissingPL",
        "references a broken or non-existent PriorityLevelConfiguration",
    ),
];

const MAX_PRECEDENCE: i64 = 10000;

impl BuiltIn for FlowSchema {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for FlowSchema {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::number(&mut object["spec"], "matchingPrecedence", 1000);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let precedence = &spec["matchingPrecedence"];
        let path = "spec.matchingPrecedence";
        if number(precedence) <= 0 {
            errors.invalid(path, precedence, "must be a positive value");
        }
        if number(precedence) > MAX_PRECEDENCE {
            errors.invalid(
                path,
                precedence,
                format!("must not be greater than {MAX_PRECEDENCE}"),
            );
        }
        if number(precedence) == 1 && object["metadata"]["name"] != "exempt" {
            errors.invalid(
                path,
                precedence,
                "only the schema named 'exempt' may have matchingPrecedence 1",
            );
        }
        let method = &spec["distinguisherMethod"]["type"];
        if spec["distinguisherMethod"].is_object()
            && !matches!(string(method), "ByNamespace" | "ByUser")
        {
            errors.not_supported(
                "spec.distinguisherMethod",
                method,
                &["ByNamespace", "ByUser"],
            );
        }
        let level = &spec["priorityLevelConfiguration"]["name"];
        if string(level).is_empty() {
            errors.required(
                "spec.priorityLevelConfiguration.name",
                "must reference a priority level",
            );
        } else {
            check::dns_subdomain(&mut errors, "spec.priorityLevelConfiguration.name", level);
        }
        for (index, rule) in items(&spec["rules"]).iter().enumerate() {
            check_rule(&mut errors, &format!("spec.rules[{index}]"), rule);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let dangling = items(&object["status"]["conditions"])
            .iter()
            .find(|one| one["type"] == "Dangling");
        vec![
            cells::name(object),
            string(&spec["priorityLevelConfiguration"]["name"]).into(),
            number(&spec["matchingPrecedence"]).into(),
            value::string_or(&spec["distinguisherMethod"]["type"], NONE).into(),
            cells::age(object, now_secs),
            dangling.map_or("?", |one| string(&one["status"])).into(),
        ]
    }
}

fn check_rule(errors: &mut FieldErrors, path: &str, rule: &Value) {
    let subjects = items(&rule["subjects"]);
    if subjects.is_empty() {
        errors.required(
            format!("{path}.subjects"),
            "subjects must contain at least one value",
        );
    }
    for (index, subject) in subjects.iter().enumerate() {
        check_subject(errors, &format!("{path}.subjects[{index}]"), subject);
    }
    let (resources, others) = (
        items(&rule["resourceRules"]),
        items(&rule["nonResourceRules"]),
    );
    if resources.is_empty() && others.is_empty() {
        errors.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    for (index, one) in resources.iter().enumerate() {
        let path = format!("{path}.resourceRules[{index}]");
        at_least_one(errors, &path, one, &["verbs", "apiGroups", "resources"]);
        if one["clusterScope"] != true && items(&one["namespaces"]).is_empty() {
            let message =
                "resource rules that are not cluster scoped must supply at least one namespace";
            errors.required(format!("{path}.namespaces"), message);
        }
    }
    for (index, one) in others.iter().enumerate() {
        let path = format!("{path}.nonResourceRules[{index}]");
        at_least_one(errors, &path, one, &["verbs", "nonResourceURLs"]);
    }
}

fn check_subject(errors: &mut FieldErrors, path: &str, subject: &Value) {
    let kind = string(&subject["kind"]);
    let field = match kind {
        "ServiceAccount" => "serviceAccount",
        "User" => "user",
        "Group" => "group",
        _ => {
            let kinds = ["Group", "ServiceAccount", "User"];
            errors.not_supported(format!("{path}.kind"), &subject["kind"], &kinds);
            return;
        }
    };
    let path = format!("{path}.{field}");
    if subject[field].is_null() {
        let message = format!("{field} is required when subject kind is '{kind}'");
        errors.required(path, message);
    } else {
        check::required(errors, &format!("{path}.name"), &subject[field]["name"]);
    }
}

fn at_least_one(errors: &mut FieldErrors, path: &str, rule: &Value, lists: &[&str]) {
    for list in lists {
        if items(&rule[*list]).is_empty() {
            let message = format!("{list} must contain at least one value");
            errors.required(format!("{path}.{list}"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, with};

    #[test]
    fn schemas_are_checked() {
        let schema = json!({"metadata": {"name": "f"}, "spec": {"priorityLevelConfiguration": {"name": "low"},
            "rules": [{"subjects": [{"kind": "Group", "group": {"name": "g"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["*"]}]}]}});
        for (pointer, value, expect) in [
            ("/spec/distinguisherMethod", json!({"type": "ByUser"}), ""),
            (
                "/spec/matchingPrecedence",
                json!(1),
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            ),
            (
                "/spec/matchingPrecedence",
                json!(10001),
                "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
            ),
            (
                "/spec/priorityLevelConfiguration",
                json!({}),
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ),
            (
                "/spec/rules/0/subjects",
                json!([]),
                "spec.rules[0].subjects: Required value: subjects must contain at least one value",
            ),
        ] {
            assert_eq!(
                create_errors(&FlowSchema, with(&schema, pointer, value.clone())),
                expect,
                "{pointer} = {value}"
            );
        }
        let object = created(&FlowSchema, schema);
        assert_eq!(
            json!(FlowSchema.row(&object, 0)),
            json!(["f", "low", 1000, "<none>", "<unknown>", "?"])
        );
    }
}
