//! Which objects the pods of each node refer to.
//!
//! Nothing is kept until a node asks. From then on each bound pod is read once, and pods that refer
//! to the same objects share one entry. The truth is in the watch cache.
//!
//! Source: `plugin/pkg/auth/authorizer/node/graph.go` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use coracle_api::meta;
use coracle_registry::{
    resource::Resource,
    watch_cache::{Entry, EventKind, KeyScope, Selection, WatchCacheError, Watcher},
};
use coracle_store::Revision;
use parking_lot::Mutex;
use serde_json::Value;

const NODE_NAME: &str = "spec.nodeName";

/// What a pod refers to, by name, in its own namespace.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct References {
    /// The ServiceAccount.
    pub account: Box<str>,
    /// Secrets, wherever they are named.
    pub secrets: Box<[Box<str>]>,
    /// ConfigMaps.
    pub config_maps: Box<[Box<str>]>,
    /// PersistentVolumeClaims, those of ephemeral volumes too.
    pub claims: Box<[Box<str>]>,
    /// ResourceClaims.
    pub resource_claims: Box<[Box<str>]>,
}

/// A pod on a node.
struct Placed {
    references: Arc<References>,
    /// Tells a pod from an earlier one of the same name.
    created: Revision,
}

/// The pods of each node, by key.
#[derive(Default)]
struct Placements {
    nodes: HashMap<Box<str>, HashMap<Box<str>, Placed>>,
    shared: HashSet<Arc<References>>,
}

/// From nodes to what their pods refer to.
pub(super) struct Graph {
    pods: Arc<Resource>,
    state: Mutex<(Placements, Option<Watcher>)>,
}

impl Graph {
    pub(super) fn new(pods: &Arc<Resource>) -> Self {
        Self {
            pods: Arc::clone(pods),
            state: Mutex::default(),
        }
    }

    /// Whether a pod on `node` in `namespace` refers to something, as `refers` says.
    pub(super) fn is_related(
        &self,
        node: &str,
        namespace: &str,
        refers: impl Fn(&References) -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        let (placements, watcher) = &mut *state;
        let scope = format!("{}{namespace}/", self.pods.prefix);
        let related = |placements: &Placements| {
            placements.nodes.get(node).is_some_and(|pods| {
                pods.iter().any(|(key, placed)| {
                    key.starts_with(scope.as_str()) && refers(&placed.references)
                })
            })
        };
        if watcher.is_some() && related(placements) {
            // Perhaps not any more.
            if !watcher.as_ref().is_some_and(Watcher::has_news) {
                return true;
            }
        }
        self.take_changes(placements, watcher);
        related(placements)
    }

    fn take_changes(&self, placements: &mut Placements, watcher: &mut Option<Watcher>) {
        let Some(feed) = watcher else {
            *watcher = Some(self.fill(placements));
            return;
        };
        loop {
            match feed.drain() {
                Ok(deliveries) if deliveries.is_empty() => return,
                Ok(deliveries) => {
                    for delivery in deliveries {
                        if delivery.kind == EventKind::Deleted {
                            placements.remove(&delivery.entry);
                        } else {
                            placements.put(&delivery.entry);
                        }
                    }
                }
                Err(WatchCacheError::TooSlow) => *feed = self.fill(placements),
                Err(_) => return,
            }
        }
    }

    /// Starts over; pods that are known need not be read again.
    fn fill(&self, placements: &mut Placements) -> Watcher {
        let everything = Selection::of(KeyScope::Resource);
        let (snapshot, watcher) = self.pods.cache.snapshot_and_watch(everything.clone());
        for pods in placements.nodes.values_mut() {
            pods.retain(|key, placed| {
                snapshot
                    .get(key)
                    .is_some_and(|entry| entry.create_revision() == placed.created)
            });
        }
        placements.nodes.retain(|_, pods| !pods.is_empty());
        for entry in snapshot.select(&everything, &self.pods.prefix) {
            placements.put(entry);
        }
        watcher
    }
}

impl Placements {
    fn put(&mut self, entry: &Entry) {
        let Some(node) = entry.field(NODE_NAME).filter(|node| !node.is_empty()) else {
            return;
        };
        let known = self.nodes.get(node).and_then(|pods| pods.get(entry.key()));
        // A bound pod goes on referring to the same objects, but for containers that are put in
        // later.
        if known.is_some_and(|placed| placed.created == entry.create_revision())
            && !may_grow(&entry.unmanaged())
        {
            return;
        }
        let Ok(pod) = serde_json::from_slice::<Value>(&entry.unmanaged()) else {
            return;
        };
        // A node makes these itself: what it could read for them it would have chosen. They may
        // refer to nothing anyway; this holds should one do.
        if meta::is_mirror(&pod) {
            return;
        }
        let references = self.share(References::of(&pod));
        let placed = Placed {
            references,
            created: entry.create_revision(),
        };
        self.nodes
            .entry(node.into())
            .or_default()
            .insert(entry.key().into(), placed);
    }

    fn remove(&mut self, entry: &Entry) {
        let Some(node) = entry.field(NODE_NAME) else {
            return;
        };
        if let Some(pods) = self.nodes.get_mut(node) {
            pods.remove(entry.key());
            if pods.is_empty() {
                self.nodes.remove(node);
            }
        }
    }

