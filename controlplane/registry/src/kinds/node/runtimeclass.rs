//! RuntimeClass: a way of running containers that a node may offer.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value,
};

/// The strategy of RuntimeClasses.
pub struct RuntimeClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    scope: Scope::Cluster,
    create_on_update: true,
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Handler",
        "handler specifies the underlying runtime and configuration that the CRI implementation will use to handle pods of this class.",
    ),
    AGE,
];

impl BuiltIn for RuntimeClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::dns_label(&mut errors, "handler", &object["handler"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "handler", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::string(&object["handler"]).into(),
            cells::age(object, now_secs),
        ]
    }
}
