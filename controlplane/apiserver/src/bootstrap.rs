//! The objects every cluster starts with: four namespaces, two PriorityClasses, the `kubernetes`
//! Service and where it leads, the range of Services' addresses, roles; and, unless they are left
//! out, the Service for names and the StorageClass for directories of nodes.
//!
//! Level-triggered: the same function makes them at first start and repairs them later.
//!
//! Source: `pkg/controlplane/controller/{systemnamespaces,kubernetesservice}`,
//! `pkg/registry/scheduling/rest/storage_scheduling.go` at v1.37.

mod cluster_dns;
mod defaults;
mod endpoints;
mod kubernetes_service;
mod roles;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use coracle_api::{
    meta::{self, NODE_LEASE_NAMESPACE},
    status::Status,
    volume::{self, IS_DEFAULT_CLASS, local_path},
};
use coracle_registry::{
    open_namespaces,
    part::Part,
    resource::Resource,
    service_allocator::DEFAULT_SERVICE_CIDR,
    store::{Current, WriteOptions, cache_status, delete::DeleteOptions, update::UpdateTarget},
    watch_cache::KeyScope,
};
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use crate::{allocation_repair, error::ApiServerError, state::State};

const NAMESPACES: &[&str] = &[
    "default",
    "kube-system",
    "kube-public",
    NODE_LEASE_NAMESPACE,
];
const CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];
/// The ConfigMap that says that the class for directories of nodes was made.
const LOCAL_STORAGE_MADE: &str = "coracle-local-storage";
const REPAIR_PERIOD: Duration = Duration::from_secs(10);

/// Makes or repairs all of them, after the defaults of what is there. Roles and bindings only here,
/// at the start.
///
/// # Errors
/// [`ApiServerError::Bootstrap`] names the object.
pub(crate) async fn start(server: &State) -> Result<(), ApiServerError> {
    defaults::fill(server).await;
    ensure(server).await?;
    // Of what older releases have stored, before anybody is given what these have.
    let repaired = allocation_repair::once(server).await?;
    if !repaired.is_empty() {
        tracing::info!(
            found = repaired.len(),
            "what is allocated to services was not in step with them"
        );
    }
    let opened = open_namespaces::repair::repair(&server.store, &server.registry).await;
    if let Err(Status { message, .. }) = opened {
        // Such as for a full disk. What lacks then is made when it is missed.
        tracing::warn!(message, "cannot write which namespaces take new objects");
    }
    roles::ensure(server).await
}

/// Makes or repairs all but roles and bindings.
async fn ensure(server: &State) -> Result<(), ApiServerError> {
    ensure_namespaces(server).await?;
    ensure_priority_classes(server).await?;
    kubernetes_service::ensure(server).await?;
    ensure_service_cidr(server).await?;
    if server.config.dns {
        cluster_dns::ensure(server).await?;
    }
    if server.config.local_storage {
        ensure_local_storage(server).await?;
    }
    if server.config.advertise.ip().is_loopback() || server.store.backend.is_shared() {
        // Nobody but this machine reaches it there, and Endpoints may not say so. Where there may
        // be other servers, who knows them all says where the Service leads.
        return Ok(());
    }
    lead_to(server, &[server.config.advertise]).await
}

async fn ensure_namespaces(server: &State) -> Result<(), ApiServerError> {
    for name in NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure_object(server, Kind::core("namespaces"), namespace, &[]).await?;
    }
    Ok(())
}

async fn ensure_priority_classes(server: &State) -> Result<(), ApiServerError> {
    let kind = Kind::of("scheduling.k8s.io", "priorityclasses");
    for (name, value, description) in CLASSES {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description});
        ensure_object(server, kind, class, &[]).await?;
    }
    Ok(())
}

/// The class by which claims get directories of nodes, once: what an administrator makes of it
/// stays, also that it is gone. It is the default one unless there is one. Which volumes it makes
/// and how they go: ADR 24.
async fn ensure_local_storage(server: &State) -> Result<(), ApiServerError> {
    let made = Kind::core("configmaps");
    if has(server, made, LOCAL_STORAGE_MADE).await? {
        return Ok(());
    }
    let is_default = !has_default_class(server).await?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": local_path::CLASS, "annotations": {IS_DEFAULT_CLASS: is_default.to_string()}},
        "provisioner": local_path::PROVISIONER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
    });
    let kind = Kind::of("storage.k8s.io", "storageclasses");
    ensure_object(server, kind, class, &[]).await?;
    let note = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": LOCAL_STORAGE_MADE},
        "data": {"about": "The StorageClass was made, and is not made again, unless this ConfigMap is deleted."},
    });
    ensure_object(server, made, note, &[]).await
}

