//! Volumes from ConfigMaps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Volume};

use super::{
    error::VolumePluginError,
    files::FileSource,
    payload::{Payload, Selection, Words},
};
use crate::{objects::Objects, pod::PodExt};

const WORDS: Words = Words {
    object: "configmap",
    key: "config",
};

/// Files of ConfigMaps.
pub(super) struct ConfigMaps {
    pub(super) objects: Arc<Objects>,
}

impl ConfigMaps {
    pub(super) async fn project(
        &self,
        pod: &Pod,
        selection: Selection<'_>,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let map = self
            .objects
            .config_map(pod.namespace(), selection.name, max_age)
            .await?;
        selection.project(WORDS, map.map(|map| data(&map)))
    }
}

#[async_trait]
impl FileSource for ConfigMaps {
    fn name(&self) -> &'static str {
        "configmap"
    }

    fn in_memory(&self) -> bool {
        false
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.config_map.is_some()
    }

    async fn collect(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let source = volume
            .config_map
            .as_ref()
            .ok_or(VolumePluginError::Unsupported)?;
        let selection = Selection {
            name: &source.name,
            items: source.items.as_deref(),
            default_mode: source.default_mode,
            optional: source.optional == Some(true),
        };
        self.project(pod, selection, max_age).await
    }
}

fn data(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}
