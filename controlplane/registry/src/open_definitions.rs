//! Definitions whose kinds take new objects: each that lives has a key in the store, which every
//! new object of its kind is compared with.
//!
//! The key comes with the definition and goes in the transaction that begins its deletion. So what
//! is made through any server is there before that, and whoever deletes the objects finds it; or it
//! is refused. Without it a server that has not heard of the deletion yet would leave objects in
//! the store that are there again with the next definition of that name. A key is of one UID: what
//! was read by an earlier definition is not made under a later one.

pub mod definition;
pub(crate) mod held;

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::meta;
use coracle_store::Op;
use serde_json::Value;

use self::definition::Definition;
use crate::{api_resource, resource::Resource};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// What has to be written with a definition that is made, changed, or removed.
pub(crate) fn op(resource: &Resource, old: Option<&Value>, new: Option<&Value>) -> Option<Op> {
    if !resource.info.is(GROUP, PLURAL) {
        return None;
    }
    let lives = |one: Option<&Value>| one.is_some_and(|one| !meta::is_terminating(one));
    let one = || Definition::of(new.or(old).unwrap_or(&Value::Null));
    match (lives(old), lives(new)) {
        (false, true) => Some(put(&one().key)),
        (true, false) => Some(Op::Delete { key: one().key }),
        _ => None,
    }
}

/// The key of a definition itself.
fn key_of(name: &str) -> String {
    format!("{}{name}", api_resource::prefix(GROUP, PLURAL))
}

fn put(key: &Arc<str>) -> Op {
    Op::Put {
        key: Arc::clone(key),
        value: Bytes::from_static(b"{}"),
    }
}
