//! CSIStorageCapacity: how much storage of a class is left in a part of the cluster.
//!
//! Source: `pkg/registry/storage/csistoragecapacity/strategy.go`, `pkg/apis/storage/validation` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, NAME, text},
    check,
    kinds::podspec::resources,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, string},
};

/// The strategy of CSIStorageCapacities.
pub struct CsiStorageCapacity;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "StorageClassName",
        "storageClassName represents the name of the StorageClass that the reported capacity applies to.",
    ),
    text(
        "Capacity",
        "capacity is the value reported by the CSI driver in its GetCapacityResponse for a GetCapacityRequest with topology and parameters that match the previous fields.",
    ),
];

impl BuiltIn for CsiStorageCapacity {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for CsiStorageCapacity {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::label_selector(&mut errors, "nodeTopology", &object["nodeTopology"]);
        let class = &object["storageClassName"];
        check::invalid_all(
            &mut errors,
            "storageClassName",
            &string(class).into(),
            coracle_api::name::dns_subdomain_errors(string(class)),
        );
        for field in ["capacity", "maximumVolumeSize"] {
            let amount = &object[field];
            if !amount.is_null()
                && let Some(quantity) = resources::quantity(&mut errors, field, amount)
                && quantity.is_negative()
            {
                errors.invalid(field, amount, check::NOT_NEGATIVE);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        for field in ["nodeTopology", "storageClassName"] {
            check::immutable_field(&mut errors, field, new, old);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            string(&object["storageClassName"]).into(),
            value::string_or(&object["capacity"], "<unset>").into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, update_errors, with};

    #[test]
    fn capacities_are_checked() {
        let capacity =
            json!({"metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Gi"});
        assert_eq!(create_errors(&CsiStorageCapacity, capacity.clone()), "");
        assert_eq!(
            create_errors(
                &CsiStorageCapacity,
                with(&capacity, "/capacity", json!("-1"))
            ),
            "capacity: Invalid value: \"-1\": must be greater than or equal to 0"
        );
        assert_eq!(
            update_errors(
                &CsiStorageCapacity,
                with(&capacity, "/storageClassName", json!("x")),
                &capacity
            ),
            "storageClassName: Invalid value: \"x\": field is immutable"
        );
        assert_eq!(
            json!(CsiStorageCapacity.row(&capacity, 0)),
            json!(["c", "fast", "1Gi"])
        );
    }
}
