//! Who owns whom, over all kinds, and what a change of that calls for. Pure.
//!
//! An owner that is named but was never seen stands in the graph as a virtual node until the server
//! is asked.
//!
//! Source: `pkg/controller/garbagecollector/{graph,graph_builder}.go` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// The uid of an object.
pub(super) type Uid = Arc<str>;

/// Where an object is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// API group and kind; shared by all objects of the kind.
    pub(super) kind: Arc<(String, String)>,
    /// Empty for cluster-wide kinds.
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

/// What has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// Is it still owned? Or does it wait for its dependents to go?
    Delete(Uid),
    /// Its dependents are to be let go.
    Orphan(Uid),
}

#[derive(Debug, Clone)]
struct Owner {
    uid: Uid,
    blocks: bool,
}

#[derive(Debug)]
struct Node {
    place: Place,
    owners: Vec<Owner>,
    dependents: HashSet<Uid>,
    /// Has a deletion timestamp.
    deleting: bool,
    /// Is deleted once its blocking dependents are gone.
    deleting_dependents: bool,
    /// Is deleted once its dependents are let go.
    orphaning: bool,
    /// Known from references alone.
    is_virtual: bool,
    /// A virtual one of which it is known that it does not exist.
    is_gone: bool,
    /// Its deletion was seen.
    was_deleted: bool,
    /// How often the server has shown a virtual one that no watch shows.
    asked: u32,
}

/// A copy of what a worker needs to know about an object.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) place: Place,
    pub(super) deleting: bool,
    pub(super) deleting_dependents: bool,
    pub(super) is_virtual: bool,
    pub(super) dependents: Vec<Uid>,
    /// Dependents that keep a foreground deletion waiting, and whether each is in one itself.
    pub(super) blocking: Vec<(Uid, bool)>,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    kinds: HashSet<Arc<(String, String)>>,
}

impl Graph {
    /// The namespace of an object that was seen.
    pub(super) fn namespace(&self, uid: &str) -> Option<Box<str>> {
        self.nodes
            .get(uid)
            .filter(|node| !node.is_virtual)
            .map(|node| node.place.namespace.clone())
    }

    /// One shared value a kind.
    pub(super) fn kind(&mut self, group: &str, kind: &str) -> Arc<(String, String)> {
        let key = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.kinds.get(&key) {
            return known.clone();
        }
        let shared = Arc::new(key);
        self.kinds.insert(shared.clone());
        shared
    }

    /// Takes in an object as it is now.
    pub(super) fn observe(&mut self, place: Place, meta: &ObjectMeta) -> Vec<Work> {
        let Some(uid) = meta.uid.as_deref().map(Uid::from) else {
            return Vec::new();
        };
        let has = |finalizer: &str| {
            meta.finalizers
                .iter()
                .flatten()
                .any(|present| present == finalizer)
        };
        let deleting = meta.deletion_timestamp.is_some();
        let (foreground, orphaning) = (deleting && has(FOREGROUND), deleting && has(ORPHAN));
        let references = meta.owner_references.as_deref().unwrap_or_default();

        let mut work = self.link(&uid, &place, references);
        let node = self
            .nodes
            .entry(uid.clone())
            .or_insert_with(|| Node::unseen(place.clone()));
        node.place = place;
        (node.is_virtual, node.is_gone, node.asked) = (false, false, 0);
        node.was_deleted = false;
        node.deleting = deleting;
        if orphaning && !node.orphaning {
            work.push(Work::Orphan(uid.clone()));
        }
        if foreground && !node.deleting_dependents {
            work.extend(node.dependents.iter().cloned().map(Work::Delete));
            work.push(Work::Delete(uid.clone()));
        }
        node.orphaning = orphaning;
        node.deleting_dependents = foreground;
        work
    }

    /// Renews the edges from an object to its owners.
    fn link(&mut self, uid: &Uid, place: &Place, references: &[OwnerReference]) -> Vec<Work> {
        let mut work = Vec::new();
        let before = self
            .nodes
            .get_mut(uid)
            .map(|node| std::mem::take(&mut node.owners))
            .unwrap_or_default();
        let mut owners = Vec::with_capacity(references.len());
        for reference in references {
            let owner_uid: Uid = reference.uid.as_str().into();
            owners.push(Owner {
                uid: owner_uid.clone(),
                blocks: reference.block_owner_deletion == Some(true),
            });
            if !self.nodes.contains_key(&owner_uid) {
                let (group, _) = reference.api_version.rsplit_once('/').unwrap_or(("", ""));
                let kind = self.kind(group, &reference.kind);
                // The namespace is a guess: a cluster-wide owner is found without it.
                let at = Place {
                    kind,
                    namespace: place.namespace.clone(),
                    name: reference.name.as_str().into(),
                };
                self.nodes.insert(owner_uid.clone(), Node::unseen(at));
                work.push(Work::Delete(owner_uid.clone()));
            }
            let Some(owner) = self.nodes.get_mut(&owner_uid) else {
                continue;
            };
            let new = owner.dependents.insert(uid.clone());
            // A reference to what is gone, or to another object than the one of that uid, holds
            // nothing.
            let holds = if owner.is_virtual {
                !owner.is_gone
            } else {
                is_meant(&owner.place, reference, &place.namespace)
            };
            if new && (owner.deleting_dependents || !holds) {
                work.push(Work::Delete(uid.clone()));
            }
        }
        for former in before {
            let now = owners.iter().find(|owner| owner.uid == former.uid);
            if now.is_none()
                && let Some(owner) = self.nodes.get_mut(&former.uid)
            {
                owner.dependents.remove(uid);
                if owner.is_virtual && owner.dependents.is_empty() {
                    self.nodes.remove(&former.uid);
                }
            }
            // An owner that waits for its dependents may wait for one less.
            let no_longer_blocks = former.blocks && now.is_none_or(|owner| !owner.blocks);
            if no_longer_blocks
                && self
                    .nodes
                    .get(&former.uid)
                    .is_some_and(|owner| owner.deleting_dependents)
            {
                work.push(Work::Delete(former.uid.clone()));
            }
        }
        if !owners.is_empty() || self.nodes.contains_key(uid) {
            self.nodes
                .entry(uid.clone())
                .or_insert_with(|| Node::unseen(place.clone()))
                .owners = owners;
        }
        work
    }

