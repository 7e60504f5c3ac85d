//! Writes which volume a claim gets, or for which node one is to be made, and waits until the
//! controller has bound them. Each pod has a task of its own for it.
//!
//! A claim is written only in the version that the decision was made from: who comes second fails,
//! and the pod is tried again.
//!
//! Source: `BindPodVolumes`, `bindAPIUpdate` in
//! `pkg/scheduler/framework/plugins/volumebinding/binder.go` at v1.37.

use std::{fmt::Debug, sync::Arc, time::Duration};

use coracle_api::volume::{BOUND_BY_CONTROLLER, SELECTED_NODE, annotation, claim_of};
use coracle_client::cache::Key;
use coracle_telemetry::ErrorChain;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    check::{CheckError, Written, is_complete},
    reserve::Reserved,
};
use crate::{
    framework::{CycleState, Plugin, PluginName, PreBind, Status},
    pod_info::PodInfo,
    storage::{SharedStorage, version},
};

/// For one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes on their way, of all pods together: bindings of pods want their share of the API server.
const WRITES_IN_FLIGHT: usize = 64;

/// The part of the plugin that writes and waits.
#[derive(Clone)]
pub(in super::super) struct VolumePreBind {
    storage: Arc<SharedStorage>,
    client: Client,
    writes: Arc<Semaphore>,
    /// For all volumes of one pod to be bound: `bindTimeoutSeconds`.
    timeout: Duration,
}

/// Why the volumes of a pod were not bound.
#[derive(Debug, thiserror::Error)]
enum BindVolumesError {
    /// The API server refused, or could not be asked.
    #[error("update {what}")]
    Write {
        what: String,
        #[source]
        source: kube::Error,
    },
    /// No answer.
    #[error("update {what}: no answer within {} s", WRITE_TIMEOUT.as_secs())]
    Unanswered { what: String },
    /// It has become pointless.
    #[error("binding volumes")]
    Check(#[source] CheckError),
    /// The controller, or whoever makes volumes, takes too long.
    #[error("binding volumes: context deadline exceeded")]
    Timeout,
}

impl VolumePreBind {
    pub(in super::super) fn new(
        storage: Arc<SharedStorage>,
        client: Client,
        timeout: Duration,
    ) -> Self {
        Self {
            storage,
            client,
            writes: Arc::new(Semaphore::new(WRITES_IN_FLIGHT)),
            timeout,
        }
    }

    async fn bind(&self, reserved: &Reserved, pod: &PodInfo) -> Result<(), BindVolumesError> {
        let written = self.write(reserved).await?;
        tokio::time::timeout(self.timeout, self.complete(pod, &written))
            .await
            .unwrap_or(Err(BindVolumesError::Timeout))
    }

    async fn write(&self, reserved: &Reserved) -> Result<Written, BindVolumesError> {
        let mut written = Written::default();
        for one in &reserved.matches {
            let key = Key::of(&*one.volume);
            let mut version = version(&*one.volume);
            if one.is_new {
                let api = Api::<PersistentVolume>::all(self.client.clone());
                version = self.patch(api, &key, &patch_of_volume(&one.volume)).await?;
            }
            written.matches.push((key, version, one.claim.clone()));
        }
        for claim in &reserved.provisions {
            let key = Key::of(&**claim);
            let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace);
            let version = self.patch(api, &key, &patch_of_claim(claim)).await?;
            written.provisions.push((key, version));
        }
        Ok(written)
    }

    /// The version that the object has now.
    async fn patch<K>(&self, api: Api<K>, key: &Key, patch: &Value) -> Result<u64, BindVolumesError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let what = || format!("{} {key}", K::kind(&()).to_lowercase());
        // Never closed.
        let _permit = self.writes.acquire().await;
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let request = api.patch(&key.name, &params, &patch);
        match tokio::time::timeout(WRITE_TIMEOUT, request).await {
            Ok(Ok(object)) => Ok(version(&object)),
            Ok(Err(source)) => Err(BindVolumesError::Write {
                what: what(),
                source,
            }),
            Err(_) => Err(BindVolumesError::Unanswered { what: what() }),
        }
    }

    async fn complete(&self, pod: &PodInfo, written: &Written) -> Result<(), BindVolumesError> {
        let mut changes = self.storage.changes();
        loop {
            // Before the look: what comes after it is another change.
            changes.borrow_and_update();
            let is_complete = is_complete(&self.storage.lock(), pod, written);
            if is_complete.map_err(BindVolumesError::Check)? {
                return Ok(());
            }
            // Never closed: the sender is ours as well.
            let _ = changes.changed().await;
        }
    }
}

impl Plugin for VolumePreBind {
    fn name(&self) -> PluginName {
        PluginName::VolumeBinding
    }
}

impl PreBind for VolumePreBind {
    fn has_work(&self, cycle: &CycleState) -> bool {
        cycle
            .read::<Reserved>()
            .is_some_and(|reserved| !reserved.is_empty())
    }

    fn pre_bind<'a>(
        &'a self,
        cycle: &'a CycleState,
        pod: &'a PodInfo,
        _: &'a str,
    ) -> BoxFuture<'a, Status> {
        async move {
            let Some(reserved) = cycle.read::<Reserved>().filter(|it| !it.is_empty()) else {
                return Status::SUCCESS;
            };
            let bound = self.bind(reserved, pod).await;
            self.storage.lock().bindings.end(&pod.uid);
            match bound {
                Ok(()) => Status::SUCCESS,
                Err(error) => Status::error(format!(
                    "running PreBind plugin \"{}\": {}",
                    self.name(),
                    ErrorChain(&error)
                )),
            }
        }
        .boxed()
    }
}

fn patch_of_volume(volume: &PersistentVolume) -> Value {
    let mut metadata = json!({"resourceVersion": volume.metadata.resource_version});
    if let Some(said) = annotation(&volume.metadata, BOUND_BY_CONTROLLER) {
        metadata["annotations"] = json!({BOUND_BY_CONTROLLER: said});
    }
    json!({"metadata": metadata, "spec": {"claimRef": claim_of(volume)}})
}

fn patch_of_claim(claim: &PersistentVolumeClaim) -> Value {
    let node = annotation(&claim.metadata, SELECTED_NODE);
    json!({"metadata": {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": {SELECTED_NODE: node},
    }})
}
