//! Builds a controller: what it reads, what wakes it, and how it runs.
//!
//! ```text
//! let mut controller = Builder::managed_by(&mut manager, "replicaset-controller", "replicaset").workers(8);
//! let replica_sets = controller.for_kind::<ReplicaSet>();                                // each change queues its key
//! let pods = controller.owns::<ReplicaSet, Pod>(|rs| Some(&rs.spec.selector));          // each change queues its owner
//! controller.complete(Arc::new(ReplicaSets { replica_sets, pods }));
//! ```
//! What is named in any way is waited for: no key is worked on before all of it has been listed
//! once.
//!
//! Source: `sigs.k8s.io/controller-runtime/pkg/builder` (ControllerManagedBy, For, Owns, Watches,
//! Complete); kube-rs' `Controller` has the same names.

mod owned;

use std::{any::Any, fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::owned::Owners;
use crate::{
    cache::{
        By, Cache, Change, Index, Key,
        labels::{Selected, Selecting, SelectorOf},
    },
    controller::{self, CallContext, ReconcileError, Reconciler},
    informer::Informer,
    informers::{Kind, Source},
    manager::Manager,
    own_writes::{OwnWrites, Settles},
    work_queue::WorkQueue,
};

/// The queue of a controller: keys of the objects that it reconciles.
pub type Queue = WorkQueue<Key>;

/// Starts a part of a controller.
type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// See the module.
pub struct Builder<'m> {
    manager: &'m mut Manager,
    name: &'static str,
    queue: Arc<Queue>,
    workers: usize,
    /// The [`Source`] of each kind of which it does not see all.
    sources: Vec<Box<dyn Any>>,
    synced: Vec<watch::Receiver<bool>>,
    own_writes: Vec<Box<dyn Settles>>,
    parts: Vec<Start>,
}

