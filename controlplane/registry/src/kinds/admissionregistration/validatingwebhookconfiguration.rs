//! ValidatingWebhookConfiguration: webhooks that may refuse a request.
//!
//! Source: `pkg/registry/admissionregistration/validatingwebhookconfiguration/strategy.go` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::webhooks;
use crate::{
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
};

/// The strategy of ValidatingWebhookConfigurations.
pub struct ValidatingWebhookConfiguration;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    categories: &["api-extensions"],
    unconditional_update: false,
    ..super::V1
};

impl BuiltIn for ValidatingWebhookConfiguration {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ValidatingWebhookConfiguration {
    fn default(&self, object: &mut Value) {
        webhooks::default(object, false);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        new["webhooks"] != old["webhooks"]
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        webhooks::validate(object, None, false)
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.extend(super::reserved_name(object));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        webhooks::validate(new, Some(old), false)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        webhooks::warnings(object)
    }

    fn columns(&self) -> &'static [Column] {
        webhooks::COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        webhooks::row(object, now_secs)
    }
}