/// Whether there is an object of `kube-system`.
async fn has(server: &State, kind: Kind, name: &str) -> Result<bool, ApiServerError> {
    let Some(resource) = kind.resource(server) else {
        return Ok(false);
    };
    let key = resource.key("kube-system", name);
    let found = server.store.current(resource, &key).await;
    let found = found.map_err(|status| kind.failed(name, status))?;
    Ok(found.is_some())
}

/// Whether some class is the default one.
async fn has_default_class(server: &State) -> Result<bool, ApiServerError> {
    let kind = Kind::of("storage.k8s.io", "storageclasses");
    let Some(resource) = kind.resource(server) else {
        return Ok(false);
    };
    let caught_up = server.store.cache.catch_up().await;
    caught_up.map_err(|error| kind.failed("", cache_status(error)))?;
    let classes = resource.objects(KeyScope::Resource).into_iter();
    let classes: Vec<StorageClass> = classes
        .filter_map(|class| serde_json::from_value(class).ok())
        .collect();
    Ok(volume::default_class(&classes).is_some())
}

/// Has the `kubernetes` Service lead to `servers`, in the old form and in the new one.
pub(crate) async fn lead_to(server: &State, servers: &[SocketAddr]) -> Result<(), ApiServerError> {
    let Some((old, new)) = endpoints::of(servers) else {
        return Ok(());
    };
    ensure_object(server, Kind::core("endpoints"), old, &["subsets"]).await?;
    let kind = Kind::of("discovery.k8s.io", "endpointslices");
    match remove_of_another_family(server, kind, &new).await? {
        true => create(server, kind, new).await,
        false => ensure_object(server, kind, new, &["endpoints", "ports"]).await,
    }
}

/// A slice's addresses are of one family for as long as it is there. Whether it was removed.
async fn remove_of_another_family(
    server: &State,
    kind: Kind,
    wanted: &Value,
) -> Result<bool, ApiServerError> {
    let Some(resource) = kind.resource(server) else {
        return Ok(false);
    };
    let (namespace, name) = (meta::namespace(wanted), meta::name(wanted));
    let key = resource.key(namespace, name);
    let found = server.store.current(resource, &key).await;
    let found = found.map_err(|status| kind.failed(name, status))?;
    let Some(Current { object, .. }) = found else {
        return Ok(false);
    };
    if object["addressType"] == wanted["addressType"] {
        return Ok(false);
    }
    let options = DeleteOptions {
        uid: Some(meta::uid(&object).to_owned()),
        ..DeleteOptions::default()
    };
    match server
        .store
        .delete(resource, namespace, name, &options)
        .await
    {
        // Somebody was faster.
        Err(status) if !matches!(status.code, 404 | 409) => Err(kind.failed(name, status)),
        _ => Ok(true),
    }
}

/// The server's own range of Services' addresses, as an object. One that says something else stays
/// as it is: it decides, and [`allocation_repair`] tells of it.
async fn ensure_service_cidr(server: &State) -> Result<(), ApiServerError> {
    let wanted = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": DEFAULT_SERVICE_CIDR},
        "spec": {"cidrs": [server.config.service_cidr.trunc().to_string()]},
    });
    let kind = Kind::of("networking.k8s.io", "servicecidrs");
    ensure_object(server, kind, wanted.clone(), &[]).await?;
    let Some(resource) = kind.resource(server) else {
        return Ok(());
    };
    let found = server
        .store
        .current(resource, &resource.key("", DEFAULT_SERVICE_CIDR))
        .await;
    let Ok(Some(Current { object, .. })) = found else {
        return Ok(());
    };
    let is_ready = meta::get_array(&object, &["status", "conditions"])
        .iter()
        .any(|one| one["type"] == "Ready" && one["status"] != "Unknown");
    if is_ready || meta::is_terminating(&object) || object["spec"] != wanted["spec"] {
        return Ok(());
    }
    let target = UpdateTarget::own("", DEFAULT_SERVICE_CIDR, Part::Status);
    let changed = server.store.update(resource, &target, |old| {
        let mut new = old.clone();
        let ready = json!({"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": meta::now()});
        meta::set(&mut new, &["status", "conditions"], json!([ready]));
        meta::remove(&mut new, &["metadata", "resourceVersion"]);
        Ok(new)
    });
    match changed.await {
        // Somebody has deleted it meanwhile: it is made anew by the next round.
        Err(status) if status.code != 404 => Err(ApiServerError::Bootstrap {
            what: format!("status of servicecidrs {DEFAULT_SERVICE_CIDR:?}"),
            message: status.message,
        }),
        _ => Ok(()),
    }
}

