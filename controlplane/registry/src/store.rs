//! The one generic store behind every kind: reads of the present state, and transactions with
//! retry.
//!
//! The verbs live beside it, each in steps that the caller takes: [`create`], [`update`],
//! [`delete`]. All of them take whole objects as JSON values; what a client sent is decoded before,
//! what it gets back is encoded here once.
//!
//! Source: `k8s.io/apiserver/pkg/registry/generic/registry/store.go` at v1.37.

pub(crate) mod amend;
pub mod companions;
pub mod create;
pub mod delete;
#[cfg(test)]
mod tests;
pub mod update;

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::status::{Reason, Status};
use coracle_store::{Backend, Compare, KeyValue, Op, Revision, StoreError, TxnOutcome};
use coracle_telemetry::ErrorChain;
use serde_json::Value;

use self::companions::{Companion, Companions, Write};
use super::{
    encode, open_definitions, open_namespaces, resource::Resource, service_allocator::allocation,
};
use crate::watch_cache::{WatchCache, WatchCacheError};

/// How often a write is tried when its companions change under it. Writers of this server take
/// turns at a quota, so it is the controller that changes them, and other servers.
const COMPANION_TRIES: usize = 32;
/// How often a write is tried anew with something else to claim. Of those that claim the same, one
/// succeeds.
const CLAIM_TRIES: usize = 64;
/// When a client may try again what certainly was not done.
const RETRY_SECS: u32 = 1;

/// The store and the cache over it.
#[derive(Clone)]
pub struct Store {
    /// Where objects are kept.
    pub backend: Arc<dyn Backend>,
    /// What reads and watches are served from. Follows the backend.
    pub cache: Arc<WatchCache>,
}

/// Parameters of every write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Do everything but write.
    pub dry_run: bool,
}

/// An object as it stands after a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// As clients see it.
    pub json: Bytes,
    /// Whether it was made by this request.
    pub created: bool,
    /// What to warn the client of.
    pub warnings: Vec<String>,
}

/// A stored object, taken apart.
#[derive(Debug, Clone)]
pub struct Current {
    /// Such as `/registry/pods/NAMESPACE/NAME`.
    pub key: Arc<str>,
    /// With `resourceVersion`.
    pub object: Value,
    /// As the cache has it.
    pub json: Bytes,
    /// Of its last write.
    pub revision: Revision,
    /// Straight from the store, not from the cache, which may be behind.
    pub is_fresh: bool,
    /// Stored in another form than it would be written in now.
    is_stale: bool,
}

impl Current {
    fn parse(
        key: Arc<str>,
        json: Bytes,
        revision: Revision,
        is_fresh: bool,
    ) -> Result<Self, Status> {
        let object = serde_json::from_slice(&json).map_err(|error| {
            Status::internal(format!("stored object {key} cannot be decoded: {error}"))
        })?;
        Ok(Self {
            key,
            object,
            json,
            revision,
            is_fresh,
            is_stale: false,
        })
    }

    fn from_stored(kv: &KeyValue) -> Result<Self, Status> {
        let json = encode::with_revision(&kv.value, kv.mod_revision);
        Self::parse(Arc::clone(&kv.key), json, kv.mod_revision, true)
    }

    /// The same for a kind that may be stored in several versions.
    async fn of_resource(resource: &Resource, kv: &KeyValue) -> Result<Self, Status> {
        let converted = resource.cache.config().converted(kv);
        let current = Self::from_stored(converted.as_ref().unwrap_or(kv))?;
        Ok(Self {
            is_stale: converted.is_some(),
            ..current.in_version_of(resource).await?
        })
    }

    /// The object in the resource's version, of whatever version the text is.
    async fn in_version_of(mut self, resource: &Resource) -> Result<Self, Status> {
        self.object = resource.in_own_version(self.object).await?;
        Ok(self)
    }
}

