//! DefaultStorageClass: a new claim that does not say of which class it is is of the default one.
//! Without a default it stays as it is; the binder gives it one once there is.
//!
//! PersistentVolumeClaimResize: a claim grows only if it is bound, and if its class allows it.
//!
//! Source: `plugin/pkg/admission/storage/storageclass/setdefault/admission.go` and
//! `plugin/pkg/admission/storage/persistentvolume/resize/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    quantity::Quantity,
    status::Status,
    volume::{self, BETA_STORAGE_CLASS},
};
use coracle_registry::{
    api_resource::ApiResource, resource::Registry, store::Store, value::string,
};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    classes::Classes,
    parts::Parts,
    plugin::Plugin,
};

const GROUP: &str = "storage.k8s.io";
const PLURAL: &str = "storageclasses";
const CLAIMS: &str = "persistentvolumeclaims";

pub(crate) struct DefaultStorageClass {
    classes: Classes,
}

impl DefaultStorageClass {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            classes: Classes::new(parts, GROUP, PLURAL),
        }
    }
}

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_core(CLAIMS)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core(CLAIMS) || says_class(attributes.object()) {
            return Ok(());
        }
        if let Some(name) = default_of(self.classes.all().await?)
            && attributes.object()["spec"].is_object()
        {
            attributes.object_mut()["spec"]["storageClassName"] = name.into();
        }
        Ok(())
    }
}

fn default_of(classes: Vec<Value>) -> Option<String> {
    let classes = classes.into_iter().map(serde_json::from_value);
    let classes: Vec<StorageClass> = classes.filter_map(Result::ok).collect();
    volume::default_class(&classes)?.metadata.name.clone()
}

/// An empty name is one: of no class.
fn says_class(claim: &Value) -> bool {
    claim["metadata"]["annotations"][BETA_STORAGE_CLASS].is_string()
        || claim["spec"]["storageClassName"].is_string()
}

fn class_of(claim: &Value) -> &str {
    let annotation = claim["metadata"]["annotations"][BETA_STORAGE_CLASS].as_str();
    annotation.unwrap_or_else(|| string(&claim["spec"]["storageClassName"]))
}

pub(crate) struct PersistentVolumeClaimResize {
    store: Store,
    registry: Arc<Registry>,
}

impl PersistentVolumeClaimResize {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// Whether volumes of the class may grow. Of none they may not.
    async fn allows(&self, class: &str) -> Result<bool, Status> {
        let classes = self.registry.get(GROUP, "v1", PLURAL);
        let Some(classes) = classes.filter(|_| !class.is_empty()) else {
            return Ok(false);
        };
        let found = self.store.current(classes, &classes.key("", class)).await?;
        Ok(found.is_some_and(|class| class.object["allowVolumeExpansion"] == true))
    }
}

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Update && resource.is_core(CLAIMS)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some(old) = attributes.old().filter(|_| attributes.is_core(CLAIMS)) else {
            return Ok(());
        };
        let new = attributes.object();
        if requested(new) <= requested(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = class_of(new);
        if class != class_of(old) || !self.allows(class).await? {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                       support resize";
            return Err(attributes.forbidden(why));
        }
        Ok(())
    }
}

fn requested(claim: &Value) -> Quantity {
    let amount = string(&claim["spec"]["resources"]["requests"][volume::STORAGE]);
    Quantity::parse(amount).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_says_its_class_also_by_the_old_annotation_and_by_an_empty_name() {
        for (claim, says, class) in [
            (json!({}), false, ""),
            (json!({"spec": {"storageClassName": null}}), false, ""),
            (json!({"spec": {"storageClassName": ""}}), true, ""),
            (json!({"spec": {"storageClassName": "a"}}), true, "a"),
            (
                json!({"metadata": {"annotations": {BETA_STORAGE_CLASS: "b"}}, "spec": {"storageClassName": "a"}}),
                true,
                "b",
            ),
        ] {
            assert_eq!(
                (says_class(&claim), class_of(&claim)),
                (says, class),
                "{claim}"
            );
        }
    }

    #[test]
    fn a_class_that_cannot_be_read_is_no_default() {
        let default = |name: &str, provisioner: Value| {
            json!({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {volume::IS_DEFAULT_CLASS: "true"}}, "provisioner": provisioner})
        };
        let classes = vec![default("a", json!(7)), default("b", json!("p"))];
        assert_eq!(default_of(classes).as_deref(), Some("b"));
        assert_eq!(default_of(Vec::new()), None);
    }
}
