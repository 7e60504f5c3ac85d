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
}
