//! What a controller has written and its informer does not show yet.
//!
//! A controller that counts from its cache must not act again before the cache shows what it has
//! done, or it does it twice: until then [`Builder`](crate::builder) lets it rest.
//!
//! ```text
//! call > answered with a resourceVersion > noted > the key is parked > the informer has come to it > the key is queued
//!      > a deletion, answered or not      > noted > parked until the cache shows the object going, or not at all
//!      > lost: timed out, cut off, 5xx    > settled() lists the namespace and notes the newest there
//! ```
//! The server counts the revisions of all objects together and an informer shows them in their
//! order, so nothing is guessed and nothing expires. What is left: a call that nobody waits for any
//! more may still be on its way, and be carried out after the list.
//!
//! Source: KEP-5647 (stale controllers), `pkg/controller/util/consistency` at v1.37.

use std::{collections::HashMap, fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;
use kube::{Api, Resource, api::ListParams};
use parking_lot::Mutex;

use crate::{
    cache::{Cache, Key},
    errors::{is_conflict, is_not_found},
    informer::Informer,
    informers::Kind,
    reflector::number,
    work_queue::WorkQueue,
};

/// The writes to objects of kind `O` by the key of the object that they were made for. Clones are
/// one.
pub struct OwnWrites<O: 'static> {
    queue: Arc<WorkQueue<Key>>,
    cache: Arc<Cache<O>>,
    api: Api<O>,
    notes: Arc<Mutex<HashMap<Key, Notes>>>,
}

/// Writes of any kind, as who may be kept waiting by them sees them.
pub(crate) trait Settles: Send + Sync {
    /// See [`OwnWrites::settled`].
    fn settled<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, kube::Result<bool>>;
}

impl<O: Kind> Settles for OwnWrites<O> {
    fn settled<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, kube::Result<bool>> {
        Box::pin(self.settled(key))
    }
}

/// What is not to be seen yet.
#[derive(Debug, Default)]
struct Notes {
    /// The newest write.
    revision: u64,
    /// Objects that were deleted, by uid.
    going: HashMap<String, Key>,
    /// Calls whose outcome nobody knows, and what they were to delete.
    lost: Vec<Option<Deleted>>,
    /// Whether somebody waits for the informer.
    is_parked: bool,
}

/// By uid.
type Deleted = (String, Key);

impl<O: Kind> OwnWrites<O> {
    /// As `informer` shows them; what had to wait is added to `queue`.
    pub(crate) fn new(informer: &mut Informer<O>, queue: Arc<WorkQueue<Key>>) -> Self {
        let this = Self {
            queue,
            cache: informer.cache(),
            api: informer.api().clone(),
            notes: Arc::default(),
        };
        let of_informer = this.clone();
        informer.on_progress(move |_| of_informer.wake());
        this
    }

    /// Makes a call for `key` that writes an object, and notes what it is answered with.
    ///
    /// # Errors
    /// The call's.
    pub async fn write<T: Resource>(
        &self,
        key: &Key,
        call: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let unanswered = Unanswered::new(self, key, None);
        let answer = call.await;
        let revision = match &answer {
            Ok(object) => object.meta().resource_version.as_deref().and_then(number),
            Err(error) if is_lost(error) => return answer,
            Err(_) => None,
        };
        unanswered
            .answered(|notes| notes.revision = notes.revision.max(revision.unwrap_or_default()));
        answer
    }

    /// Makes a call for `key` that deletes `object`, and notes that it goes. Where there is no such
    /// object any more, this is to be seen as well.
    ///
    /// # Errors
    /// The call's.
    pub async fn delete<T>(
        &self,
        key: &Key,
        object: &impl Resource,
        call: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let going = (
            object.meta().uid.clone().unwrap_or_default(),
            Key::of(object),
        );
        let unanswered = Unanswered::new(self, key, Some(going.clone()));
        let answer = call.await;
        let goes = match &answer {
            Ok(_) => true,
            // The uid was a precondition: another has this name.
            Err(error) if is_not_found(error) || is_conflict(error) => true,
            Err(error) if is_lost(error) => return answer,
            Err(_) => false,
        };
        unanswered.answered(|notes| notes.going.extend(goes.then_some(going)));
        answer
    }

