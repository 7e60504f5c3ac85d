//! StorageObjectInUseProtection: volumes, claims and classes of attributes begin with a finalizer,
//! by which they stay while they are used. Controllers take it off.
//!
//! Source: `plugin/pkg/admission/storage/storageobjectinuseprotection/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::{
    status::Status,
    volume::{CLAIM_PROTECTION, VOLUME_PROTECTION},
};
use coracle_registry::{api_resource::ApiResource, fill, value::items};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
    pod::push,
};

const ATTRIBUTES_PROTECTION: &str = "kubernetes.io/vac-protection";

pub(crate) struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && finalizer_of(resource).is_some()
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let finalizer = finalizer_of(attributes.resource);
        if let Some(finalizer) = finalizer.filter(|_| attributes.subresource.is_empty())
            && !items(&attributes.object()["metadata"]["finalizers"])
                .iter()
                .any(|one| one == finalizer)
        {
            protect(attributes.object_mut(), finalizer);
        }
        Ok(())
    }
}

fn finalizer_of(resource: &ApiResource) -> Option<&'static str> {
    if resource.is_core("persistentvolumeclaims") {
        Some(CLAIM_PROTECTION)
    } else if resource.is_core("persistentvolumes") {
        Some(VOLUME_PROTECTION)
    } else if resource.is("storage.k8s.io", "volumeattributesclasses") {
        Some(ATTRIBUTES_PROTECTION)
    } else {
        None
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    fill::object(object, "metadata");
    push(&mut object["metadata"], "finalizers", finalizer.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finalizer_comes_after_those_that_are_there() {
        let mut object = json!({"metadata": {"finalizers": ["example.com/own"]}});
        protect(&mut object, CLAIM_PROTECTION);
        let all = json!(["example.com/own", "kubernetes.io/pvc-protection"]);
        assert_eq!(object["metadata"]["finalizers"], all);
        let mut bare = json!({});
        protect(&mut bare, VOLUME_PROTECTION);
        assert_eq!(bare["metadata"]["finalizers"], json!([VOLUME_PROTECTION]));
    }
}
