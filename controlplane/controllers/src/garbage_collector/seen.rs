//! An object of any kind as a monitor reads it: of its metadata what the collector asks about, and
//! nothing else.
//!
//! The whole object comes, because its text is the one that all watchers share; metadata alone
//! would be rendered for this watch. What managers own is a good part of it and would become a tree
//! of values: it is skipped.

use coracle_client::part::{Part, ReadPart};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{DynamicObject, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// An object, as far as the collector asks about it.
pub(super) type Seen = Part<DynamicObject, Metadata>;

/// Nothing beside the metadata.
#[derive(Debug, Clone)]
pub(super) struct Metadata;

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Known,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl ReadPart<DynamicObject> for Metadata {
    fn read<'de, D: Deserializer<'de>>(object: D) -> Result<(ObjectMeta, Self), D::Error> {
        let Known {
            name,
            namespace,
            uid,
            resource_version,
            deletion_timestamp,
            finalizers,
            owner_references,
        } = Object::deserialize(object)?.metadata;
        let metadata = ObjectMeta {
            name,
            namespace,
            uid,
            resource_version,
            deletion_timestamp,
            finalizers,
            owner_references,
            ..ObjectMeta::default()
        };
        Ok((metadata, Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_collector_asks_about_is_read_and_the_rest_skipped() {
        let owner = serde_json::json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u-1"});
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "data": {"key": "c2VjcmV0"}, "metadata": {
            "name": "n", "namespace": "ns", "uid": "u-2", "resourceVersion": "7", "labels": {"a": "b"},
            "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["foregroundDeletion"], "ownerReferences": [owner],
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {}}}],
        }});
        let Seen { metadata, .. } = serde_json::from_value(object).unwrap();
        let texts = [
            metadata.name,
            metadata.namespace,
            metadata.uid,
            metadata.resource_version,
        ];
        assert_eq!(
            texts.map(Option::unwrap_or_default),
            ["n", "ns", "u-2", "7"]
        );
        assert!(metadata.deletion_timestamp.is_some());
        assert_eq!(metadata.finalizers.unwrap(), ["foregroundDeletion"]);
        assert_eq!(metadata.owner_references.unwrap()[0].uid, "u-1");
        assert_eq!((metadata.labels, metadata.managed_fields), (None, None));
    }
}