    /// Whether the cache shows everything that was written for `key`. If not, it is queued again
    /// once it does.
    ///
    /// # Errors
    /// The outcome of a call is unknown, and what there is cannot be listed.
    pub(crate) async fn settled(&self, key: &Key) -> kube::Result<bool> {
        if self
            .notes
            .lock()
            .get(key)
            .is_some_and(|notes| !notes.lost.is_empty())
        {
            self.find(key).await?;
        }
        let mut all = self.notes.lock();
        let Some(notes) = all.get_mut(key) else {
            return Ok(true);
        };
        if notes.is_shown(&self.cache) {
            all.remove(key);
            return Ok(true);
        }
        notes.is_parked = true;
        Ok(false)
    }

    /// Finds out what has become of lost calls: everything up to the newest object that is there
    /// has to be seen.
    async fn find(&self, key: &Key) -> kube::Result<()> {
        let mut params = ListParams::default();
        if !key.namespace.is_empty() {
            params = params.fields(&format!("metadata.namespace={}", key.namespace));
        }
        let present = self.api.list_metadata(&params).await?.items;
        let newest = present
            .iter()
            .filter_map(|object| number(object.metadata.resource_version.as_deref()?))
            .max();
        let stays = |uid: &str| {
            let found = present
                .iter()
                .find(|object| object.metadata.uid.as_deref() == Some(uid));
            found.is_some_and(|object| object.metadata.deletion_timestamp.is_none())
        };
        let mut all = self.notes.lock();
        let notes = all.entry(key.clone()).or_default();
        notes.revision = notes.revision.max(newest.unwrap_or_default());
        let going = notes
            .lost
            .drain(..)
            .flatten()
            .filter(|(uid, _)| !stays(uid));
        notes.going.extend(going);
        Ok(())
    }

    /// The cache shows more: queues the keys that have waited for it.
    fn wake(&self) {
        let mut free = Vec::new();
        self.notes.lock().retain(|key, notes| {
            let is_shown = notes.is_shown(&self.cache);
            if is_shown && notes.is_parked {
                free.push(key.clone());
            }
            !is_shown
        });
        free.into_iter().for_each(|key| self.queue.add(key));
    }
}

impl Notes {
    fn is_shown<O: Resource>(&mut self, cache: &Cache<O>) -> bool {
        self.going.retain(|uid, key| {
            let present = cache.get(key);
            let is_same = |object: &Arc<O>| object.meta().uid.as_deref() == Some(uid.as_str());
            present
                .filter(is_same)
                .is_some_and(|object| object.meta().deletion_timestamp.is_none())
        });
        self.lost.is_empty() && self.going.is_empty() && self.revision <= cache.revision()
    }
}

/// Whether the call may have been carried out all the same.
fn is_lost(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code < 500)
}

/// A call under way. Dropped without an answer (the reconcile took too long, or panicked) it is
/// lost.
struct Unanswered<'a> {
    notes: &'a Mutex<HashMap<Key, Notes>>,
    key: &'a Key,
    /// `None` once there is an answer.
    lost: Option<Option<Deleted>>,
}

impl<'a> Unanswered<'a> {
    fn new<O>(writes: &'a OwnWrites<O>, key: &'a Key, deleted: Option<Deleted>) -> Self {
        Self {
            notes: &writes.notes,
            key,
            lost: Some(deleted),
        }
    }

    fn answered(mut self, note: impl FnOnce(&mut Notes)) {
        self.lost = None;
        note(self.notes.lock().entry(self.key.clone()).or_default());
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.notes
                .lock()
                .entry(self.key.clone())
                .or_default()
                .lost
                .push(lost);
        }
    }
}

impl<O: Clone> Clone for OwnWrites<O> {
    fn clone(&self) -> Self {
        let Self {
            queue,
            cache,
            api,
            notes,
        } = self;
        Self {
            queue: Arc::clone(queue),
            cache: Arc::clone(cache),
            api: api.clone(),
            notes: Arc::clone(notes),
        }
    }
}

impl<O> fmt::Debug for OwnWrites<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnWrites")
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