/// Repairs until `server` stops.
pub(crate) async fn repair(server: Arc<State>) {
    loop {
        tokio::select! {
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(REPAIR_PERIOD) => {}
        }
        if let Err(error) = ensure(&server).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot repair what every cluster has");
        }
    }
}

/// A built-in kind at `v1`.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    plural: &'static str,
}

impl Kind {
    const fn of(group: &'static str, plural: &'static str) -> Self {
        Self { group, plural }
    }

    const fn core(plural: &'static str) -> Self {
        Self::of("", plural)
    }

    fn failed(self, name: &str, status: Status) -> ApiServerError {
        ApiServerError::Bootstrap {
            what: format!("{} {name:?}", self.plural),
            message: status.message,
        }
    }

    fn resource(self, server: &State) -> Option<&Arc<Resource>> {
        server.registry.get(self.group, "v1", self.plural)
    }
}

/// Creates the object, or puts the fields that are `owned` right if it is there, and its labels
/// with them.
async fn ensure_object(
    server: &State,
    kind: Kind,
    wanted: Value,
    owned: &[&str],
) -> Result<(), ApiServerError> {
    let fail = |status: Status| kind.failed(meta::name(&wanted), status);
    let Some(resource) = kind.resource(server) else {
        return Ok(());
    };
    let (namespace, name) = (meta::namespace(&wanted), meta::name(&wanted).to_owned());
    let current = server
        .store
        .current(resource, &resource.key(namespace, &name))
        .await
        .map_err(fail)?;
    let Some(current) = current else {
        return create(server, kind, wanted).await;
    };
    if is_right(&current.object, &wanted, owned) {
        return Ok(());
    }
    let target = UpdateTarget::own(namespace, &name, Part::Main);
    let changed = server.store.update(resource, &target, |old| {
        let mut new = old.clone();
        for field in owned {
            new[*field] = wanted[*field].clone();
        }
        for (label, value) in labels(&wanted) {
            meta::set(&mut new, &["metadata", "labels", label], value.clone());
        }
        // Whoever else writes meanwhile: this is put right after them.
        meta::remove(&mut new, &["metadata", "resourceVersion"]);
        Ok(new)
    });
    changed.await.map(|_| ()).map_err(fail)
}

async fn create(server: &State, kind: Kind, wanted: Value) -> Result<(), ApiServerError> {
    let Some(resource) = kind.resource(server) else {
        return Ok(());
    };
    let (namespace, name) = (
        meta::namespace(&wanted).to_owned(),
        meta::name(&wanted).to_owned(),
    );
    let options = WriteOptions::default();
    let created = server.store.create(resource, &namespace, wanted, options);
    match created.await {
        // Somebody was faster. The next round looks at what they made.
        Err(status) if status.code != 409 => Err(kind.failed(&name, status)),
        _ => Ok(()),
    }
}

/// Whether nothing of an object has to be put right. Labels that others have added may stay.
fn is_right(present: &Value, wanted: &Value, owned: &[&str]) -> bool {
    let has = |field: &&str| contains(&present[*field], &wanted[*field]);
    let is_labelled = |(label, value): (&String, &Value)| {
        present["metadata"]["labels"].get(label.as_str()) == Some(value)
    };
    owned.is_empty() || (owned.iter().all(has) && labels(wanted).all(is_labelled))
}

fn labels(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let labels = object["metadata"]["labels"].as_object();
    labels.into_iter().flatten()
}

/// Whether `present` says everything that `wanted` says; defaults may have been added.
fn contains(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            present
                .get(key)
                .is_some_and(|present| contains(present, value))
        }),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(a, b)| contains(a, b))
        }
        (present, wanted) => present == wanted,
    }
}
