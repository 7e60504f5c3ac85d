//! Namespaces that take new objects: each that lives has a key in the store, which every new object
//! in it is compared with.
//!
//! The key comes with the namespace and goes in the transaction that begins its deletion. So what
//! is made through any server is there before that, and the controller that empties the namespace
//! finds it; or it is refused. The namespace itself would not do to compare with: each label that
//! somebody puts on it would undo the creates under way.

pub mod repair;

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::meta;
use coracle_store::{Compare, Op};
use serde_json::Value;

use crate::{resource::Resource, store::companions::Companions};

const PREFIX: &str = "/registry/open-namespaces/";

/// What a new object in `namespace` is compared with.
#[must_use]
pub fn is_open(namespace: &str) -> Compare {
    Compare::Present(key(namespace))
}

fn key(namespace: &str) -> Arc<str> {
    format!("{PREFIX}{namespace}").into()
}

/// What has to be written with a namespace that is made, changed, or removed.
pub(crate) fn companions(
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Companions {
    let mut companions = Companions::default();
    if !resource.is_core("namespaces") {
        return companions;
    }
    let lives = |namespace: Option<&Value>| namespace.is_some_and(|one| !meta::is_terminating(one));
    let name = new.or(old).map_or("", meta::name);
    companions.ops.extend(match (lives(old), lives(new)) {
        (false, true) => Some(put(name)),
        (true, false) => Some(Op::Delete { key: key(name) }),
        _ => None,
    });
    companions
}

fn put(namespace: &str) -> Op {
    Op::Put {
        key: key(namespace),
        value: Bytes::from_static(b"{}"),
    }
}
