//! Volumes from the pod's own fields and resources.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, DownwardAPIVolumeSource, Pod};

use super::{FileProjection, KindError, Payload, VolumeManager, checked, mode};
use crate::container_config::fields::{FieldInput, pod_field, resource_field};

pub(super) fn collect(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &DownwardAPIVolumeSource,
) -> Result<Payload, KindError> {
    project(volumes, pod, source.items.as_deref().unwrap_or_default(), source.default_mode)
}

pub(super) fn project(
    volumes: &VolumeManager,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, KindError> {
    let input = FieldInput { pod, node_ip: volumes.node_ip, pod_ips: &[], allocatable: volumes.machine.allocatable() };
    let default_mode = mode(default_mode, 0o644);
    let mut payload = Payload::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            pod_field(&field.field_path, &input)?
        } else if let Some(resource) = &item.resource_field_ref {
            let container = resource.container_name.as_deref().unwrap_or_default();
            resource_field(container, &resource.resource, resource.divisor.as_ref(), &input)?
        } else {
            continue;
        };
        let mode = item.mode.map_or(default_mode, |own| mode(Some(own), default_mode));
        payload.insert(checked(&item.path)?, FileProjection::new(text.into_bytes(), mode));
    }
    Ok(payload)
}
