//! Defaults that this release knows and the one that stored an object did not.
//!
//! Defaults are filled in on every write. An object that was written before a default existed would
//! get it with the next write of anybody, and whoever compares templates would see a change that
//! nobody made: every Deployment would roll out by itself some time after an upgrade. So the
//! objects that hold templates get them all together, before the first request. What is written
//! keeps its generation: nobody has asked for anything new.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer/versioning` (upstream fills defaults in on
//! every read) at v1.37.

use coracle_api::status::Status;
use coracle_registry::{part::Part, resource::Resource, store::update::UpdateTarget};
use serde_json::Value;

use crate::state::State;

/// The kinds that hold a template of what others run.
const TEMPLATES: [(&str, &str, &str); 7] = [
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("apps", "v1", "statefulsets"),
    ("apps", "v1", "daemonsets"),
    ("", "v1", "replicationcontrollers"),
    ("batch", "v1", "jobs"),
    ("batch", "v1", "cronjobs"),
];

/// Writes the defaults that stored objects lack. One that cannot be written is told of, and stays
/// as it is.
pub(super) async fn fill(server: &State) {
    for (group, version, plural) in TEMPLATES {
        let Some(resource) = server.registry.get(group, version, plural) else {
            continue;
        };
        let mut filled = 0_usize;
        for (namespace, name) in lacking(resource) {
            match fill_one(server, resource, &namespace, &name).await {
                Ok(()) => filled += 1,
                Err(status) => {
                    let message = status.message;
                    tracing::warn!(
                        plural,
                        namespace,
                        name,
                        message,
                        "cannot fill new defaults in"
                    );
                }
            }
        }
        if filled > 0 {
            tracing::info!(
                plural,
                filled,
                "filled in defaults that are new in this release"
            );
        }
    }
}

/// Namespaces and names of the objects in which a default is missing.
fn lacking(resource: &Resource) -> Vec<(String, String)> {
    let snapshot = resource.cache.snapshot();
    let lacks = |json: &[u8]| {
        // What cannot be decoded is told of by whoever reads it.
        let Ok(stored) = serde_json::from_slice::<Value>(json) else {
            return false;
        };
        let mut full = stored.clone();
        resource.strategy.default(&mut full);
        full != stored
    };
    let entries = snapshot
        .from_key(&resource.prefix)
        .filter(|entry| lacks(&entry.json_bytes()));
    entries
        .map(|entry| {
            (
                entry.namespace().unwrap_or_default().to_owned(),
                entry.name().to_owned(),
            )
        })
        .collect()
}

async fn fill_one(
    server: &State,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let fill = |stored: &Value| {
        let mut full = stored.clone();
        resource.strategy.default(&mut full);
        Ok(full)
    };
    server
        .store
        .update(
            resource,
            &UpdateTarget::own(namespace, name, Part::Internal),
            fill,
        )
        .await
        .map(drop)
}
