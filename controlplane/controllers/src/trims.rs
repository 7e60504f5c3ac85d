//! What is kept of each kind: parts that no controller reads are dropped as an object comes, before
//! it is held.
//!
//! Said here once a kind, for all controllers share its informer. Of a kind that is not here all is
//! kept, but for `managedFields`.

use coracle_client::informers::Informers;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim, ResourceQuota, Secret, Service, ServiceAccount},
    networking::v1::IPAddress,
};
use kube::Client;

use crate::{cluster_role_aggregation, endpointslice::hints, pod, token_cleaner};

/// The informers of the controllers; each comes into being when the first of them names its kind.
pub(crate) fn informers(client: Client) -> Informers {
    Informers::new(client)
        .trim(pod::trimmer())
        .trim(cluster_role_aggregation::trim)
        .trim(|service: &mut Service| {
            if let Some(annotations) = &mut service.metadata.annotations {
                annotations.retain(|name, _| hints::TOPOLOGY.contains(&name.as_str()));
            }
            if let Some(status) = &mut service.status {
                status.conditions = None;
            }
        })
        .trim(|node: &mut Node| {
            if let Some(status) = &mut node.status {
                status.images = None;
            }
        })
        .trim(|address: &mut IPAddress| {
            address.metadata.annotations = None;
            address.spec = Default::default();
        })
        .trim(|account: &mut ServiceAccount| {
            account.metadata.annotations = None;
            account.secrets = None;
        })
        .trim(|quota: &mut ResourceQuota| quota.status = None)
        .trim(trim_claim)
        .trim(trim_secret)
}

/// Binder, protection and StatefulSets read nearly all of it.
fn trim_claim(claim: &mut PersistentVolumeClaim) {
    if let Some(annotations) = &mut claim.metadata.annotations {
        annotations.remove(pod::LAST_APPLIED);
    }
    if let Some(status) = &mut claim.status {
        status.conditions = None;
    }
}

/// The secret itself is the first that goes.
fn trim_secret(secret: &mut Secret) {
    if let Some(data) = &mut secret.data {
        data.retain(|key, _| key == token_cleaner::EXPIRATION);
    }
    secret.string_data = None;
    if let Some(annotations) = &mut secret.metadata.annotations {
        annotations.remove(pod::LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_secret_is_held() {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "s", "annotations": {pod::LAST_APPLIED: "c2VjcmV0", "kubernetes.io/service-account.name": "a"}},
            "data": {"token": "c2VjcmV0", "expiration": "dG9tb3Jyb3c="}, "stringData": {"token": "secret"},
        }))
        .unwrap();
        trim_secret(&mut secret);
        let kept = serde_json::to_value(&secret).unwrap();
        assert_eq!(kept["data"], json!({"expiration": "dG9tb3Jyb3c="}));
        assert_eq!(
            kept["metadata"]["annotations"],
            json!({"kubernetes.io/service-account.name": "a"})
        );
        assert_eq!(kept["stringData"], json!(null));
    }
}