    /// Takes in that an object is gone. It stays known for as long as others name it: should it be
    /// seen again (its kind was away, or only a reference to it was wrong), its end still means
    /// theirs.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Work> {
        let Some((uid, mut node)) = self.nodes.remove_entry(uid) else {
            return Vec::new();
        };
        let mut work: Vec<Work> = node.dependents.iter().cloned().map(Work::Delete).collect();
        for owner in std::mem::take(&mut node.owners) {
            let Some(owner_node) = self.nodes.get_mut(&owner.uid) else {
                continue;
            };
            owner_node.dependents.remove(&uid);
            if owner_node.deleting_dependents {
                work.push(Work::Delete(owner.uid));
            } else if owner_node.is_virtual && owner_node.dependents.is_empty() {
                self.nodes.remove(&owner.uid);
            }
        }
        node.dependents.remove(&uid);
        if !node.dependents.is_empty() {
            let gone = Node {
                dependents: node.dependents,
                is_gone: true,
                ..Node::unseen(node.place)
            };
            self.nodes.insert(uid, gone);
        }
        work
    }

    /// The same of one whose deletion was seen: it is gone also where nobody serves its kind any
    /// more.
    pub(super) fn delete(&mut self, uid: &str) -> Vec<Work> {
        let work = self.remove(uid);
        if let Some(gone) = self.nodes.get_mut(uid) {
            gone.was_deleted = true;
        }
        work
    }

    /// Whether the deletion of an object that others name was seen.
    pub(super) fn was_deleted(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.was_deleted)
    }

    /// Takes in that the server has nothing at `place`. An object of this uid that was seen
    /// elsewhere meanwhile stays.
    pub(super) fn absent(&mut self, uid: &str, place: &Place) -> Vec<Work> {
        if self.nodes.get(uid).is_some_and(|node| node.place == *place) {
            self.remove(uid)
        } else {
            Vec::new()
        }
    }

    /// Counts that the server has shown a virtual object; how often it did before.
    pub(super) fn ask_again(&mut self, uid: &str) -> u32 {
        let Some(node) = self.nodes.get_mut(uid) else {
            return 0;
        };
        node.asked = node.asked.saturating_add(1);
        node.asked - 1
    }

    /// Whether one of these objects is deleted once its blocking dependents are gone.
    pub(super) fn any_deletes_dependents(&self, uids: &[Uid]) -> bool {
        uids.iter()
            .filter_map(|uid| self.nodes.get(uid))
            .any(|node| node.deleting_dependents)
    }

    /// What is known about an object.
    pub(super) fn snapshot(&self, uid: &str) -> Option<Snapshot> {
        let (key, node) = self.nodes.get_key_value(uid)?;
        let blocks = |dependent: &Node| {
            dependent
                .owners
                .iter()
                .any(|owner| owner.uid == *key && owner.blocks)
        };
        let blocking = node.dependents.iter().filter_map(|dependent| {
            let there = self.nodes.get(dependent)?;
            blocks(there).then(|| (dependent.clone(), there.deleting_dependents))
        });
        Some(Snapshot {
            place: node.place.clone(),
            deleting: node.deleting,
            deleting_dependents: node.deleting_dependents,
            is_virtual: node.is_virtual,
            dependents: node.dependents.iter().cloned().collect(),
            blocking: blocking.collect(),
        })
    }
}

/// Whether `reference`, from an object in `namespace`, means the object at `place`.
fn is_meant(place: &Place, reference: &OwnerReference, namespace: &str) -> bool {
    let (group, _) = reference.api_version.rsplit_once('/').unwrap_or(("", ""));
    *place.kind == (group.to_owned(), reference.kind.clone())
        && *place.name == *reference.name
        && (place.namespace.is_empty() || *place.namespace == *namespace)
}

impl Node {
    fn unseen(place: Place) -> Self {
        Self {
            place,
            owners: Vec::new(),
            dependents: HashSet::new(),
            deleting: false,
            deleting_dependents: false,
            orphaning: false,
            is_virtual: true,
            is_gone: false,
            was_deleted: false,
            asked: 0,
        }
    }
}
