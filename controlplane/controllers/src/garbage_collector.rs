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
//! An owner whose kind nobody serves (its definition was made a moment ago, or is gone) is absent
//! if its deletion was seen. Else its objects stay, as upstream, until the kind comes again.
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
use futures::future::join_all;
use kube::{Client, api::ObjectMeta};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Manager,
    context::Context,
    controller::{self, Outcome, ReconcileError},
    owner::release_patch,
    removals::{Gone, Removals},
    served_kinds::{GroupKind, ServedKinds},
    work_queue::WorkQueue,
};

mod graph;
mod monitor;
mod operations;
mod plan;
mod seen;
#[cfg(test)]
mod tests;

use graph::{FOREGROUND, Graph, ORPHAN, Place, Snapshot, Uid, Work};
use operations::Operations;
use plan::{Owner, Settlement, Verdict};

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
    operations: Operations,
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
            operations: Operations::new(context.client.clone(), context.kinds.clone()),
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
        let relists = shutdown.run_until_cancelled(self.tell_of_relists());
        tokio::join!(monitors, relists, self.clone().work(shutdown.clone()));
    }

    /// Tells of each list of the kinds that informers feed.
    async fn tell_of_relists(&self) {
        let fed: Vec<Listed> = self.fed.lock().values().cloned().collect();
        join_all(fed.into_iter().map(async |mut listed: Listed| {
            while listed.changed().await.is_ok() {
                self.removals.tell(Gone::Unseen);
            }
        }))
        .await;
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
        self.gone(uid, Graph::remove);
    }

    fn deleted(&self, uid: &str) {
        self.gone(uid, Graph::delete);
    }

    fn gone(&self, uid: &str, take_in: impl Fn(&mut Graph, &str) -> Vec<Work>) {
        let mut graph = self.graph.lock();
        let namespace = graph.namespace(uid);
        let work = take_in(&mut graph, uid);
        drop(graph);
        if let Some(namespace) = namespace.filter(|name| !name.is_empty()) {
            self.removals.tell(Gone::In(&namespace));
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
        let live = self.operations.get(&node.place, &uid, "get object");
        let Some(live) = live.await? else {
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
            self.finish_foreground(&node, &live).await?;
            return Ok(None);
        }
        let references = live.owner_references.as_deref().unwrap_or_default();
        if references.is_empty() || live.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut verdicts = Vec::with_capacity(references.len());
        for reference in references {
            let owner = self.operations.owner(reference, &node.place.namespace);
            let owner = match owner.await? {
                Owner::Unserved if self.graph.lock().was_deleted(&reference.uid) => Owner::Absent,
                Owner::Unserved => return Err(operations::unserved_owner(reference)),
                owner => owner,
            };
            verdicts.push(plan::judge(reference, &owner));
        }
        self.settle(&node, &live, &verdicts).await?;
        Ok(None)
    }

    /// Acts on what its owners' states mean for an object.
    async fn settle(
        &self,
        node: &Snapshot,
        live: &ObjectMeta,
        verdicts: &[Verdict],
    ) -> Result<(), ReconcileError> {
        let (params, owner_waits) = match plan::settle(live, verdicts, node) {
            Settlement::Keep => return Ok(()),
            Settlement::Release(patch) => {
                let released = self.operations.patch(&node.place, patch, "release");
                return released.await.map(drop);
            }
            Settlement::Delete {
                params,
                owner_waits,
            } => (params, owner_waits),
        };
        let in_circle = || self.graph.lock().any_deletes_dependents(&node.dependents);
        if owner_waits && in_circle() {
            let patch = plan::unblocked(live);
            let unblocked = self.operations.patch(&node.place, patch, "unblock owners");
            let Some(unblocked) = unblocked.await? else {
                return Ok(());
            };
            return self
                .operations
                .delete(&node.place, &unblocked, params)
                .await;
        }
        self.operations.delete(&node.place, live, params).await
    }

    /// Ends a foreground deletion, or sees that what it waits for goes.
    async fn finish_foreground(
        &self,
        node: &Snapshot,
        live: &ObjectMeta,
    ) -> Result<(), ReconcileError> {
        if node.blocking.is_empty() {
            return self.remove_finalizer(&node.place, live, FOREGROUND).await;
        }
        for (dependent, in_foreground) in &node.blocking {
            if !in_foreground {
                self.deletes.add(dependent.clone());
            }
        }
        Ok(())
    }

    async fn remove_finalizer(
        &self,
        place: &Place,
        live: &ObjectMeta,
        finalizer: &str,
    ) -> Result<(), ReconcileError> {
        match plan::without_finalizer(live, finalizer) {
            Some(patch) => {
                let removed = self.operations.patch(place, patch, "remove finalizer");
                removed.await.map(drop)
            }
            None => Ok(()),
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
        let live = self.operations.get(&node.place, &uid, "get object");
        if let Some(live) = live.await? {
            self.remove_finalizer(&node.place, &live, ORPHAN).await?;
        }
        Ok(None)
    }

    /// Removes one owner from a dependent.
    async fn release(&self, dependent: &Uid, owner: &Uid) -> Result<(), ReconcileError> {
        let Some(node) = self.graph.lock().snapshot(dependent) else {
            return Ok(());
        };
        let live = self.operations.get(&node.place, dependent, "get dependent");
        let Some(live) = live.await? else {
            return Ok(());
        };
        let patch = release_patch(&live, owner, None);
        let released = self
            .operations
            .patch(&node.place, patch, "orphan dependent");
        released.await.map(drop)
    }
}

/// Becomes true once the first list of a kind is in the graph.
type Listed = watch::Receiver<bool>;

/// When to look again for an object that was asked for so often.
fn unseen_pause(asked: u32) -> Duration {
    ExponentialBackoff::new(UNSEEN_RETRY, UNSEEN_RETRY_CAP).after(asked)
}

/// The uids that a monitor has shown, so that a new list shows what went meanwhile.
type Known = HashSet<Uid>;
