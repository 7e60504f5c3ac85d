//! MutatingAdmissionPolicyBinding: where a policy holds, and with which parameters.
//!
//! Source: `pkg/registry/admissionregistration/mutatingadmissionpolicybinding/strategy.go` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::policies;
use crate::{
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
};

/// The strategy of MutatingAdmissionPolicyBindings.
pub struct MutatingAdmissionPolicyBinding;

static INFO: ResourceInfo = ResourceInfo {
    kind: "MutatingAdmissionPolicyBinding",
    plural: "mutatingadmissionpolicybindings",
    singular: "mutatingadmissionpolicybinding",
    categories: &["api-extensions"],
    unconditional_update: false,
    ..super::V1
};

impl BuiltIn for MutatingAdmissionPolicyBinding {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for MutatingAdmissionPolicyBinding {
    fn default(&self, object: &mut Value) {
        policies::default_binding(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        policies::binding(&mut errors, spec);
        let matching = &spec["matchResources"];
        policies::mutable_operations(&mut errors, "spec.matchResources", matching);
        errors
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.extend(super::reserved_name(object));
        errors
    }

    fn columns(&self) -> &'static [Column] {
        policies::BINDING_COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::binding_row(object, now_secs)
    }
}
