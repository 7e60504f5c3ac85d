//! PriorityLevelConfiguration: how many requests of a priority level run at once, and which wait.
//!
//! Source: `pkg/registry/flowcontrol/prioritylevelconfiguration/strategy.go`,
//! `pkg/apis/flowcontrol/validation` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{number, string},
};

/// The strategy of PriorityLevelConfigurations.
pub struct PriorityLevelConfiguration;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Type",
        "`type` indicates whether this priority level is subject to limitation on request execution.",
    ),
    text(
        "NominalConcurrencyShares",
        "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) of this level.",
    ),
    text(
        "Queues",
        "`queues` is the number of queues for this priority level.",
    ),
    text(
        "HandSize",
        "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.",
    ),
    text(
        "QueueLengthLimit",
        "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this priority level at a time; excess requests are rejected.",
    ),
    AGE,
];

impl BuiltIn for PriorityLevelConfiguration {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PriorityLevelConfiguration {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        if spec["type"] == "Exempt" {
            fill::object(spec, "exempt");
        }
        fill::within(spec, "exempt", |exempt| {
            fill::value(exempt, "nominalConcurrencyShares", 0);
            fill::value(exempt, "lendablePercent", 0);
        });
        fill::within(spec, "limited", |limited| {
            fill::value(limited, "nominalConcurrencyShares", 30);
            fill::value(limited, "lendablePercent", 0);
            fill::object(limited, "limitResponse");
            fill::within(&mut limited["limitResponse"], "queuing", |queuing| {
                fill::number(queuing, "queues", 64);
                fill::number(queuing, "handSize", 8);
                fill::number(queuing, "queueLengthLimit", 50);
            });
        });
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
        match string(&spec["type"]) {
            "Exempt" => {
                if !limited.is_null() {
                    errors.forbidden("spec.limited", "must be nil if the type is not Limited");
                }
                shares(&mut errors, "spec.exempt", exempt);
            }
            "Limited" => {
                if !exempt.is_null() {
                    errors.forbidden("spec.exempt", "must be nil if the type is Limited");
                }
                if limited.is_null() {
                    errors.required("spec.limited", "must not be empty when type is Limited");
                } else {
                    check_limited(&mut errors, limited);
                }
            }
            _ => errors.not_supported("spec.type", &spec["type"], &["Exempt", "Limited"]),
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let limited = &spec["limited"];
        let queuing = &limited["limitResponse"]["queuing"];
        let shown = |value: &Value| match value.as_i64() {
            Some(number) => Value::from(number),
            None => NONE.into(),
        };
        vec![
            cells::name(object),
            string(&spec["type"]).into(),
            shown(&limited["nominalConcurrencyShares"]),
            shown(&queuing["queues"]),
            shown(&queuing["handSize"]),
            shown(&queuing["queueLengthLimit"]),
            cells::age(object, now_secs),
        ]
    }
}

fn shares(errors: &mut FieldErrors, path: &str, level: &Value) {
    let shares = &level["nominalConcurrencyShares"];
    if shares.as_i64().is_some_and(|shares| shares < 0) {
        errors.invalid(
            format!("{path}.nominalConcurrencyShares"),
            shares,
            "must be a non-negative integer",
        );
    }
    check::in_range(
        errors,
        &format!("{path}.lendablePercent"),
        &level["lendablePercent"],
        0,
        100,
    );
}

fn check_limited(errors: &mut FieldErrors, limited: &Value) {
    shares(errors, "spec.limited", limited);
    if number(&limited["borrowingLimitPercent"]) < 0 {
        let message = "if specified, must be a non-negative integer";
        errors.invalid(
            "spec.limited.borrowingLimitPercent",
            &limited["borrowingLimitPercent"],
            message,
        );
    }
    let response = &limited["limitResponse"];
    let (path, queuing) = ("spec.limited.limitResponse", &response["queuing"]);
    match string(&response["type"]) {
        // Upstream's words, though the type is called Queue.
        "Reject" if !queuing.is_null() => {
            errors.forbidden(
                format!("{path}.queuing"),
                "must be nil if limited.limitResponse.type is not Limited",
            );
        }
        "Reject" => {}
        "Queue" if queuing.is_null() => {
            let message = "must not be empty if limited.limitResponse.type is Limited";
            errors.required(format!("{path}.queuing"), message);
        }
        "Queue" => {
            for field in ["queueLengthLimit", "queues", "handSize"] {
                if number(&queuing[field]) <= 0 {
                    errors.invalid(
                        format!("{path}.queuing.{field}"),
                        &queuing[field],
                        "must be positive",
                    );
                }
            }
            if number(&queuing["handSize"]) > number(&queuing["queues"]) {
                let message = format!(
                    "should not be greater than queues ({})",
                    number(&queuing["queues"])
                );
                errors.invalid(
                    format!("{path}.queuing.handSize"),
                    &queuing["handSize"],
                    message,
                );
            }
        }
        _ => errors.not_supported(
            format!("{path}.type"),
            &response["type"],
            &["Queue", "Reject"],
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created};

    #[test]
    fn levels_are_checked() {
        let limited =
            |response: Value| json!({"type": "Limited", "limited": {"limitResponse": response}});
        for (spec, expect) in [
            (limited(json!({"type": "Reject"})), ""),
            (limited(json!({"type": "Queue", "queuing": {}})), ""),
            (json!({"type": "Exempt"}), ""),
            (
                json!({"type": "Limited"}),
                "spec.limited: Required value: must not be empty when type is Limited",
            ),
            (
                json!({"type": "x"}),
                "spec.type: Unsupported value: \"x\": supported values: \"Exempt\", \"Limited\"",
            ),
            (
                limited(json!({"type": "Queue", "queuing": {"handSize": 9, "queues": 8}})),
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 9: should not be greater than queues (8)",
            ),
        ] {
            assert_eq!(
                create_errors(&PriorityLevelConfiguration, json!({"spec": spec})),
                expect
            );
        }
        let object = created(
            &PriorityLevelConfiguration,
            json!({"metadata": {"name": "p"}, "spec": limited(json!({"type": "Reject"}))}),
        );
        assert_eq!(
            json!(PriorityLevelConfiguration.row(&object, 0)),
            json!([
                "p",
                "Limited",
                30,
                "<none>",
                "<none>",
                "<none>",
                "<unknown>"
            ])
        );
    }
}
