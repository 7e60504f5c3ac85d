//! Letting pods go: takes the tracking finalizer from those that are counted, or that no Job counts
//! any more.
//!
//! Source: `pkg/controller/job/job_controller.go` (deleteJobPods, syncOrphanPod,
//! removeTrackingFinalizerPatch) at v1.37.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;

use super::{
    JobController,
    conditions::finished,
    is_managed_elsewhere, name_of,
    observed::{FINALIZER, has_finalizer},
};
use crate::{
    builder::{Builder, Queue},
    cache::{Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing, or_event},
    owner::{controller_of, owner_key},
    pod::Pod,
};

/// Uids of pods by the key of their Job.
#[derive(Debug, Default)]
pub(super) struct Uids(Mutex<HashMap<Key, HashSet<String>>>);

impl Uids {
    pub(super) fn of(&self, key: &Key) -> HashSet<String> {
        self.0.lock().get(key).cloned().unwrap_or_default()
    }

    fn insert(&self, key: &Key, uid: &str) {
        self.0
            .lock()
            .entry(key.clone())
            .or_default()
            .insert(uid.to_owned());
    }

    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    pub(super) fn remove(&self, key: &Key, uid: &str) {
        let mut all = self.0.lock();
        if let Some(uids) = all.get_mut(key) {
            uids.remove(uid);
            if uids.is_empty() {
                all.remove(key);
            }
        }
    }
}

/// The queue of pods with the finalizer that no Job controls.
struct Orphans(Arc<JobController>);

impl Reconciler for Orphans {
    async fn reconcile(&self, key: Key) -> Outcome {
        self.0.free_orphan(key).await
    }
}

/// Says what wakes that queue, and works it off beside the Jobs'.
pub(super) fn let_orphans_go(
    controller: &mut Builder<'_>,
    context: &Context,
    jobs: &Arc<JobController>,
) {
    let orphans: Arc<Queue> = context.queue("job_orphan_pod");
    controller.on_change(&orphans, |orphans, change: &Change<'_, Pod>, _| {
        let pod = change.latest();
        if has_finalizer(pod) && owner_key::<Job>(pod.as_ref()).is_none() {
            orphans.add(Key::of(pod.as_ref()));
        }
    });
    controller.also("job-orphan-pod", orphans, Arc::new(Orphans(jobs.clone())));
}

impl JobController {
    /// Takes the finalizer from pods that are counted.
    pub(super) async fn release(&self, key: &Key, pods: &[Arc<Pod>]) -> Result<(), ReconcileError> {
        for taken in join_all(pods.iter().map(|pod| self.release_pod(key, pod))).await {
            taken?;
        }
        Ok(())
    }

    /// Takes the finalizer from pods that are to be deleted uncounted: those from which it is gone,
    /// and the first failure.
    ///
    /// A pod that would be deleted with the finalizer on it would count as failed. If the
    /// controller ends between the two calls, the pod is active and unwanted still, and the next
    /// round deletes it.
    pub(super) async fn release_first(
        &self,
        key: &Key,
        pods: &[Arc<Pod>],
    ) -> (Vec<Arc<Pod>>, Option<String>) {
        let taken = join_all(pods.iter().map(|pod| async {
            if !has_finalizer(pod) {
                return Ok(());
            }
            self.release_pod(key, pod).await
        }))
        .await;
        let mut free = Vec::with_capacity(pods.len());
        let mut failed = None;
        for (pod, taken) in pods.iter().zip(taken) {
            match taken {
                Ok(()) => {
                    self.dismissed
                        .insert(key, pod.metadata.uid.as_deref().unwrap_or_default());
                    free.push(pod.clone());
                }
                Err(error) => failed = failed.or(Some(error.to_string())),
            }
        }
        (free, failed)
    }

    async fn release_pod(&self, key: &Key, pod: &Pod) -> Result<(), ReconcileError> {
        // Until it shows the Job is left alone: counting the pod again would be wrong.
        taken(
            self.control
                .writes
                .write(key, self.take_finalizer(&key.namespace, pod, None))
                .await,
        )
    }

    /// With a `version` only from that version of the pod.
    async fn take_finalizer(
        &self,
        namespace: &str,
        pod: &Pod,
        version: Option<&str>,
    ) -> kube::Result<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut metadata =
            json!({"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
        if let Some(version) = version {
            metadata["resourceVersion"] = version.into();
        }
        let patch = json!({"metadata": metadata});
        api.patch(
            name_of(pod),
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await
    }

    /// Pods that name a Job which is gone, or over, wait for nobody. Those of a Job that another
    /// controller runs wait for that one.
    pub(super) async fn release_forgotten(
        &self,
        key: &Key,
        job: Option<&Job>,
    ) -> Result<(), ReconcileError> {
        if job.is_some_and(is_managed_elsewhere) {
            return Ok(());
        }
        let uid = job
            .filter(|job| finished(job).is_none())
            .and_then(|job| job.metadata.uid.as_deref());
        let orphans = self.by_job.filter(&key.to_string(), |pod| {
            has_finalizer(pod)
                && controller_of(&pod.metadata).is_some_and(|owner| Some(owner.uid.as_str()) != uid)
        });
        self.release(key, &orphans).await
    }

    /// A pod that was released, or whose Job was deleted with `--cascade=orphan`, is counted by
    /// nobody: with the finalizer it could never be deleted. A Job that adopts it puts the
    /// finalizer on again.
    async fn free_orphan(&self, key: Key) -> Outcome {
        let Some(pod) = self.pods.get(&key) else {
            return Ok(None);
        };
        if controller_of(&pod.metadata).is_some() || !has_finalizer(&pod) {
            return Ok(None);
        }
        // A Job may be adopting it at this moment.
        let version = pod.metadata.resource_version.as_deref();
        or_event(taken(
            self.take_finalizer(&key.namespace, &pod, version).await,
        ))?;
        Ok(None)
    }
}

fn taken(answer: kube::Result<Pod>) -> Result<(), ReconcileError> {
    ignore_missing(answer)
        .during("remove the finalizer of a pod")
        .map(drop)
}
