//! Deletes objects whose owners are gone, and carries out the deletion policies Foreground and
//! Orphan.
//!
//! At the start it waits until every kind has been listed once, but not for ever: a kind that
//! cannot be listed must not keep the garbage of all others. What goes, goes on the server's word
//! alone: each owner that an object names is asked for at that moment, whether its kind is listed
//! or not, and where there is no answer nothing is deleted. Only letting dependents go (Orphan)
//! waits for every kind: an owner whose dependents are not known yet would go without letting them
//! go, and they after it.
//!
//! The graph is fed by the shared informers and, for all other kinds, by watches of metadata alone.
//! It says where to look. Events are not collected: they expire.
//!
//! Source: `pkg/controller/garbagecollector/garbagecollector.go` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, Preconditions},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    Manager,
    context::Context,
    controller::{self, CallContext, Outcome, ReconcileError},
    errors::{is_conflict, is_not_found},
    removals::Removals,
    served_kinds::{GroupKind, ServedKind, ServedKinds},
    work_queue::WorkQueue,
};

mod graph;
mod monitor;
mod seen;
#[cfg(test)]
mod tests;

use graph::{FOREGROUND, Graph, ORPHAN, Place, Snapshot, Uid, Work};

/// Objects worked on at once.
const WORKERS: usize = 8;
/// When to look again for an object that was named but not seen yet: at first, and at last, for one
/// of a kind that cannot be watched is never seen.
const UNSEEN_RETRY: Duration = Duration::from_millis(500);
const UNSEEN_RETRY_CAP: Duration = Duration::from_secs(600);

/// The collector.
pub(crate) struct GarbageCollector {
    client: Client,
    kinds: Arc<ServedKinds>,
    discovery_period: Duration,
    initial_sync_timeout: Duration,
    graph: Mutex<Graph>,
    deletes: Arc<WorkQueue<Uid>>,
    orphans: Arc<WorkQueue<Uid>>,
    /// Kinds that informers feed, and whether their first list is complete.
    fed: Mutex<HashMap<GroupKind, Listed>>,
    /// The same of the kinds that monitors watch.
    monitored: Mutex<HashMap<GroupKind, Listed>>,
    removals: Removals,
}

