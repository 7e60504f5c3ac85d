//! The keys of namespaces that an older release has made, or has begun to delete.

use std::collections::HashSet;

use coracle_api::{meta, status::Status};
use coracle_store::{Compare, Op, RangeRequest, Revision};

use super::{PREFIX, key, put};
use crate::{
    resource::{Registry, Resource},
    store::{Current, Store, amend::Amendment, store_status},
};

/// Keys read at once.
const PAGE: usize = 1000;

/// Makes the key of a namespace that lives, if it has none.
///
/// # Errors
/// The store cannot be read or written.
pub async fn open(store: &Store, namespace: &Current) -> Result<(), Status> {
    let name = meta::name(&namespace.object);
    let found = store.backend.get(&key(name)).await.map_err(store_status)?;
    if found.is_some() {
        return Ok(());
    }
    let opening = opening(name, &namespace.key, namespace.revision);
    store.amend(vec![opening]).await.map(drop)
}

/// Makes the keys that namespaces lack, and removes those of namespaces that are no more or go.
///
/// # Errors
/// The store cannot be read or written.
pub async fn repair(store: &Store, registry: &Registry) -> Result<(), Status> {
    let Some(namespaces) = registry.core("namespaces") else {
        return Ok(());
    };
    let (mut left, mut changes) = (keys(store).await?, Vec::new());
    let snapshot = namespaces.cache.snapshot();
    let living = snapshot.from_key(&namespaces.prefix);
    for entry in living.filter(|entry| !entry.is_terminating()) {
        if !left.remove(entry.name()) {
            changes.push(opening(entry.name(), entry.key(), entry.revision()));
        }
    }
    for name in left {
        changes.extend(closing(store, namespaces, &name).await?);
    }
    store.amend(changes).await.map(drop)
}

fn opening(name: &str, namespace_key: &str, revision: Revision) -> Amendment {
    let compare = vec![
        Compare::Absent(key(name)),
        Compare::ModRevision(namespace_key.into(), revision),
    ];
    let op = put(name);
    Amendment { compare, op }
}

/// Of a namespace that does not live. The cache may be behind: the store has the last word.
async fn closing(
    store: &Store,
    namespaces: &Resource,
    name: &str,
) -> Result<Option<Amendment>, Status> {
    let namespace_key = namespaces.key("", name);
    let unchanged = match store.fresh(&namespace_key).await? {
        Some(namespace) if !meta::is_terminating(&namespace.object) => return Ok(None),
        Some(namespace) => Compare::ModRevision(namespace.key, namespace.revision),
        None => Compare::Absent(namespace_key.into()),
    };
    let (compare, op) = (vec![unchanged], Op::Delete { key: key(name) });
    Ok(Some(Amendment { compare, op }))
}

/// Names of the namespaces that have one.
async fn keys(store: &Store) -> Result<HashSet<String>, Status> {
    let (mut names, mut start) = (HashSet::new(), None);
    loop {
        let request = RangeRequest {
            prefix: PREFIX.to_owned(),
            start,
            limit: Some(PAGE),
            at: None,
        };
        let page = store.backend.range(request).await.map_err(store_status)?;
        start = page.items.last().map(|last| format!("{}\0", last.key));
        let found = page
            .items
            .iter()
            .filter_map(|kv| kv.key.strip_prefix(PREFIX));
        names.extend(found.map(str::to_owned));
        if page.remaining == 0 || start.is_none() {
            return Ok(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{store::WriteOptions, testing};

    async fn open_ones(store: &Store) -> Vec<String> {
        let mut names: Vec<String> = keys(store).await.unwrap().into_iter().collect();
        names.sort_unstable();
        names
    }

    #[tokio::test]
    async fn a_namespace_is_open_until_it_goes() {
        let (store, registry) = testing::started().await;
        let namespaces = registry.core("namespaces").unwrap();
        for name in ["a", "b"] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let made = store.create(namespaces, "", namespace, WriteOptions::default());
            made.await.unwrap();
        }
        assert_eq!(open_ones(&store).await, ["a", "b"]);
        let options = Default::default();
        // It stays for its finalizer.
        let deleted = store.delete(namespaces, "", "a", &options).await;
        deleted.unwrap();
        assert_eq!(open_ones(&store).await, ["b"]);
        // As a store of before there were keys, with one that a namespace of then has left.
        for (name, op) in [("b", None), ("a", Some(put("a"))), ("x", Some(put("x")))] {
            let op = op.unwrap_or_else(|| Op::Delete { key: key(name) });
            let compare = Vec::new();
            store.amend(vec![Amendment { compare, op }]).await.unwrap();
        }
        store.cache.catch_up().await.unwrap();
        assert_eq!(open_ones(&store).await, ["a", "x"]);
        repair(&store, &registry).await.unwrap();
        assert_eq!(open_ones(&store).await, ["b"]);
    }
}
