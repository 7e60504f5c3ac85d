//! Volumes from ConfigMaps.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Pod};

use super::{KindError, Payload, VolumeManager, select_items};
use crate::pod::PodExt;

pub(super) async fn collect(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &ConfigMapVolumeSource,
    max_age: Duration,
) -> Result<Payload, KindError> {
    let optional = source.optional == Some(true);
    project(volumes, pod, &source.name, source.items.as_deref(), source.default_mode, optional, max_age).await
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
    match volumes.objects.config_map(pod.namespace(), name, max_age).await? {
        Some(map) => select_items("config", &data(&map), items, default_mode, optional),
        None if optional => Ok(Payload::new()),
        None => Err(KindError::NotFound { kind: "configmap", name: name.to_owned() }),
    }
}

fn data(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}