    fn share(&mut self, references: References) -> Arc<References> {
        if let Some(known) = self.shared.get(&references) {
            return Arc::clone(known);
        }
        if self.shared.len() == self.shared.capacity() {
            self.shared.retain(|known| Arc::strong_count(known) > 1);
        }
        let references = Arc::new(references);
        self.shared.insert(Arc::clone(&references));
        references
    }
}

fn may_grow(json: &[u8]) -> bool {
    const WORD: &[u8] = br#""ephemeralContainers":[{"#;
    json.windows(WORD.len()).any(|window| window == WORD)
}

impl References {
    /// Of a pod.
    pub fn of(pod: &Value) -> Self {
        let account = meta::get_str(pod, &["spec", "serviceAccountName"]);
        let mut found = Found::default();
        for secret in meta::get_array(pod, &["spec", "imagePullSecrets"]) {
            found.secret(secret, &["name"]);
        }
        for volume in meta::get_array(pod, &["spec", "volumes"]) {
            found.volume(volume, meta::name(pod));
        }
        let containers = ["containers", "initContainers", "ephemeralContainers"];
        for container in containers
            .iter()
            .flat_map(|list| meta::get_array(pod, &["spec", list]))
        {
            for from in meta::get_array(container, &["envFrom"]) {
                found.secret(from, &["secretRef", "name"]);
                found.config_map(from, &["configMapRef", "name"]);
            }
            for variable in meta::get_array(container, &["env"]) {
                found.secret(variable, &["valueFrom", "secretKeyRef", "name"]);
                found.config_map(variable, &["valueFrom", "configMapKeyRef", "name"]);
            }
        }
        let mut resource_claims = Vec::new();
        for claim in meta::get_array(pod, &["spec", "resourceClaims"]) {
            push(
                &mut resource_claims,
                meta::get_str(claim, &["resourceClaimName"]),
            );
        }
        // Claims made from a template have names that only the status knows.
        for claim in meta::get_array(pod, &["status", "resourceClaimStatuses"]) {
            push(
                &mut resource_claims,
                meta::get_str(claim, &["resourceClaimName"]),
            );
        }
        Self {
            account: if account.is_empty() {
                "default"
            } else {
                account
            }
            .into(),
            secrets: found.secrets.into(),
            config_maps: found.config_maps.into(),
            claims: found.claims.into(),
            resource_claims: resource_claims.into(),
        }
    }
}

#[derive(Default)]
struct Found {
    secrets: Vec<Box<str>>,
    config_maps: Vec<Box<str>>,
    claims: Vec<Box<str>>,
}

impl Found {
    fn secret(&mut self, object: &Value, path: &[&str]) {
        push(&mut self.secrets, meta::get_str(object, path));
    }

    fn config_map(&mut self, object: &Value, path: &[&str]) {
        push(&mut self.config_maps, meta::get_str(object, path));
    }

    fn volume(&mut self, volume: &Value, pod: &str) {
        self.secret(volume, &["secret", "secretName"]);
        self.config_map(volume, &["configMap", "name"]);
        push(
            &mut self.claims,
            meta::get_str(volume, &["persistentVolumeClaim", "claimName"]),
        );
        if volume.get("ephemeral").is_some_and(Value::is_object) {
            push(
                &mut self.claims,
                &format!("{pod}-{}", meta::get_str(volume, &["name"])),
            );
        }
        for source in meta::get_array(volume, &["projected", "sources"]) {
            self.secret(source, &["secret", "name"]);
            self.config_map(source, &["configMap", "name"]);
        }
        for plugin in [
            "azureFile",
            "cephfs",
            "cinder",
            "flexVolume",
            "iscsi",
            "rbd",
            "scaleIO",
            "storageos",
        ] {
            self.secret(volume, &[plugin, "secretRef", "name"]);
        }
        self.secret(volume, &["azureFile", "secretName"]);
        self.secret(volume, &["csi", "nodePublishSecretRef", "name"]);
    }
}

fn push(names: &mut Vec<Box<str>>, name: &str) {
    if !name.is_empty() && !names.iter().any(|known| **known == *name) {
        names.push(name.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_wherever_a_pod_has_them() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"secret": {"secretName": "vol"}}, {"configMap": {"name": "cm-vol"}},
                {"projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "cm-proj"}}]}},
                {"persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            ],
            "containers": [{"envFrom": [{"secretRef": {"name": "env-all"}}, {"configMapRef": {"name": "cm-all"}}]}],
            "initContainers": [{"env": [
                {"valueFrom": {"secretKeyRef": {"name": "env-key"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "cm-key"}}},
            ]}],
        }});
        let found = References::of(&pod);
        let texts = |names: &[Box<str>]| {
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(texts(&found.secrets), "pull vol proj env-all env-key");
        assert_eq!(texts(&found.config_maps), "cm-vol cm-proj cm-all cm-key");
        assert_eq!(texts(&found.claims), "data p-scratch");
        assert_eq!(&*found.account, "default");
    }
}
