//! ResourceClaimTemplate: what the claims of pods are made from.
//!
//! Source: `pkg/registry/resource/resourceclaimtemplate/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::{
    check, fill,
    strategy::{BuiltIn, ResourceInfo, Strategy},
};

/// The strategy of ResourceClaimTemplates.
pub struct ResourceClaimTemplate;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    singular: "resourceclaimtemplate",
    ..super::V1
};

impl BuiltIn for ResourceClaimTemplate {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ResourceClaimTemplate {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::object(spec, "metadata");
        fill::object(spec, "spec");
        devices::default(&mut spec["spec"]);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::labels(
            &mut errors,
            "spec.metadata.labels",
            &spec["metadata"]["labels"],
        );
        check::annotations(
            &mut errors,
            "spec.metadata.annotations",
            &spec["metadata"]["annotations"],
        );
        devices::claim(&mut errors, "spec.spec", &spec["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::immutable_field(&mut errors, "spec", new, old);
        errors
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn templates_are_checked_as_claims_are() {
        let of = |request: Value| json!({"spec": {"spec": {"devices": {"requests": [request]}}}});
        let good = of(json!({"name": "r", "exactly": {"deviceClassName": "gpu"}}));
        assert_eq!(create_errors(&ResourceClaimTemplate, good), "");
        assert_eq!(
            create_errors(
                &ResourceClaimTemplate,
                of(json!({"exactly": {"deviceClassName": "gpu"}}))
            ),
            "spec.spec.devices.requests[0].name: Required value"
        );
    }
}
