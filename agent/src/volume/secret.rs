//! Volumes from Secrets; always in memory.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{KeyToPath, Pod, SecretVolumeSource};

use super::{KindError, Payload, VolumeManager, select_items};
use crate::pod::PodExt;

pub(super) async fn collect(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &SecretVolumeSource,
    max_age: Duration,
) -> Result<Payload, KindError> {
    let name = source.secret_name.as_deref().unwrap_or_default();
    let optional = source.optional == Some(true);
    project(volumes, pod, name, source.items.as_deref(), source.default_mode, optional, max_age).await
}

pub(super) async fn project(
    volumes: &VolumeManager,
    pod: &Pod,
    name: &str,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
    max_age: Duration,
) -> Result<Payload, KindError> {
    match volumes.objects.secret(pod.namespace(), name, max_age).await? {
        Some(secret) => {
            let data: BTreeMap<String, Vec<u8>> =
                secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
            select_items("secret", &data, items, default_mode, optional)
        }
        None if optional => Ok(Payload::new()),
        None => Err(KindError::NotFound { kind: "secret", name: name.to_owned() }),
    }
}