impl GarbageCollector {
    /// Takes the metadata of kinds from the informers that show every object of theirs. They have
    /// to be complete: set up last.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let this = Arc::new(Self {
            client: context.client.clone(),
            kinds: context.kinds.clone(),
            discovery_period: context.config.discovery_period,
            initial_sync_timeout: context.config.initial_sync_timeout,
            graph: Mutex::default(),
            deletes: context.queue("garbage_collector_attempt_to_delete"),
            orphans: context.queue("garbage_collector_attempt_to_orphan"),
            fed: Mutex::default(),
            monitored: Mutex::default(),
            removals: context.removals.clone(),
        });
        for mut informer in manager.informers.whole() {
            let (group, kind) = informer.group_kind();
            this.fed
                .lock()
                .insert((group.clone(), kind.clone()), informer.synced());
            let this = this.clone();
            informer.on_change(move |meta, is_gone| match is_gone {
                true => this.removed(meta.uid.as_deref().unwrap_or_default()),
                false => this.observed(&group, &kind, meta),
            });
        }
        // It waits for its kinds itself, all of them.
        manager.add("garbage-collector-controller", |shutdown| {
            this.run(shutdown)
        });
    }

    /// Collects until `shutdown`.
    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let monitors = monitor::run(self.clone(), shutdown.clone());
        tokio::join!(monitors, self.clone().work(shutdown));
    }

    /// Works the queues off, once all kinds are known or that has lasted too long.
    async fn work(self: Arc<Self>, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = monitor::wait_for_sync(&self) => {}
        }
        let this = self.clone();
        let delete = controller::run(
            "garbage-collector",
            self.deletes.clone(),
            WORKERS,
            shutdown.clone(),
            move |uid| {
                let this = this.clone();
                async move { this.attempt_delete(uid).await }
            },
        );
        let this = self.clone();
        let orphan = controller::run(
            "garbage-collector-orphan",
            self.orphans.clone(),
            2,
            shutdown,
            move |uid| {
                let this = this.clone();
                async move { this.attempt_orphan(uid).await }
            },
        );
        tokio::join!(delete, orphan);
    }

    fn observed(&self, group: &str, kind: &str, meta: &ObjectMeta) {
        let mut graph = self.graph.lock();
        let place = Place {
            kind: graph.kind(group, kind),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        };
        let work = graph.observe(place, meta);
        drop(graph);
        self.enqueue(work);
    }

    fn removed(&self, uid: &str) {
        let mut graph = self.graph.lock();
        let namespace = graph.namespace(uid);
        let work = graph.remove(uid);
        drop(graph);
        if let Some(namespace) = namespace.filter(|name| !name.is_empty()) {
            self.removals.tell(&namespace);
        }
        self.enqueue(work);
    }

    fn enqueue(&self, work: Vec<Work>) {
        for item in work {
            match item {
                Work::Delete(uid) => self.deletes.add(uid),
                Work::Orphan(uid) => self.orphans.add(uid),
            }
        }
    }

    async fn attempt_delete(&self, uid: Uid) -> Outcome {
        let Some(node) = self.graph.lock().snapshot(&uid) else {
            return Ok(None);
        };
        if node.deleting && !node.deleting_dependents {
            return Ok(None);
        }
        let served = self.served(&node.place)?;
        let api = self.api(&served, &node.place.namespace);
        let live = api
            .get_metadata_opt(&node.place.name)
            .await
            .during("get object")?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(&*uid)) else {
            let work = self.graph.lock().absent(&uid, &node.place);
            self.enqueue(work);
            return Ok(None);
        };
        if node.is_virtual {
            // It exists: its own event will come, and with it the end of being virtual.
            let asked = self.graph.lock().ask_again(&uid);
            return Ok(Some(unseen_pause(asked)));
        }
        if node.deleting_dependents {
            return self.finish_foreground(&api, &node, &live.metadata).await;
        }
        let references = live.metadata.owner_references.clone().unwrap_or_default();
        if references.is_empty() || live.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut verdicts = Vec::with_capacity(references.len());
        for reference in &references {
            verdicts.push(self.judge(reference, &node.place.namespace).await?);
        }
        self.settle(&api, &node, &live.metadata, &references, &verdicts)
            .await
    }

    /// Acts on what its owners' states mean for an object.
    async fn settle(
        &self,
        api: &Api<DynamicObject>,
        node: &Snapshot,
        live: &ObjectMeta,
        references: &[OwnerReference],
        verdicts: &[Verdict],
    ) -> Outcome {
        let any = |wanted: Verdict| verdicts.contains(&wanted);
        if any(Verdict::Solid) {
            if !any(Verdict::Absent) && !any(Verdict::Waiting) {
                return Ok(None);
            }
            // Somebody still needs it: only the other references go.
            let kept: Vec<&OwnerReference> = references
                .iter()
                .zip(verdicts)
                .filter(|(_, verdict)| **verdict == Verdict::Solid)
                .map(|(reference, _)| reference)
                .collect();
            let patch = json!({"metadata": {
                "uid": live.uid, "resourceVersion": live.resource_version, "ownerReferences": kept,
            }});
            return done(
                api.patch_metadata(
                    &node.place.name,
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await,
                "release",
            );
        }
        let has = |finalizer: &str| {
            live.finalizers
                .iter()
                .flatten()
                .any(|present| present == finalizer)
        };
        let params = if any(Verdict::Waiting) && !node.dependents.is_empty() {
            if self.is_cycle(node) {
                self.unblock(api, node, live, references).await?;
            }
            DeleteParams::foreground()
        } else if has(ORPHAN) {
            DeleteParams::orphan()
        } else if has(FOREGROUND) {
            DeleteParams::foreground()
        } else {
            DeleteParams::background()
        };
        let same = Preconditions {
            uid: live.uid.clone(),
            resource_version: None,
        };
        done(
            api.delete(&node.place.name, &params.preconditions(same))
                .await,
            "delete dependent",
        )
    }

    /// Whether one of its own dependents is in a foreground deletion already.
    fn is_cycle(&self, node: &Snapshot) -> bool {
        let graph = self.graph.lock();
        node.dependents.iter().any(|uid| {
            graph
                .snapshot(uid)
                .is_some_and(|dependent| dependent.deleting_dependents)
        })
    }

    /// Breaks a circle: this object keeps no owner waiting any more.
    async fn unblock(
        &self,
        api: &Api<DynamicObject>,
        node: &Snapshot,
        live: &ObjectMeta,
        references: &[OwnerReference],
    ) -> Result<(), ReconcileError> {
        let freed: Vec<OwnerReference> = references
            .iter()
            .map(|reference| OwnerReference {
                block_owner_deletion: Some(false),
                ..reference.clone()
            })
            .collect();
        let patch = json!({"metadata": {"uid": live.uid, "ownerReferences": freed}});
        let patched = api
            .patch_metadata(
                &node.place.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        done(patched, "unblock owners").map(drop)
    }

    /// Ends a foreground deletion, or sees that what it waits for goes.
    async fn finish_foreground(
        &self,
        api: &Api<DynamicObject>,
        node: &Snapshot,
        live: &ObjectMeta,
    ) -> Outcome {
        if node.blocking.is_empty() {
            return self.remove_finalizer(api, node, live, FOREGROUND).await;
        }
        for (dependent, in_foreground) in &node.blocking {
            if !in_foreground {
                self.deletes.add(dependent.clone());
            }
        }
        Ok(None)
    }

    async fn remove_finalizer(
        &self,
        api: &Api<DynamicObject>,
        node: &Snapshot,
        live: &ObjectMeta,
        finalizer: &str,
    ) -> Outcome {
        let present = live.finalizers.as_deref().unwrap_or_default();
        if !present.iter().any(|other| other == finalizer) {
            return Ok(None);
        }
        let kept: Vec<&String> = present.iter().filter(|other| *other != finalizer).collect();
        let patch = json!({"metadata": {"uid": live.uid, "resourceVersion": live.resource_version, "finalizers": kept}});
        let patched = api
            .patch_metadata(
                &node.place.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        match patched {
            Err(error) if is_conflict(&error) => Err(error).during("remove finalizer"),
            other => done(other, "remove finalizer"),
        }
    }

    async fn attempt_orphan(&self, uid: Uid) -> Outcome {
        monitor::every_kind_is_known(self).await?;
        let Some(node) = self.graph.lock().snapshot(&uid) else {
            return Ok(None);
        };
        for dependent in &node.dependents {
            self.release(dependent, &uid).await?;
        }
        let served = self.served(&node.place)?;
        let api = self.api(&served, &node.place.namespace);
        let live = api
            .get_metadata_opt(&node.place.name)
            .await
            .during("get object")?;
        match live.filter(|live| live.metadata.uid.as_deref() == Some(&*uid)) {
            Some(live) => {
                self.remove_finalizer(&api, &node, &live.metadata, ORPHAN)
                    .await
            }
            None => Ok(None),
        }
    }

    /// Removes one owner from a dependent.
    async fn release(&self, dependent: &Uid, owner: &Uid) -> Result<(), ReconcileError> {
        let Some(node) = self.graph.lock().snapshot(dependent) else {
            return Ok(());
        };
        let served = self.served(&node.place)?;
        let api = self.api(&served, &node.place.namespace);
        let live = api
            .get_metadata_opt(&node.place.name)
            .await
            .during("get dependent")?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(&**dependent))
        else {
            return Ok(());
        };
        let patch = crate::owner::release_patch(&live.metadata, owner, None);
        let patched = api
            .patch_metadata(
                &node.place.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        done(patched, "orphan dependent").map(drop)
    }

    /// Asks the server what became of an owner.
    async fn judge(
        &self,
        reference: &OwnerReference,
        namespace: &str,
    ) -> Result<Verdict, ReconcileError> {
        let group = reference
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        let Some(served) = self.kinds.get(group, &reference.kind) else {
            return Err(ReconcileError::NotYet(format!(
                "owner kind {}/{} is not served",
                reference.api_version, reference.kind
            )));
        };
        if served.namespaced && namespace.is_empty() {
            // A cluster-wide object cannot be owned from within a namespace; upstream leaves it
            // alone as well.
            warn!(owner = %reference.name, kind = %reference.kind, "a cluster-wide object names an owner that has a namespace");
            return Ok(Verdict::Solid);
        }
        let live = self
            .api(&served, namespace)
            .get_metadata_opt(&reference.name)
            .await
            .during("get owner")?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(&reference.uid))
        else {
            return Ok(Verdict::Absent);
        };
        let waits = live.metadata.deletion_timestamp.is_some()
            && live
                .metadata
                .finalizers
                .iter()
                .flatten()
                .any(|finalizer| finalizer == FOREGROUND);
        Ok(if waits {
            Verdict::Waiting
        } else {
            Verdict::Solid
        })
    }

    fn served(&self, place: &Place) -> Result<Arc<ServedKind>, ReconcileError> {
        let (group, kind) = place.kind.as_ref();
        self.kinds.get(group, kind).ok_or_else(|| {
            ReconcileError::NotYet(format!("kind {kind} of group {group:?} is not served"))
        })
    }

    fn api(&self, served: &ServedKind, namespace: &str) -> Api<DynamicObject> {
        if served.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &served.resource)
        } else {
            Api::all_with(self.client.clone(), &served.resource)
        }
    }
}

/// Becomes true once the first list of a kind is in the graph.
type Listed = watch::Receiver<bool>;

/// When to look again for an object that was asked for so often.
fn unseen_pause(asked: u32) -> Duration {
    ExponentialBackoff::new(UNSEEN_RETRY, UNSEEN_RETRY_CAP).after(asked)
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Exists.
    Solid,
    /// Does not, or is another object of that name.
    Absent,
    /// Is being deleted and waits for this object.
    Waiting,
}

/// An object that is gone, or is another by now, needs nothing.
fn done<T>(result: kube::Result<T>, call: &'static str) -> Outcome {
    match result {
        Err(error) if is_not_found(&error) => Ok(None),
        other => other.map(|_| None).during(call),
    }
}

/// The uids that a monitor has shown, so that a new list shows what went meanwhile.
type Known = HashSet<Uid>;
