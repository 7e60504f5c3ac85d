//! Finalizers: on an object that stays, off one that is to go.
//!
//! Source: `pkg/controller/util/protectionutil/utils.go` at v1.37.

use kube::{Client, api::ObjectMeta};
use serde_json::json;

use crate::{
    controller::ReconcileError,
    informers::Kind,
    writes::{Scope, Write},
};

pub(crate) fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// Whether it is to go and has the finalizer.
pub(crate) fn is_to_go(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_some() && has(meta, finalizer)
}

/// Whether it stays and does not have the finalizer: admission puts it on, unless the object is
/// older.
pub(crate) fn is_missing(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_none() && !has(meta, finalizer)
}

/// Writes the object without the finalizer, or with it. Only if nobody has written it since it was
/// read: others have finalizers, too.
///
/// # Errors
/// The write's.
pub(crate) async fn write<K: Kind>(
    client: &Client,
    object: &K,
    finalizer: &str,
    is_on: bool,
    call: &'static str,
) -> Result<(), ReconcileError>
where
    K::Scope: Scope<K>,
{
    let own = object.meta().finalizers.iter().flatten();
    let mut all: Vec<&str> = own
        .map(String::as_str)
        .filter(|one| *one != finalizer)
        .collect();
    if is_on {
        all.push(finalizer);
    }
    let patch = json!({"metadata": {"finalizers": all}});
    let write = Write::to(client, object, call).if_unchanged();
    write.patch(patch).await.map(drop)
}
