//! What is written together with an object, in its transaction: the quotas that it is charged to,
//! the addresses' objects of a Service.
//!
//! The store says what is about to be written and asks anew for every try. Who answers stands above
//! it: nothing here knows a quota.

use std::{iter, sync::Arc};

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_store::{Compare, KeyValue, Op, Txn};
use serde_json::Value;

use crate::resource::Resource;

/// A write that is about to be tried.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Of what kind the object is.
    pub resource: &'a Resource,
    /// As it is to be stored.
    pub new: &'a Value,
    /// `None` for a new object.
    pub old: Option<&'a Value>,
    /// How many tries at it have lost a race before.
    pub tries: usize,
}

/// What must hold, and what is written, in the transaction of an object.
#[derive(Debug, Clone, Default)]
pub struct Companions {
    /// Keys that are made with it, and that nobody may have.
    pub claims: Vec<Arc<str>>,
    /// Of other objects: what must still be so.
    pub compare: Vec<Compare>,
    /// What else is written.
    pub ops: Vec<Op>,
}

impl Companions {
    /// Both.
    pub fn and(mut self, other: Self) -> Self {
        self.claims.extend(other.claims);
        self.compare.extend(other.compare);
        self.ops.extend(other.ops);
        self
    }

    /// The transaction of an object, which must be as `object` says, and `op` on it.
    pub(super) fn txn(self, object: Compare, op: Op, may_use_disk_reserve: bool) -> Txn {
        let claims = self.claims.into_iter().map(Compare::Absent);
        Txn {
            compare: iter::once(object)
                .chain(claims)
                .chain(self.compare)
                .collect(),
            ops: iter::once(op).chain(self.ops).collect(),
            may_use_disk_reserve,
        }
    }

    /// Of what was to be claimed, what others had when the transaction came: the conflict's answer
    /// says it in the order of [`Companions::txn`].
    pub(super) fn taken(claims: &[Arc<str>], found: &[Option<KeyValue>]) -> Vec<Arc<str>> {
        let found = found.iter().skip(1);
        claims
            .iter()
            .zip(found)
            .filter(|(_, found)| found.is_some())
            .map(|(claim, _)| Arc::clone(claim))
            .collect()
    }
}

/// Something that objects are written together with, such as the quotas of a namespace.
#[async_trait]
pub trait Companion: Send + Sync {
    /// The companions of `write`, as things are now: asked again after a lost race.
    ///
    /// # Errors
    /// Why the object may not be written.
    async fn companions(&self, write: Write<'_>) -> Result<Companions, Status>;

    /// What the client is told when companions have changed during every try.
    fn exhausted(&self) -> Status;
}

#[cfg(test)]
mod tests {
    use coracle_store::Revision;
    use serde_json::json;

    use super::*;
    use crate::{
        part::Part,
        store::{WriteOptions, update::UpdateTarget},
        testing::started,
    };

    /// Has changed whenever the transaction comes.
    struct Restless;

    #[async_trait]
    impl Companion for Restless {
        async fn companions(&self, _: Write<'_>) -> Result<Companions, Status> {
            let compare = vec![Compare::ModRevision("/registry/none".into(), Revision(1))];
            Ok(Companions {
                compare,
                ..Companions::default()
            })
        }

        fn exhausted(&self) -> Status {
            Status::internal("it never rests")
        }
    }

    #[tokio::test]
    async fn who_never_rests_says_what_the_client_is_told() {
        let (store, registry) = started().await;
        let maps = registry.core("configmaps").expect("a kind");
        let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"text": text}});
        let mut new = store
            .prepare_new(maps, "default", map("first"), None)
            .expect("an object");
        new.check(false).expect("a valid one");
        let inserted = store
            .insert(&mut new, WriteOptions::default(), Some(&Restless))
            .await;
        store
            .create(maps, "default", map("first"), WriteOptions::default())
            .await
            .expect("nothing was written before");
        let mut update = store
            .begin_update(maps, UpdateTarget::own("default", "a", Part::Main))
            .await
            .expect("the object");
        let mut changed = update.prepare(map("second")).expect("a change");
        update.check(&mut changed, false).expect("a valid one");
        let replaced = update.commit(changed, Some(&Restless)).await;
        for status in [inserted.err(), replaced.err()] {
            let status = status.expect("a refusal");
            assert!(status.message.contains("it never rests"), "{status:?}");
        }
    }
}
