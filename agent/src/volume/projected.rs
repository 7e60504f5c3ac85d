//! Volumes from several sources at once; always in memory, because tokens are among them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, ProjectedVolumeSource, VolumeProjection};

use super::{
    FileProjection, KindError, Payload, VolumeManager, checked, config_map, downward_api, mode, secret,
    service_account_token,
};
use crate::pod::PodExt;

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
        // A token is its pod's alone: the user's that all its containers run as, or the group's (see the volume's
        // ownership); readable to all only where the node knows neither.
        let owner = sole_user(pod);
        let fs_group =
            pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).and_then(|context| context.fs_group);
        let mode = if owner.is_some() || fs_group.is_some() { 0o600 } else { mode(default_mode, 0o644) };
        return Ok(Payload::from([(checked(&part.path)?, FileProjection { data: token.into_bytes(), mode, owner })]));
    }
    Err(KindError::Unsupported)
}

/// The user that every container runs as, if the pod says so for all of them.
///
/// Source: `FsUserFrom` in `pkg/volume/util/util.go` at v1.37.
fn sole_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec_or_default().security_context.as_ref().and_then(|context| context.run_as_user);
    let user = |container: &Container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod).and_then(|user| u32::try_from(user).ok())
    };
    let mut users = pod.all_containers().map(user);
    let first = users.next()??;
    users.all(|other| other == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_token_is_the_users_that_all_containers_share() {
        let user = |user: Value| json!({"name": "c", "securityContext": {"runAsUser": user}});
        let cases = [
            (json!({"containers": [user(json!(1000))]}), Some(1000)),
            (json!({"containers": [user(Value::Null)], "securityContext": {"runAsUser": 7}}), Some(7)),
            (json!({"containers": [user(json!(8))], "securityContext": {"runAsUser": 7}}), Some(8)),
            (json!({"containers": [user(json!(8)), user(json!(9))]}), None),
            (json!({"containers": [user(json!(8)), user(Value::Null)]}), None),
            (json!({"initContainers": [user(json!(9))], "containers": [user(json!(8))]}), None),
            (json!({"containers": [user(Value::Null)]}), None),
        ];
        for (spec, expected) in cases {
            let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("pod");
            assert_eq!(sole_user(&pod), expected, "{spec}");
        }
    }
}