/// How a write ended that may happen only while the object is as it was.
///
/// Source: `OptimisticPut` in etcd's `client/v3/kubernetes/interface.go`.
enum OptimisticWrite<T> {
    /// It is done.
    Succeeded(T),
    /// Somebody else was faster: the object as it is now, unless it has gone.
    Conflict(Option<Current>),
    /// Others have these, which the write was to claim.
    Taken(Vec<Arc<str>>),
}

impl<T> OptimisticWrite<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> OptimisticWrite<U> {
        match self {
            Self::Succeeded(written) => OptimisticWrite::Succeeded(change(written)),
            Self::Conflict(found) => OptimisticWrite::Conflict(found),
            Self::Taken(keys) => OptimisticWrite::Taken(keys),
        }
    }
}

/// What objects of some kinds are always written with, whoever writes them.
fn companions_of_kind(resource: &Resource, old: Option<&Value>, new: Option<&Value>) -> Companions {
    let mut all = allocation::companions(resource, old, new)
        .and(open_namespaces::companions(resource, old, new));
    all.ops.extend(open_definitions::op(resource, old, new));
    all
}

/// What takes an object's place.
struct Replacement {
    /// See [`encode::encode`].
    value: Bytes,
    /// Written in the same transaction.
    with: Companions,
    /// See [`coracle_store::Txn::may_use_disk_reserve`].
    may_use_disk_reserve: bool,
}

/// What happens to an object that is still as it was.
struct Swap {
    op: Op,
    /// Written in the same transaction.
    with: Companions,
    /// See [`coracle_store::Txn::may_use_disk_reserve`].
    may_use_disk_reserve: bool,
}

impl Store {
    /// The object at `key`: from the cache, or from the store if the cache has none. What this
    /// server has written is known before the cache has it.
    pub async fn current(&self, resource: &Resource, key: &str) -> Result<Option<Current>, Status> {
        if let Some(written) = self.cache.written_ahead(key) {
            let current = Current::of_resource(resource, &written).await?;
            return Ok(Some(Current {
                is_fresh: false,
                ..current
            }));
        }
        match resource.cache.get(key) {
            Some(entry) => {
                let current =
                    Current::parse(key.into(), entry.json_bytes(), entry.revision(), false)?;
                Ok(Some(current.in_version_of(resource).await?))
            }
            None => self.newest(resource, key).await,
        }
    }

    /// The object at `key`, from the store, in the resource's version.
    async fn newest(&self, resource: &Resource, key: &str) -> Result<Option<Current>, Status> {
        let stored = self.backend.get(key).await.map_err(store_status)?;
        match stored {
            Some(kv) => Current::of_resource(resource, &kv).await.map(Some),
            None => Ok(None),
        }
    }

    /// The object of a built-in kind at `key`, from the store.
    pub async fn fresh(&self, key: &str) -> Result<Option<Current>, Status> {
        let stored = self.backend.get(key).await.map_err(store_status)?;
        stored.as_ref().map(Current::from_stored).transpose()
    }

