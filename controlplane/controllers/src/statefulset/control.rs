//! Carries out what was planned for a StatefulSet's pods and their claims, and tells of it.
//!
//! No retry here: the work queue retries. Claims are made before the pod that has them, and get
//! their owners after it.
//!
//! Source: `pkg/controller/statefulset/stateful_pod_control.go` at v1.37.

use coracle_client::own_writes::OwnWrites;
use futures::future::join_all;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{self, PersistentVolumeClaim},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};

use super::{
    identity,
    plan::{Action, Claims, NewOwners, Plan},
};
use crate::{
    builder::Builder,
    cache::Key,
    context::Context,
    controller::{CallContext, ReconcileError, ignore_missing},
    errors::{is_already_exists, is_conflict, is_namespace_terminating, is_not_found, message_of},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    pod_control::slow_start_batches,
};

/// The hand of the controller.
pub(super) struct Control {
    client: Client,
    recorder: ComponentRecorder,
    pods: OwnWrites<Pod>,
    claims: OwnWrites<PersistentVolumeClaim>,
}

/// A set that is worked on.
#[derive(Clone, Copy)]
struct Work<'a> {
    control: &'a Control,
    key: &'a Key,
    set: &'a StatefulSet,
}

/// What went wrong, and how events say it.
struct Failure {
    error: ReconcileError,
    message: String,
}

impl Failure {
    fn new(error: kube::Error, call: &'static str, message: String) -> Self {
        let error = ReconcileError::Api {
            call,
            source: error,
        };
        Self { error, message }
    }

    /// Whether it passes, and is of no interest to people.
    fn is_silent(&self) -> bool {
        matches!(&self.error, ReconcileError::Api { source, .. }
            if is_conflict(source) || is_namespace_terminating(source))
    }
}

impl Control {
    pub(super) fn new(
        context: &Context,
        component: &'static str,
        controller: &mut Builder<'_>,
    ) -> Self {
        Self {
            client: context.client.clone(),
            recorder: context.recorder.of(component),
            pods: controller.own_writes(),
            claims: controller.own_writes(),
        }
    }

    /// Does all of `plan` up to the first step in which something fails; the failure.
    pub(super) async fn carry_out(
        &self,
        key: &Key,
        set: &StatefulSet,
        plan: &Plan,
    ) -> Result<(), ReconcileError> {
        let work = Work {
            control: self,
            key,
            set,
        };
        for step in &plan.steps {
            if plan.is_ordered {
                for action in step {
                    work.act(action).await?;
                }
                continue;
            }
            let mut rest = &step[..];
            for batch in slow_start_batches(step.len()) {
                let (now, later) = rest.split_at(batch);
                rest = later;
                let done = join_all(now.iter().map(|action| work.act(action))).await;
                done.into_iter().collect::<Result<Vec<()>, _>>()?;
            }
        }
        Ok(())
    }
}

