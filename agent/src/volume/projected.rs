//! Volumes from several sources at once; always in memory, because tokens are among them.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    Container, Pod, ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use super::{
    config_map::ConfigMaps,
    downward_api::DownwardApi,
    error::VolumePluginError,
    files::FileSource,
    payload::{FileProjection, Payload, Selection, checked, mode},
    secret::Secrets,
    service_account_token::Tokens,
};
use crate::{pod::PodExt, runtime::types::PodUid};

/// Files of all that can be projected.
pub(super) struct Projected {
    pub(super) config_maps: ConfigMaps,
    pub(super) secrets: Secrets,
    pub(super) downward_api: DownwardApi,
    pub(super) tokens: Tokens,
}

#[async_trait]
impl FileSource for Projected {
    fn name(&self) -> &'static str {
        "projected"
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.projected.is_some()
    }

    async fn collect(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        let source = volume
            .projected
            .as_ref()
            .ok_or(VolumePluginError::Unsupported)?;
        let sources = source.sources.as_deref().unwrap_or_default();
        let parts = sources
            .iter()
            .map(|part| self.project(pod, part, source.default_mode, max_age));
        let mut payload = Payload::new();
        for part in futures::future::join_all(parts).await {
            payload.extend(part?);
        }
        Ok(payload)
    }

    fn forget(&self, pod: &PodUid) {
        self.tokens.forget(pod);
    }
}

impl Projected {
    async fn project(
        &self,
        pod: &Pod,
        source: &VolumeProjection,
        default_mode: Option<i32>,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError> {
        if let Some(part) = &source.config_map {
            let (items, optional) = (part.items.as_deref(), part.optional == Some(true));
            let selection = Selection {
                name: &part.name,
                items,
                default_mode,
                optional,
            };
            return self.config_maps.project(pod, selection, max_age).await;
        }
        if let Some(part) = &source.secret {
            let (items, optional) = (part.items.as_deref(), part.optional == Some(true));
            let selection = Selection {
                name: &part.name,
                items,
                default_mode,
                optional,
            };
            return self.secrets.project(pod, selection, max_age).await;
        }
        if let Some(part) = &source.downward_api {
            return self.downward_api.project(
                pod,
                part.items.as_deref().unwrap_or_default(),
                default_mode,
            );
        }
        match &source.service_account_token {
            Some(part) => self.token(pod, part, default_mode).await,
            None => Err(VolumePluginError::Unsupported),
        }
    }

    async fn token(
        &self,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
        default_mode: Option<i32>,
    ) -> Result<Payload, VolumePluginError> {
        let token = self.tokens.get(pod, source).await?;
        // A token is its pod's alone: the user's that all its containers run as, or the group's
        // (see the volume's ownership); readable to all only where the node knows neither.
        let owner = sole_user(pod);
        let fs_group = pod
            .spec_or_default()
            .security_context
            .as_ref()
            .and_then(|context| context.fs_group);
        let mode = if owner.is_some() || fs_group.is_some() {
            0o600
        } else {
            mode(default_mode, 0o644)
        };
        Ok(Payload::from([(
            checked(&source.path)?,
            FileProjection {
                data: token.into_bytes(),
                mode,
                owner,
            },
        )]))
    }
}

/// The user that every container runs as, if the pod says so for all of them.
///
/// Source: `FsUserFrom` in `pkg/volume/util/util.go` at v1.37.
fn sole_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod
        .spec_or_default()
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let user = |container: &Container| {
        let own = container
            .security_context
            .as_ref()
            .and_then(|context| context.run_as_user);
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
            (
                json!({"containers": [user(Value::Null)], "securityContext": {"runAsUser": 7}}),
                Some(7),
            ),
            (
                json!({"containers": [user(json!(8))], "securityContext": {"runAsUser": 7}}),
                Some(8),
            ),
            (
                json!({"containers": [user(json!(8)), user(json!(9))]}),
                None,
            ),
            (
                json!({"containers": [user(json!(8)), user(Value::Null)]}),
                None,
            ),
            (
                json!({"initContainers": [user(json!(9))], "containers": [user(json!(8))]}),
                None,
            ),
            (json!({"containers": [user(Value::Null)]}), None),
        ];
        for (spec, expected) in cases {
            let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("pod");
            assert_eq!(sole_user(&pod), expected, "{spec}");
        }
    }
}