    /// Writes `new` if the object is still as `current` says, with its companions: those at hand,
    /// and those of `companion`.
    async fn replace(
        &self,
        resource: &Resource,
        current: &Current,
        new: Replacement,
        companion: Option<(&dyn Companion, Write<'_>)>,
    ) -> Result<OptimisticWrite<Revision>, Status> {
        let Replacement {
            value,
            with,
            may_use_disk_reserve,
        } = new;
        let put = |value, with| Swap {
            op: Op::Put {
                key: Arc::clone(&current.key),
                value,
            },
            with,
            may_use_disk_reserve,
        };
        let Some((companion, write)) = companion else {
            return self.swap(resource, current, put(value, with)).await;
        };
        for tries in 0..COMPANION_TRIES {
            let write = Write { tries, ..write };
            let with = with.clone().and(companion.companions(write).await?);
            match self
                .swap(resource, current, put(value.clone(), with))
                .await?
            {
                // A companion has changed meanwhile, not the object.
                OptimisticWrite::Conflict(Some(found)) if found.revision == current.revision => {}
                other => return Ok(other),
            }
        }
        Err(companion.exhausted())
    }

    /// Removes the object if it is still as `current` says.
    async fn remove(
        &self,
        resource: &Resource,
        current: &Current,
    ) -> Result<OptimisticWrite<Revision>, Status> {
        let with = companions_of_kind(resource, Some(&current.object), None);
        let op = Op::Delete {
            key: Arc::clone(&current.key),
        };
        self.swap(
            resource,
            current,
            Swap {
                op,
                with,
                may_use_disk_reserve: true,
            },
        )
        .await
    }

    async fn swap(
        &self,
        resource: &Resource,
        current: &Current,
        to: Swap,
    ) -> Result<OptimisticWrite<Revision>, Status> {
        let Swap {
            op,
            with,
            may_use_disk_reserve,
        } = to;
        let unchanged = Compare::ModRevision(Arc::clone(&current.key), current.revision);
        let claims = with.claims.clone();
        let txn = with.txn(unchanged, op.clone(), may_use_disk_reserve);
        let found = match self.backend.txn(txn).await.map_err(store_status)? {
            TxnOutcome::Committed(revision) => {
                if let Op::Put { key, value } = &op {
                    self.cache.keep_written(key, value, revision);
                }
                return Ok(OptimisticWrite::Succeeded(revision));
            }
            TxnOutcome::Conflict(found) => found,
        };
        let taken = Companions::taken(&claims, &found);
        let present = found.into_iter().next().flatten();
        // An object that has changed may have claimed it by itself.
        if !taken.is_empty()
            && present
                .as_ref()
                .is_some_and(|kv| kv.mod_revision == current.revision)
        {
            return Ok(OptimisticWrite::Taken(taken));
        }
        Ok(OptimisticWrite::Conflict(match present {
            Some(kv) => Some(Current::of_resource(resource, &kv).await?),
            None => None,
        }))
    }
}

const SHUTTING_DOWN: &str = "the server is shutting down";
const TOO_SLOW: &str = "the watcher did not keep up with the changes: watch again";
/// Of a list, as upstream; a watch says it in its stream.
const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";

/// What a client is told of a failing store.
pub fn store_status(error: StoreError) -> Status {
    match error {
        StoreError::Compacted { .. } => Status::expired(TOO_OLD),
        StoreError::Future { asked, current } => {
            Status::too_large_resource_version(asked.0, current.0)
        }
        StoreError::Closed => Status::service_unavailable(SHUTTING_DOWN),
        error @ StoreError::Unavailable { .. } => {
            Status::service_unavailable(told(&error)).with_retry_after(RETRY_SECS)
        }
        // Not with a time to try again: who does so must know that it is not twice.
        error @ StoreError::Unsure { .. } => Status::new(504, Reason::Timeout, told(&error)),
        error => Status::new(500, Reason::InternalError, told(&error)),
    }
}

fn told(error: &StoreError) -> String {
    let message = ErrorChain(error).to_string();
    tracing::error!(error = message, "the store failed");
    message
}

/// What a client is told of a cache that cannot serve.
pub fn cache_status(error: WatchCacheError) -> Status {
    match error {
        WatchCacheError::TooOld { .. } => Status::expired(TOO_OLD),
        WatchCacheError::TooLarge { asked, current } => {
            Status::too_large_resource_version(asked.0, current.0)
        }
        WatchCacheError::Store(error) => store_status(error),
        WatchCacheError::TooSlow => Status::service_unavailable(TOO_SLOW),
        WatchCacheError::Closed => Status::service_unavailable(SHUTTING_DOWN),
        error @ (WatchCacheError::PrefixTaken { .. } | WatchCacheError::NotLoaded { .. }) => {
            Status::internal(error)
        }
    }
}
