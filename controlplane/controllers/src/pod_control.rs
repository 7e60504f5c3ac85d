//! Creates and deletes the pods of an owner, and tells of it: in events, and to what the owner has
//! yet to see.
//!
//! How many and which ones is decided by the owner's plan. No retry here: the work queue retries.
//!
//! Source: `pkg/controller/controller_utils.go` (RealPodControl), `slowStartBatch` in
//! `pkg/controller/replicaset/replica_set.go` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use futures::future::join_all;
use k8s_openapi::api::core::v1;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    builder::Builder,
    cache::Key,
    context::Context,
    errors::{is_namespace_terminating, is_not_found, message_of},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
};

/// The hand of one controller.
pub(crate) struct PodControl {
    client: Client,
    recorder: ComponentRecorder,
    /// What was written and does not show yet: asked before the controller looks at the pods.
    pub(crate) writes: OwnWrites<Pod>,
}

/// How many of several calls went well, and the first failure.
pub(crate) struct Tally {
    pub(crate) done: usize,
    pub(crate) failed: Option<kube::Error>,
}

impl Tally {
    fn of(results: Vec<Result<(), kube::Error>>) -> Self {
        let done = results.iter().filter(|result| result.is_ok()).count();
        Self {
            done,
            failed: results.into_iter().find_map(Result::err),
        }
    }
}

impl PodControl {
    /// `component` is the source of the events of `controller`.
    pub(crate) fn new(
        context: &Context,
        component: &'static str,
        controller: &mut Builder<'_>,
    ) -> Self {
        Self {
            client: context.client.clone(),
            recorder: context.recorder.of(component),
            writes: controller.own_writes(),
        }
    }

    /// Creates `total` pods for the owner with `key` in batches that grow for as long as all goes
    /// well. `pod` makes the one with that number.
    pub(crate) async fn create_all<'a, K: Resource<DynamicType = ()>>(
        &self,
        key: &Key,
        owner: &K,
        total: usize,
        pod: impl Fn(usize) -> Cow<'a, v1::Pod>,
    ) -> Tally {
        let mut tally = Tally {
            done: 0,
            failed: None,
        };
        let mut sent = 0;
        for batch in slow_start_batches(total) {
            let pods: Vec<_> = (sent..sent + batch).map(&pod).collect();
            let round =
                Tally::of(join_all(pods.iter().map(|pod| self.create(key, owner, pod))).await);
            sent += batch;
            tally.done += round.done;
            tally.failed = round.failed;
            if tally.failed.is_some() {
                break;
            }
        }
        tally
    }

    async fn create<K: Resource<DynamicType = ()>>(
        &self,
        key: &Key,
        owner: &K,
        pod: &v1::Pod,
    ) -> Result<(), kube::Error> {
        match self
            .writes
            .write(key, self.pods(key).create(&PostParams::default(), pod))
            .await
        {
            Ok(created) => {
                let message = format!("Created pod: {}", name_of(&created));
                self.recorder.normal(owner, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", message_of(&error));
                    self.recorder.warning(owner, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    /// Deletes all of `pods`. One that is gone already is as good as deleted.
    pub(crate) async fn delete_all<K: Resource<DynamicType = ()>>(
        &self,
        key: &Key,
        owner: &K,
        pods: &[Arc<Pod>],
    ) -> Tally {
        Tally::of(join_all(pods.iter().map(|pod| self.delete(key, owner, pod))).await)
    }

    async fn delete<K: Resource<DynamicType = ()>>(
        &self,
        key: &Key,
        owner: &K,
        pod: &Pod,
    ) -> Result<(), kube::Error> {
        let same = Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        };
        let (api, params) = (
            self.pods(key),
            DeleteParams::background().preconditions(same),
        );
        match self
            .writes
            .delete(key, pod, api.delete(name_of(pod), &params))
            .await
        {
            Ok(_) => {
                let message = format!("Deleted pod: {}", name_of(pod));
                self.recorder.normal(owner, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) => {
                if is_not_found(&error) {
                    return Ok(());
                }
                let message = format!("Error deleting: {}", message_of(&error));
                self.recorder.warning(owner, "FailedDelete", message);
                Err(error)
            }
        }
    }

    fn pods(&self, key: &Key) -> Api<v1::Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn name_of<K: Resource>(pod: &K) -> &str {
    pod.meta().name.as_deref().unwrap_or_default()
}

/// Sizes of the batches in which `total` creates are sent: 1, 2, 4... so that a create which always
/// fails fails once.
pub(crate) fn slow_start_batches(total: usize) -> impl Iterator<Item = usize> {
    let mut left = total;
    let mut size = 1;
    std::iter::from_fn(move || {
        let batch = size.min(left);
        left -= batch;
        size *= 2;
        (batch > 0).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_start_slowly() {
        assert_eq!(slow_start_batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(slow_start_batches(0).count(), 0);
    }
}