impl<'m> Builder<'m> {
    /// A controller to be. `name` is for messages; `/metrics` shows its queue under upstream's name
    /// for that, `queue`.
    #[must_use]
    pub fn managed_by(manager: &'m mut Manager, name: &'static str, queue: &str) -> Self {
        let queue = Arc::new(Queue::named(&manager.metrics, queue));
        Self {
            manager,
            name,
            queue,
            workers: 1,
            sources: Vec::new(),
            synced: Vec::new(),
            own_writes: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// How many keys are worked on at once: one, unless it is said.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Of this kind the controller sees these objects alone, wherever it names it from now on.
    pub fn select<K: Kind>(&mut self, source: Source<K>) {
        self.sources.push(Box::new(source));
    }

    /// The kind that is reconciled: each change of an object queues its key.
    pub fn for_kind<K: Kind>(&mut self) -> Arc<Cache<K>> {
        let (queue, informer) = (self.queue(), self.informer::<K>());
        informer.on_change(move |change| queue.add(Key::of(change.latest().as_ref())));
        informer.cache()
    }

    /// A kind whose objects are controlled by `O`s: each change queues the owner, and the one that
    /// it had. What nobody controls queues those that may adopt it, by their `selector`.
    pub fn owns<O: Kind, K: Kind>(&mut self, selector: SelectorOf<O>) -> By<K> {
        let owners = Owners::of(&self.reads(), selector);
        let queue = self.queue();
        self.informer::<K>()
            .on_change(move |change| owners.wake(change, &queue));
        self.index(Index::by_controller())
    }

    /// A kind whose objects `S`s select by their labels: each change queues those that do, and
    /// those that did.
    pub fn selects<S: Kind, K: Kind>(&mut self, selector: SelectorOf<S>) -> Selected<K> {
        let (selecting, queue) = (Selecting::of(&self.reads(), selector), self.queue());
        self.informer::<K>()
            .on_change(move |change| owned::wake_selecting(&selecting, change, &queue));
        self.selected()
    }

    /// A kind whose changes queue the keys that `map` gives for the object, as it is and as it was.
    pub fn watches<K: Kind, I>(&mut self, map: impl Fn(&K) -> I + Send + Sync + 'static)
    where
        I: IntoIterator<Item = Key>,
    {
        let queue = self.queue();
        self.informer::<K>().on_change(move |change| {
            let keys: Vec<Key> = map(change.latest()).into_iter().collect();
            if let Change::Updated { old, .. } = change {
                map(old)
                    .into_iter()
                    .filter(|key| !keys.contains(key))
                    .for_each(|key| queue.add(key));
            }
            keys.into_iter().for_each(|key| queue.add(key));
        });
    }

    /// A kind whose changes `handler` sees, which decides what it queues. It runs on the informer's
    /// task and must be quick.
    pub fn on_change<K: Kind, T: Send + Sync + 'static>(
        &mut self,
        this: &Arc<T>,
        handler: impl Fn(&T, &Change<'_, K>, &Queue) + Send + Sync + 'static,
    ) {
        let (this, queue) = (Arc::clone(this), self.queue());
        self.informer::<K>()
            .on_change(move |change| handler(&this, change, &queue));
    }

    /// A kind that is read and wakes nobody.
    pub fn reads<K: Kind>(&mut self) -> Arc<Cache<K>> {
        self.informer().cache()
    }

    /// A kind that is read by an index.
    pub fn index<K: Kind>(&mut self, index: Index<K>) -> By<K> {
        self.informer().index(index)
    }

    /// A kind that is read by selectors.
    pub fn selected<K: Kind>(&mut self) -> Selected<K> {
        Selected::of(&self.reads())
    }

    /// A kind that the controller writes and has to see its writes of: a key with one that does not
    /// show yet is not worked on before it does.
    pub fn own_writes<K: Kind>(&mut self) -> OwnWrites<K> {
        let queue = self.queue();
        let writes = OwnWrites::new(self.informer(), queue);
        self.own_writes.push(Box::new(writes.clone()));
        writes
    }

    /// For what else wakes the controller.
    #[must_use]
    pub fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Calls `look` at once and then each `period`, for what no change tells.
    pub fn every<T: Send + Sync + 'static>(
        &mut self,
        period: Duration,
        this: &Arc<T>,
        look: impl Fn(&T, &Queue) + Send + Sync + 'static,
    ) {
        let (this, queue) = (Arc::clone(this), self.queue());
        self.part(move |shutdown| async move {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
                look(&this, &queue);
            }
        });
    }

    /// Works another queue off beside its own, one key at a time.
    pub fn also(
        &mut self,
        name: &'static str,
        queue: Arc<Queue>,
        reconciler: Arc<impl Reconciler>,
    ) {
        self.part(move |shutdown| {
            controller::run(name, queue, 1, shutdown, move |key| {
                let reconciler = Arc::clone(&reconciler);
                async move { reconciler.reconcile(key).await }
            })
        });
    }

    /// The controller is complete: it runs with its manager.
    pub fn complete(mut self, reconciler: Arc<impl Reconciler>) {
        let (name, queue, workers) = (self.name, self.queue(), self.workers);
        let own_writes: Arc<[_]> = std::mem::take(&mut self.own_writes).into();
        self.part(move |shutdown| {
            controller::run(name, queue, workers, shutdown, move |key| {
                let (own_writes, reconciler) = (Arc::clone(&own_writes), Arc::clone(&reconciler));
                async move {
                    if !all_settled(&own_writes, &key).await? {
                        return Ok(None);
                    }
                    reconciler.reconcile(key).await
                }
            })
        });
        let Self {
            manager,
            synced,
            parts,
            ..
        } = self;
        manager.add_synced(name, synced, move |shutdown| async move {
            join_all(parts.into_iter().map(|start| start(shutdown.clone()))).await;
        });
    }

    fn part<F>(&mut self, start: impl FnOnce(CancellationToken) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.parts
            .push(Box::new(|shutdown| Box::pin(start(shutdown))));
    }

    /// What shows a kind; it is waited for.
    fn informer<K: Kind>(&mut self) -> &mut Informer<K> {
        let source = self
            .sources
            .iter()
            .rev()
            .find_map(|source| source.downcast_ref::<Source<K>>());
        let informer = self
            .manager
            .informers
            .some(&source.cloned().unwrap_or_else(Source::all));
        let synced = informer.synced();
        if !self.synced.iter().any(|known| known.same_channel(&synced)) {
            self.synced.push(synced);
        }
        informer
    }
}

/// Whether the caches show all that was written for `key`; else it is queued again once they do.
async fn all_settled(own_writes: &[Box<dyn Settles>], key: &Key) -> Result<bool, ReconcileError> {
    for writes in own_writes {
        let settled = writes.settled(key).await;
        if !settled.during("list what was written")? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
