//! Volumes from the pod's own fields and resources.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod, Volume};

use super::{
    error::VolumePluginError,
    files::FileSource,
    payload::{FileProjection, Payload, checked, mode},
};
use crate::{
    container_config::fields::{FieldInput, pod_field, resource_field},
    node::facts::Machine,
};

/// Files of Pods' own fields.
pub(super) struct DownwardApi {
    pub(super) machine: Arc<Machine>,
    pub(super) node_ip: IpAddr,
}

impl DownwardApi {
    pub(super) fn project(
        &self,
        pod: &Pod,
        items: &[DownwardAPIVolumeFile],
        default_mode: Option<i32>,
    ) -> Result<Payload, VolumePluginError> {
        let input = FieldInput {
            pod,
            node_ip: self.node_ip,
            pod_ips: &[],
            allocatable: self.machine.allocatable(),
        };
        let default_mode = mode(default_mode, 0o644);
        let mut payload = Payload::new();
        for item in items {
            let text = if let Some(field) = &item.field_ref {
                pod_field(&field.field_path, &input)?
            } else if let Some(resource) = &item.resource_field_ref {
                let container = resource.container_name.as_deref().unwrap_or_default();
                resource_field(
                    container,
                    &resource.resource,
                    resource.divisor.as_ref(),
                    &input,
                )?
            } else {
                continue;
            };
            let mode = item
                .mode
                .map_or(default_mode, |own| mode(Some(own), default_mode));
            payload.insert(
                checked(&item.path)?,
                FileProjection::new(text.into_bytes(), mode),
            );
        }
        Ok(payload)
    }
}

#[async_trait]
impl FileSource for DownwardApi {
    fn name(&self) -> &'static str {
        "downward-api"
    }

    fn in_memory(&self) -> bool {
        false
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.downward_api.is_some()
    }

    async fn collect(
        &self,
        pod: &Pod,
        volume: &Volume,
        _: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let source = volume
            .downward_api
            .as_ref()
            .ok_or(VolumePluginError::Unsupported)?;
        self.project(
            pod,
            source.items.as_deref().unwrap_or_default(),
            source.default_mode,
        )
    }
}
