//! What an autoscaler scales: an object of any kind with a scale subresource.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (scaleForResourceMappings and
//! reconcileAutoscaler) and `k8s.io/apimachinery/pkg/api/meta/errors.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_client::errors::{is_conflict, message_of};
use k8s_openapi::api::autoscaling::{v1::Scale, v2::CrossVersionObjectReference};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::served_kinds::{ServedKind, ServedKinds};

/// How often a kind that is not served is looked for: upstream's mapper asks as seldom.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// How often a write is tried against others, and the pause between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Finds targets.
pub(super) struct Targets {
    client: Client,
    kinds: Arc<ServedKinds>,
    asked: Mutex<Option<Instant>>,
}

/// One target, as it was read.
pub(super) struct Target {
    api: Api<DynamicObject>,
    name: String,
    scale: Scale,
}

impl Targets {
    pub(super) fn new(client: Client, kinds: Arc<ServedKinds>) -> Self {
        Self {
            client,
            kinds,
            asked: Mutex::default(),
        }
    }

    /// Reads the scale of what `reference` names.
    ///
    /// # Errors
    /// The text for the user, as upstream says it.
    pub(super) async fn find(
        &self,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<Target, String> {
        let group = group_of(reference.api_version.as_deref().unwrap_or_default())?;
        let kind = self.kind(group, &reference.kind).await?;
        let api = Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
        let scale = api.get_scale(&reference.name).await;
        Ok(Target {
            scale: scale.map_err(|error| message_of(&error))?,
            api,
            name: reference.name.clone(),
        })
    }

    async fn kind(&self, group: &str, kind: &str) -> Result<Arc<ServedKind>, String> {
        if let Some(known) = self.kinds.get(group, kind) {
            return Ok(known);
        }
        if self.may_ask() {
            let asked = self.kinds.refresh().await;
            asked.map_err(|error| message_of(&error))?;
        }
        let known = self.kinds.get(group, kind);
        known.ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))
    }

    fn may_ask(&self) -> bool {
        let mut asked = self.asked.lock();
        let may = asked.is_none_or(|at| at.elapsed() >= DISCOVERY_PERIOD);
        if may {
            *asked = Some(Instant::now());
        }
        may
    }
}

impl Target {
    /// How many there should be.
    pub(super) fn replicas(&self) -> i32 {
        let spec = self.scale.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Which pods are its own, or empty.
    pub(super) fn selector(&self) -> &str {
        let status = self.scale.status.as_ref();
        status
            .and_then(|status| status.selector.as_deref())
            .unwrap_or_default()
    }

    /// Has it have so many. Somebody who writes the object at the same time is no failure.
    ///
    /// # Errors
    /// The text for the user, as upstream says it.
    pub(super) async fn scale(&mut self, replicas: i32) -> Result<(), String> {
        for tries in 1..=TRIES {
            self.scale.spec.get_or_insert_default().replicas = Some(replicas);
            let written = self
                .api
                .replace_scale(&self.name, &PostParams::default(), &self.scale)
                .await;
            match written {
                Ok(_) => return Ok(()),
                Err(error) if tries < TRIES && is_conflict(&error) => {
                    tokio::time::sleep(PAUSE * tries).await;
                    if let Ok(latest) = self.api.get_scale(&self.name).await {
                        self.scale = latest;
                    }
                }
                Err(error) => return Err(message_of(&error)),
            }
        }
        Ok(())
    }
}

/// Source: `k8s.io/apimachinery/pkg/runtime/schema/group_version.go` (ParseGroupVersion) at v1.37.
fn group_of(api_version: &str) -> Result<&str, String> {
    match api_version.split_once('/') {
        None => Ok(""),
        Some((_, version)) if version.contains('/') => {
            Err(format!("unexpected GroupVersion string: {api_version}"))
        }
        Some((group, _)) => Ok(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_what_is_before_the_version() {
        assert_eq!(group_of("apps/v1").as_deref(), Ok("apps"));
        assert_eq!((group_of("v1"), group_of("")), (Ok(""), Ok("")));
        let wrong = group_of("a/b/c").unwrap_err();
        assert_eq!(wrong, "unexpected GroupVersion string: a/b/c");
    }
}
