//! Keeps the pods of a StatefulSet: each with a name, a place and claims of its own.
//!
//! Watches StatefulSets, Pods, PersistentVolumeClaims and ControllerRevisions; creates, updates and
//! deletes Pods, creates claims and says who owns them, keeps the history of templates, writes
//! status. What to do is decided by `plan`, here it is only done. It deletes no claim: those that
//! have an owner go with it.
//!
//! Source: `pkg/controller/statefulset` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_client::own_writes::OwnWrites;
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetStatus},
        core::v1::PersistentVolumeClaim,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams, core::Selector};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    claim::claim_matching,
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing, or_event},
    errors::is_namespace_terminating,
    history::{Found, HASH, History, Revisions, Template},
    owner::{selector_of, selects},
    pod::Pod,
};

mod control;
mod identity;
mod plan;
mod retention;
mod revisions;
mod status;
#[cfg(test)]
mod tests;
mod view;

use control::Control;
use plan::Plan;
use revisions::InUse;
use view::View;

/// StatefulSets worked on at once, as many as upstream's `--concurrent-statefulset-syncs`.
const WORKERS: usize = 5;
const COMPONENT: &str = "statefulset-controller";

/// The controller; its state is in caches.
pub(crate) struct StatefulSetController {
    client: Client,
    sets: Arc<Cache<StatefulSet>>,
    pods: By<Pod>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    history: History,
    control: Control,
    /// Of which template a pod is made depends on the status.
    statuses: OwnWrites<StatefulSet>,
}

impl StatefulSetController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, COMPONENT, "statefulset").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            sets: controller.for_kind(),
            pods: controller.owns(selector),
            claims: controller.reads(),
            history: History::new(&context.client, &mut controller, selector, HASH),
            control: Control::new(context, COMPONENT, &mut controller),
            statuses: controller.own_writes(),
        });
        controller.on_change(&this, Self::pod_changed);
        controller.on_change(&this, Self::claim_changed);
        controller.complete(this);
    }

    /// The end of a pod gives its name free, whoever had it.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if let Change::Deleted(pod) = change {
            let key = Key::of(&***pod);
            if let Some((parent, _)) = identity::parent_and_ordinal(&key.name) {
                self.wake(&key.namespace, parent, queue);
            }
        }
    }

    /// A claim that goes may be missed by a pod, or waited for.
    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        if let Change::Deleted(claim) = change {
            let key = Key::of(&***claim);
            for parent in identity::parents_of_claim(&key.name) {
                self.wake(&key.namespace, parent, queue);
            }
        }
    }

    fn wake(&self, namespace: &str, set: &str, queue: &Queue) {
        let key = Key::new(namespace, set);
        if self.sets.get(&key).is_some() {
            queue.add(key);
        }
    }
}

fn selector(set: &StatefulSet) -> Option<Cow<'_, LabelSelector>> {
    Some(Cow::Borrowed(&set.spec.selector))
}

impl Reconciler for StatefulSetController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(set) = self.sets.get(&key) else {
            return Ok(None);
        };
        // The API takes none that selects everything.
        let Some(selector) = selector(&set).as_deref().and_then(selector_of) else {
            return Ok(None);
        };
        let pods = self.claim_pods(&set, &selector).await?;
        if set.metadata.deletion_timestamp.is_some() {
            let (_, status) = self.plan(&set, &InUse::of_status(&set), &pods);
            self.write_status(&key, &set, status).await?;
            return Ok(None);
        }
        let Some(revisions) = self.revisions(&key, &set).await? else {
            return Ok(None);
        };
        let in_use = InUse::of(&set, &revisions);
        let (plan, status) = self.plan(&set, &in_use, &pods);
        let done = self.control.carry_out(&key, &set, &plan).await;
        self.write_status(&key, &set, status).await?;
        match done {
            // Nothing is made there any more.
            Err(ReconcileError::Api { source, .. }) if is_namespace_terminating(&source) => {
                return Ok(None);
            }
            done => done?,
        }
        for revision in in_use.surplus(&revisions, &pods) {
            self.history.delete(&revision).await?;
        }
        Ok(plan.again)
    }
}

impl StatefulSetController {
    /// The pods of `set`: those that its selector selects and that have a name of its.
    async fn claim_pods(
        &self,
        set: &StatefulSet,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let candidates = self.pods.controlled_or_orphaned(namespace, uid);
        let matches = |pod: &Pod| {
            selects(selector, &pod.metadata) && identity::ordinal_in(set, pod).is_some()
        };
        claim_matching(&self.client, set, matches, candidates, None).await
    }

    /// The revisions of `set`. `None` if that has to be seen again first.
    async fn revisions(
        &self,
        key: &Key,
        set: &StatefulSet,
    ) -> Result<Option<Revisions>, ReconcileError> {
        let status = set.status.clone().unwrap_or_default();
        let of = Template {
            selector: &set.spec.selector,
            template: &set.spec.template,
            collisions: Some(status.collision_count.unwrap_or(0)),
        };
        match self.history.find(set, of).await {
            Ok(Found::Revisions(revisions)) => Ok(Some(revisions)),
            Ok(Found::Collision) => {
                let collisions = Some(status.collision_count.unwrap_or(0) + 1);
                let status = StatefulSetStatus {
                    collision_count: collisions,
                    ..status
                };
                self.write_status(key, set, status).await?;
                Ok(None)
            }
            Err(ReconcileError::Api { source, .. }) if is_namespace_terminating(&source) => {
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    fn plan(
        &self,
        set: &StatefulSet,
        in_use: &InUse<'_>,
        pods: &[Arc<Pod>],
    ) -> (Plan, StatefulSetStatus) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let claim = |name: &str| self.claims.get(&Key::new(namespace, name));
        let view = View::new((set, in_use.versions()), pods, &claim, Timestamp::now());
        (plan::plan(&view), status::status(&view))
    }

    async fn write_status(
        &self,
        key: &Key,
        set: &StatefulSet,
        status: StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        let mut wanted = set.clone();
        wanted.status = Some(status);
        if !status::differs(set.status.as_ref(), wanted.status.as_ref()) {
            return Ok(());
        }
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams::default();
        let call = api.replace_status(&key.name, &params, &wanted);
        let written = self.statuses.write(key, call).await;
        let written = ignore_missing(written).during("update StatefulSet status");
        or_event(written).map(drop)
    }
}
