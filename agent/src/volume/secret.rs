//! Volumes from Secrets; always in memory.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{
    error::VolumePluginError,
    files::FileSource,
    payload::{Payload, Selection, Words},
};
use crate::{objects::Objects, pod::PodExt};

const WORDS: Words = Words {
    object: "secret",
    key: "secret",
};

/// Files of Secrets.
pub(super) struct Secrets {
    pub(super) objects: Arc<Objects>,
}

impl Secrets {
    pub(super) async fn project(
        &self,
        pod: &Pod,
        selection: Selection<'_>,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let secret = self
            .objects
            .secret(pod.namespace(), selection.name, max_age)
            .await?;
        let data = secret.map(|secret| {
            let data = secret.data.iter().flatten();
            data.map(|(key, value)| (key.clone(), value.0.clone()))
                .collect()
        });
        selection.project(WORDS, data)
    }
}

#[async_trait]
impl FileSource for Secrets {
    fn name(&self) -> &'static str {
        "secret"
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.secret.is_some()
    }

    async fn collect(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let source = volume
            .secret
            .as_ref()
            .ok_or(VolumePluginError::Unsupported)?;
        let selection = Selection {
            name: source.secret_name.as_deref().unwrap_or_default(),
            items: source.items.as_deref(),
            default_mode: source.default_mode,
            optional: source.optional == Some(true),
        };
        self.project(pod, selection, max_age).await
    }
}
