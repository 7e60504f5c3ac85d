//! Volumes from several sources at once; always in memory, because tokens are among them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, VolumeProjection};

use super::{
    FileProjection, KindError, Payload, VolumeManager, checked, config_map, downward_api, mode, secret,
    service_account_token,
};

pub(super) async fn collect(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &ProjectedVolumeSource,
    max_age: Duration,
) -> Result<Payload, KindError> {
    let sources = source.sources.as_deref().unwrap_or_default();
    let parts =
        futures::future::join_all(sources.iter().map(|part| project(volumes, pod, part, source.default_mode, max_age)))
            .await;
    let mut payload = Payload::new();
    for part in parts {
        payload.extend(part?);
    }
    Ok(payload)
}

async fn project(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &VolumeProjection,
    default_mode: Option<i32>,
    max_age: Duration,
) -> Result<Payload, KindError> {
    if let Some(part) = &source.config_map {
        return config_map::project(
            volumes,
            pod,
            &part.name,
            part.items.as_deref(),
            default_mode,
            part.optional == Some(true),
            max_age,
        )
        .await;
    }
    if let Some(part) = &source.secret {
        return secret::project(
            volumes,
            pod,
            &part.name,
            part.items.as_deref(),
            default_mode,
            part.optional == Some(true),
            max_age,
        )
        .await;
    }
    if let Some(part) = &source.downward_api {
        return downward_api::project(volumes, pod, part.items.as_deref().unwrap_or_default(), default_mode);
    }
    if let Some(part) = &source.service_account_token {
        let token = service_account_token::get(volumes, pod, part).await?;
        // A token is its pod's alone, unless a group is to read it (see the volume's ownership).
        let fs_group =
            pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).and_then(|context| context.fs_group);
        let mode = if fs_group.is_some() { 0o600 } else { mode(default_mode, 0o644) };
        return Ok(Payload::from([(checked(&part.path)?, FileProjection { data: token.into_bytes(), mode })]));
    }
    Err(KindError::Unsupported)
}
