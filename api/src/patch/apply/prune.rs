//! What an applier named in one version and names no more in another.
//!
//! Source: `prune`, `addBackOwnedItems` and `addBackDanglingItems` in
//! `sigs.k8s.io/structured-merge-diff/v6/merge/update.go`.

use std::sync::Arc;

use serde_json::Value;

use super::{
    manager::Manager,
    managers::Managers,
    set::Set,
    typed,
    versions::{Form, Versions},
};
use crate::{
    schema::{NodeRef, Structural, Typed},
    status::Status,
};

/// Who applies, and what of it is told in which version.
pub(super) struct Applier<'a> {
    pub(super) me: &'a Manager,
    /// What is applied now, in the manager's version.
    pub(super) named: &'a Set,
    /// What was applied last, and in which version.
    pub(super) last: (&'a Set, &'a str),
}

/// An object without what its applier named the last time and nobody names now, where the last time
/// or others were in other versions. `None` if all are in one.
///
/// What goes is found in the version of the last time; then each other version has its say of what
/// stays, as a whole object, since parts of one cannot be converted.
pub(super) fn pruned(
    merged: &Value,
    root: impl Typed,
    managers: &Managers,
    applier: &Applier<'_>,
    versions: &impl Versions,
) -> Result<Option<Value>, Status> {
    let own = &*applier.me.api_version;
    let (last, last_version) = applier.last;
    let mut others = managers.versions_of_others(applier.me, own);
    if last_version != own {
        others.insert(0, own.to_owned());
    }
    others.retain(|version| version != last_version);
    if versions.is_one() || others.is_empty() {
        return Ok(None);
    }
    let owned_in = |version: &str| {
        let mut owned = managers.union_of_others_in(applier.me, version);
        if version == own {
            owned.merge(applier.named);
        }
        owned
    };
    let walk = Walk { root, versions };
    let given = Shaped {
        object: merged.clone(),
        schema: None,
    };
    let Some(before) = walk.form(&given, last_version)? else {
        // It cannot be said any more what was applied.
        return Ok(Some(given.object));
    };
    let mut left = before.clone();
    walk.remove(&mut left, last, &owned_in(last_version));
    if left.object == before.object {
        return Ok(Some(given.object));
    }
    let mut whole = before.clone();
    for version in &others {
        let (next, kept) = (walk.form(&whole, version)?, walk.form(&left, version)?);
        let (Some(next), Some(kept)) = (next, kept) else {
            continue;
        };
        let mut owned = walk.set(&kept);
        owned.merge(&owned_in(version));
        left = next.clone();
        walk.remove(&mut left, &walk.set(&next), &owned);
        whole = next;
    }
    let mut after = before;
    if let Some(left) = walk.form(&left, last_version)? {
        walk.remove(&mut after, last, &walk.set(&left));
    }
    let after = walk.form(&after, own)?;
    Ok(after.map(|after| after.object))
}

/// An object in one of its versions: the one that is written, or another of this schema.
#[derive(Clone)]
struct Shaped {
    object: Value,
    schema: Option<Arc<Structural>>,
}

/// The versions of a kind, one after the other.
struct Walk<'a, T, V> {
    root: T,
    versions: &'a V,
}

impl<T: Typed, V: Versions> Walk<'_, T, V> {
    fn form(&self, of: &Shaped, version: &str) -> Result<Option<Shaped>, Status> {
        if of.object["apiVersion"] == version {
            return Ok(Some(of.clone()));
        }
        let told = |status: Status| Status {
            message: format!("failed to prune fields: {}", status.message),
            ..status
        };
        Ok(
            match self.versions.form(&of.object, version).map_err(told)? {
                Form::Other(object, schema) => Some(Shaped {
                    object,
                    schema: Some(schema),
                }),
                Form::Gone | Form::Unseen => None,
            },
        )
    }

    fn set(&self, of: &Shaped) -> Set {
        match &of.schema {
            Some(schema) => typed::to_set(&of.object, NodeRef::of(schema).shape()),
            None => typed::to_set(&of.object, self.root.shape()),
        }
    }

    /// Removes what `last` has and `owned` has not.
    fn remove(&self, of: &mut Shaped, last: &Set, owned: &Set) {
        let object = &mut of.object;
        match &of.schema {
            Some(schema) => {
                typed::remove_unowned(object, NodeRef::of(schema).shape(), last, owned);
            }
            None => typed::remove_unowned(object, self.root.shape(), last, owned),
        }
    }
}
