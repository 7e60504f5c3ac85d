//! Role-based access control: what roles and bindings say, held in memory by subject.
//!
//! The truth is in the watch cache; `Index` is read off it. There is no task: whoever asks takes in
//! what has changed first, and before saying no, looks once more. A request costs a few hash
//! lookups and no allocation.
//!
//! Source: `plugin/pkg/auth/authorizer/rbac/rbac.go` and `pkg/registry/rbac/validation/rule.go` at
//! v1.37.

mod index;

use std::sync::Arc;

use coracle_registry::{
    resource::{Registry, Resource},
    watch_cache::{Entry, EventKind, KeyScope, Selection, WatchCacheError, Watcher},
};
use parking_lot::{Mutex, RwLock};

use self::index::{Found, Index, Kind};
use super::{Attributes, Decision, Target, rule::Rule};
use crate::user::UserInfo;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Decides by roles and bindings.
pub struct RbacAuthorizer {
    index: RwLock<Index>,
    feeds: Mutex<Vec<Feed>>,
}

/// The changes of one kind.
struct Feed {
    kind: Kind,
    resource: Arc<Resource>,
    watcher: Watcher,
}

impl RbacAuthorizer {
    /// Reads what there is in the cache.
    pub fn new(registry: &Registry) -> Self {
        let mut index = Index::default();
        let feeds = Kind::ALL.into_iter().filter_map(|kind| {
            let resource = registry.get(GROUP, "v1", kind.plural())?;
            let watcher = fill(&mut index, kind, resource);
            Some(Feed {
                kind,
                resource: Arc::clone(resource),
                watcher,
            })
        });
        let feeds = feeds.collect();
        Self {
            index: RwLock::new(index),
            feeds: Mutex::new(feeds),
        }
    }

    /// Whether a role of the user allows it.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.take_changes(false);
        self.finds(attributes) || {
            self.take_changes(true);
            self.finds(attributes)
        }
    }

    fn finds(&self, attributes: &Attributes<'_>) -> bool {
        let (verb, target) = (attributes.verb, &attributes.target);
        self.index
            .read()
            .visit(attributes.user, target.namespace(), |found| {
                allowing(&found, verb, target)
            })
    }

    /// As [`RbacAuthorizer::allows`], with the reason.
    pub fn explain(&self, attributes: &Attributes<'_>) -> Decision {
        self.take_changes(true);
        let (mut reason, mut missing) = (None, Vec::new());
        let (verb, target) = (attributes.verb, &attributes.target);
        self.index
            .read()
            .visit(attributes.user, target.namespace(), |found| {
                if allowing(&found, verb, target) {
                    reason = Some(found.reason());
                    return true;
                }
                if found.rules.is_none() {
                    missing.push(found.missing());
                }
                false
            });
        match (reason, missing.as_slice()) {
            (Some(reason), _) => Decision::Allow(reason),
            (None, []) => Decision::NoOpinion(String::new()),
            (None, [one]) => Decision::NoOpinion(format!("RBAC: {one}")),
            (None, several) => Decision::NoOpinion(format!("RBAC: [{}]", several.join(", "))),
        }
    }

    /// Every rule that `user` has in `namespace`, and which roles are missing.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        self.take_changes(true);
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.index.read().visit(user, namespace, |found| {
            match found.rules {
                Some(own) => rules.extend_from_slice(own),
                None => missing.push(found.missing()),
            }
            false
        });
        (rules, missing)
    }

    /// The rules of a role; an error in upstream's words if there is no such role.
    pub fn role(
        &self,
        is_cluster_role: bool,
        name: &str,
        namespace: &str,
    ) -> Result<Vec<Rule>, String> {
        self.take_changes(true);
        let index = self.index.read();
        let rules = index.rules(is_cluster_role, name, namespace);
        rules
            .map(<[Rule]>::to_vec)
            .ok_or_else(|| index::missing_role(is_cluster_role, name))
    }

    /// Takes in what has changed, `thoroughly` also what is not announced yet.
    fn take_changes(&self, thoroughly: bool) {
        // Whoever holds the lock is doing the same.
        let feeds = if thoroughly {
            Some(self.feeds.lock())
        } else {
            self.feeds.try_lock()
        };
        let Some(mut feeds) = feeds else { return };
        if thoroughly || feeds.iter().any(|feed| feed.watcher.has_news()) {
            feeds.iter_mut().for_each(|feed| feed.take(&self.index));
        }
    }
}

impl Feed {
    fn take(&mut self, index: &RwLock<Index>) {
        loop {
            match self.watcher.drain() {
                Ok(deliveries) if deliveries.is_empty() => return,
                Ok(deliveries) => {
                    let mut index = index.write();
                    for delivery in deliveries {
                        put(
                            &mut index,
                            self.kind,
                            &delivery.entry,
                            delivery.kind == EventKind::Deleted,
                        );
                    }
                }
                Err(WatchCacheError::TooSlow) => {
                    // Too much was missed. What went in the meantime goes with a fresh start.
                    let mut index = index.write();
                    index.clear(self.kind);
                    self.watcher = fill(&mut index, self.kind, &self.resource);
                }
                // At shutdown what is known goes on being true.
                Err(_) => return,
            }
        }
    }
}

fn fill(index: &mut Index, kind: Kind, resource: &Resource) -> Watcher {
    let everything = Selection::of(KeyScope::Resource);
    let (snapshot, watcher) = resource.cache.snapshot_and_watch(everything.clone());
    for entry in snapshot.select(&everything, &resource.prefix) {
        put(index, kind, entry, false);
    }
    watcher
}

fn put(index: &mut Index, kind: Kind, entry: &Entry, is_gone: bool) {
    let (namespace, name) = (entry.namespace().unwrap_or_default(), entry.name());
    if is_gone {
        return index.remove(kind, namespace, name);
    }
    // What cannot be read grants nothing.
    match serde_json::from_slice(&entry.unmanaged()) {
        Ok(object) => index.put(kind, namespace, name, &object),
        Err(_) => index.remove(kind, namespace, name),
    }
}

fn allowing(found: &Found<'_>, verb: &str, target: &Target<'_>) -> bool {
    found
        .rules
        .is_some_and(|rules| rules.iter().any(|rule| rule.allows(verb, target)))
}
