//! What is written together with an object, in its transaction: the quotas that it is charged to,
//! the addresses' objects of a Service.
//!
//! The store says what is about to be written and asks anew for every try. Who answers stands above
//! it: nothing here knows a quota.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_store::{Compare, Op};
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
}

/// What must hold, and what is written, in the transaction of an object.
#[derive(Debug, Clone, Default)]
pub struct Companions {
    /// Of other objects: what must still be so.
    pub compare: Vec<Compare>,
    /// What else is written.
    pub ops: Vec<Op>,
}

impl Companions {
    /// Both.
    pub fn and(mut self, other: Self) -> Self {
        self.compare.extend(other.compare);
        self.ops.extend(other.ops);
        self
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
                ops: Vec::new(),
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
            .insert(new, WriteOptions::default(), Some(&Restless))
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
