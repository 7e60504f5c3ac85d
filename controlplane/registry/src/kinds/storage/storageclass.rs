//! StorageClass: how volumes of a sort are made.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value,
};

/// The strategy of StorageClasses.
pub struct StorageClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Provisioner",
        "provisioner indicates the type of the provisioner.",
    ),
    text(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class.",
    ),
    text(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.",
    ),
    text(
        "AllowVolumeExpansion",
        "allowVolumeExpansion shows whether the storage class allow volume expand.",
    ),
    AGE,
];

impl BuiltIn for StorageClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        fill::text(object, "reclaimPolicy", "Delete");
        fill::text(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if check::required(&mut errors, "provisioner", &object["provisioner"]) {
            check::qualified_name(&mut errors, "provisioner", &object["provisioner"]);
        }
        let modes = ["Immediate", "WaitForFirstConsumer"];
        check::one_of(
            &mut errors,
            "volumeBindingMode",
            &object["volumeBindingMode"],
            &modes,
        );
        check::optional_one_of(
            &mut errors,
            "reclaimPolicy",
            &object["reclaimPolicy"],
            &["Delete", "Retain"],
        );
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        if new["parameters"] != old["parameters"] {
            errors.forbidden("parameters", "updates to parameters are forbidden.");
        }
        if new["provisioner"] != old["provisioner"] {
            errors.forbidden("provisioner", "updates to provisioner are forbidden.");
        }
        if new["reclaimPolicy"] != old["reclaimPolicy"] {
            errors.forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.");
        }
        check::immutable_field(&mut errors, "volumeBindingMode", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let annotations = &object["metadata"]["annotations"];
        let is_default = annotations["storageclass.kubernetes.io/is-default-class"] == "true"
            || annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true";
        let name = value::string(&object["metadata"]["name"]);
        vec![
            if is_default {
                format!("{name} (default)").into()
            } else {
                name.into()
            },
            value::string(&object["provisioner"]).into(),
            value::string_or(&object["reclaimPolicy"], "Delete").into(),
            value::string_or(&object["volumeBindingMode"], "Immediate").into(),
            (object["allowVolumeExpansion"] == true).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn classes_are_checked_and_keep_their_provisioner() {
        assert_eq!(
            create_errors(&StorageClass, json!({})),
            "provisioner: Required value"
        );
        let old = created(&StorageClass, json!({"provisioner": "example.com/disk"}));
        assert_eq!(
            update_errors(&StorageClass, with(&old, "/provisioner", json!("x")), &old),
            "provisioner: Forbidden: updates to provisioner are forbidden."
        );
        let mut default = old.clone();
        default["metadata"] = json!({"name": "a", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
        assert_eq!(
            json!(StorageClass.row(&default, 0)),
            json!([
                "a (default)",
                "example.com/disk",
                "Delete",
                "Immediate",
                false,
                "<unknown>"
            ])
        );
    }
}