impl Work<'_> {
    async fn act(&self, action: &Action) -> Result<(), ReconcileError> {
        match action {
            Action::Create { pod, claims } => self.create(pod, claims).await,
            Action::Delete(pod) => self.delete(pod).await,
            Action::Claims { pod, claims } => self.care_for_claims(name_of(&**pod), claims).await,
            Action::Update {
                pod,
                ordinal,
                is_changed,
                claims,
            } => {
                let name = name_of(&**pod);
                let updated = self.update(pod, *ordinal, *is_changed, claims).await;
                self.tell_of_pod("update", name, updated)
            }
        }
    }

    async fn create(&self, pod: &v1::Pod, claims: &Claims) -> Result<(), ReconcileError> {
        let name = name_of(pod);
        if let Err(failure) = self.create_claims(name, claims).await {
            return self.tell_of_pod("create", name, Err(failure));
        }
        let (api, params) = (self.api::<v1::Pod>(), PostParams::default());
        let writes = &self.control.pods;
        match writes.write(self.key, api.create(&params, pod)).await {
            // Another has its name, or the cache lags: nothing to tell.
            Err(error) if is_already_exists(&error) => {
                return Err(error).during("create Pod");
            }
            created => {
                let created = created.map(drop).map_err(|error| {
                    let message = message_of(&error);
                    Failure::new(error, "create Pod", message)
                });
                self.tell_of_pod("create", name, created)?;
            }
        }
        self.give_owners(claims)
            .await
            .or_else(|failure| self.tell_of_pod("update", name, Err(failure)))
    }

    async fn delete(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let name = name_of(pod);
        let same = Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        };
        let params = DeleteParams::background().preconditions(same);
        let (api, writes) = (self.api::<v1::Pod>(), &self.control.pods);
        let deleted = writes.delete(self.key, pod, api.delete(name, &params));
        match deleted.await {
            // It is gone, or another has its name.
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            deleted => {
                let deleted = deleted.map(drop).map_err(|error| {
                    let message = message_of(&error);
                    Failure::new(error, "delete Pod", message)
                });
                self.tell_of_pod("delete", name, deleted)
            }
        }
    }

    async fn care_for_claims(&self, pod: &str, claims: &Claims) -> Result<(), ReconcileError> {
        // As upstream: of a claim that cannot be made its own event tells.
        let created = self.create_claims(pod, claims).await;
        created.map_err(|failure| failure.error)?;
        self.give_owners(claims)
            .await
            .or_else(|failure| self.tell_of_pod("update", pod, Err(failure)))
    }

    async fn update(
        &self,
        pod: &Pod,
        ordinal: i32,
        is_changed: bool,
        claims: &Claims,
    ) -> Result<(), Failure> {
        let name = name_of(pod);
        self.create_claims(name, claims).await?;
        if is_changed {
            let conformed = self.conform(pod, ordinal).await;
            conformed.map_err(|error| {
                let message = message_of(&error);
                Failure::new(error, "update Pod", message)
            })?;
        }
        self.give_owners(claims).await
    }

    /// Writes the whole pod, for what is held of it is a part.
    async fn conform(&self, pod: &Pod, ordinal: i32) -> kube::Result<()> {
        let api = self.api::<v1::Pod>();
        let Some(mut live) = ignore_missing(api.get(name_of(pod)).await)? else {
            return Ok(());
        };
        if live.metadata.uid != pod.metadata.uid {
            return Ok(());
        }
        identity::conform(self.set, &mut live, ordinal);
        let params = PostParams::default();
        let written = api.replace(name_of(pod), &params, &live);
        self.control.pods.write(self.key, written).await.map(drop)
    }

    /// Makes the claims that are missing. As many as can be, and then the failure of the others.
    async fn create_claims(&self, pod: &str, claims: &Claims) -> Result<(), Failure> {
        let (api, params) = (self.api(), PostParams::default());
        let (mut first, mut messages) = (None, Vec::new());
        for claim in &claims.create {
            let (name, set) = (name_of(claim), name_of(self.set));
            let created = api.create(&params, claim);
            let Err(error) = self.control.claims.write(self.key, created).await else {
                let message = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.normal("SuccessfulCreate", message);
                continue;
            };
            let said = message_of(&error);
            messages.push(format!("failed to create PVC {name}: {said}"));
            if !is_already_exists(&error) && !is_namespace_terminating(&error) {
                let message = format!(
                    "create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {said}"
                );
                self.warn("FailedCreate", message);
            }
            let call = "create PersistentVolumeClaim";
            first.get_or_insert(ReconcileError::Api {
                call,
                source: error,
            });
        }
        for name in &claims.going {
            let message = format!("pvc {name} is being deleted");
            first.get_or_insert(ReconcileError::NotYet(message.clone()));
            messages.push(message);
        }
        let message = match &messages[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        first.map_or(Ok(()), |error| Err(Failure { error, message }))
    }

    async fn give_owners(&self, claims: &Claims) -> Result<(), Failure> {
        for name in &claims.contested {
            let message = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
            );
            self.warn("ConflictingController", message);
        }
        for new in &claims.give {
            let name = name_of(&*new.claim);
            self.give_owner(new).await.map_err(|error| {
                let message = format!(
                    "could not update claim {name} for delete policy ownerRefs: {}",
                    message_of(&error)
                );
                Failure::new(error, "give owners to the PersistentVolumeClaim", message)
            })?;
        }
        Ok(())
    }

    /// Writes the whole claim, for what is held of it is a part, and its role has no right to patch
    /// one. Of the version that was planned for: else somebody was quicker.
    async fn give_owner(&self, new: &NewOwners) -> kube::Result<()> {
        let (api, name) = (self.api::<PersistentVolumeClaim>(), name_of(&*new.claim));
        let Some(mut live) = ignore_missing(api.get(name).await)? else {
            return Ok(());
        };
        let planned_for = &new.claim.metadata;
        live.metadata.uid.clone_from(&planned_for.uid);
        let version = planned_for.resource_version.clone();
        live.metadata.resource_version = version;
        live.metadata.owner_references = Some(new.owners.clone());
        let params = PostParams::default();
        let written = api.replace(name, &params, &live);
        self.control.claims.write(self.key, written).await.map(drop)
    }

    /// Tells of what became of a pod, and hands the failure on.
    fn tell_of_pod(
        &self,
        verb: &'static str,
        pod: &str,
        done: Result<(), Failure>,
    ) -> Result<(), ReconcileError> {
        let reasons = match verb {
            "create" => ("SuccessfulCreate", "FailedCreate"),
            "delete" => ("SuccessfulDelete", "FailedDelete"),
            _ => ("SuccessfulUpdate", "FailedUpdate"),
        };
        let set = name_of(self.set);
        let what = format!("{verb} Pod {pod} in StatefulSet {set}");
        let Err(failure) = done else {
            self.normal(reasons.0, format!("{what} successful"));
            return Ok(());
        };
        if !failure.is_silent() {
            let message = format!("{what} failed error: {}", failure.message);
            self.warn(reasons.1, message);
        }
        Err(failure.error)
    }

    fn normal(&self, reason: &'static str, message: String) {
        self.control.recorder.normal(self.set, reason, message);
    }

    fn warn(&self, reason: &'static str, message: String) {
        self.control.recorder.warning(self.set, reason, message);
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.control.client.clone(), &self.key.namespace)
    }
}

fn name_of<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}
