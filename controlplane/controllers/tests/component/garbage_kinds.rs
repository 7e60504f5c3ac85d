//! Owners of kinds that come and go: what stays, what goes, and when.

use std::{sync::Arc, time::Duration};

use coracle_controllers::{CertificateAuthority, ControllersConfig};
use coracle_telemetry::metrics::MetricsRegistry;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{cluster::Cluster, garbage::retries};

const GHOST: &str = "7d0e5f0e-0000-4000-8000-000000000000";
const DEFINITION: &str = "widgets.example.org";

fn widgets() -> ApiResource {
    ApiResource {
        group: "example.org".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.org/v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    }
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    let api_version = if kind == "Widget" {
        "example.org/v1"
    } else {
        "v1"
    };
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

/// A server whose definitions are kept, without controllers.
async fn cluster() -> (Cluster, [CertificateAuthority; 2]) {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let keeping = Arc::clone(&cluster.server).keep_definitions(cluster.shutdown.clone());
    coracle_telemetry::spawn("keep definitions", keeping);
    (cluster, authorities)
}

/// Runs the controllers, which look for new kinds all the time; returns what they count.
async fn collect(cluster: &Cluster, authorities: [CertificateAuthority; 2]) -> MetricsRegistry {
    let metrics = MetricsRegistry::default();
    let counted = metrics.clone();
    let adjust = |config: &mut ControllersConfig| {
        config.discovery_period = Duration::from_millis(100);
        config.metrics = counted;
    };
    cluster
        .run_controllers(authorities, adjust, |_, client| client)
        .await;
    metrics
}

fn definitions(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client.clone())
}

async fn define(cluster: &Cluster) {
    let definition = json!({"metadata": {"name": DEFINITION}, "spec": {
        "group": "example.org", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definition = serde_json::from_value(definition).unwrap();
    let definitions = definitions(cluster);
    let params = PostParams::default();
    definitions.create(&params, &definition).await.unwrap();
    let is_established = || async {
        let definition = definitions.get(DEFINITION).await.unwrap();
        let conditions = json!(definition.status)["conditions"].clone();
        let mut all = conditions.as_array().into_iter().flatten();
        all.any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    cluster.wait("an established kind", is_established).await;
}

async fn withdraw(cluster: &Cluster) {
    let definitions = definitions(cluster);
    let params = DeleteParams::default();
    definitions.delete(DEFINITION, &params).await.unwrap();
    let is_gone = || async { definitions.get_opt(DEFINITION).await.unwrap().is_none() };
    cluster.wait("the definition to go", is_gone).await;
}

async fn widget(cluster: &Cluster, name: &str) -> String {
    let api = Api::<DynamicObject>::namespaced_with(cluster.client.clone(), "default", &widgets());
    let object = DynamicObject::new(name, &widgets());
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    made.uid().unwrap()
}

async fn owned(cluster: &Cluster, name: &str, owners: &[Value]) {
    let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
    cluster.create::<ConfigMap>("default", object).await;
}

/// Returns once the collector has seen all that was made before: it takes what comes after it.
async fn seen_by_the_collector(cluster: &Cluster) {
    let uid = widget(cluster, "last").await;
    let mut of_last = owner("Widget", "last", &uid);
    of_last["blockOwnerDeletion"] = true.into();
    owned(cluster, "of-last", &[of_last]).await;
    let api = Api::<DynamicObject>::namespaced_with(cluster.client.clone(), "default", &widgets());
    let params = DeleteParams::foreground();
    api.delete("last", &params).await.unwrap();
    cluster
        .wait("the collector to see it", || async {
            let last = api.get_opt("last").await.unwrap();
            last.is_none() && !is_there(cluster, "of-last").await
        })
        .await;
}

async fn is_there(cluster: &Cluster, name: &str) -> bool {
    let found: Option<ConfigMap> = cluster.get_opt("default", name).await;
    found.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_custom_object_owned_goes_with_its_definition() {
    let (cluster, authorities) = cluster().await;
    define(&cluster).await;
    collect(&cluster, authorities).await;
    let gone = widget(&cluster, "gone").await;
    let alive: Secret = cluster
        .create("default", json!({"metadata": {"name": "alive"}}))
        .await;
    let one = owner("Widget", "gone", &gone);
    let other = owner("Secret", "alive", &alive.uid().unwrap());
    owned(&cluster, "alone", std::slice::from_ref(&one)).await;
    owned(&cluster, "shared", &[one, other]).await;
    seen_by_the_collector(&cluster).await;
    withdraw(&cluster).await;
    cluster
        .wait("collection", || async {
            !is_there(&cluster, "alone").await
        })
        .await;
    cluster
        .wait("the dead reference to go", || async {
            let shared: Option<ConfigMap> = cluster.get_opt("default", "shared").await;
            let shared = shared.expect("its other owner lives");
            let owners = shared.owner_references().iter();
            owners.map(|owner| owner.name.as_str()).eq(["alive"])
        })
        .await;
}

/// Nobody has seen what became of the owner: it may be there again with its kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_names_a_kind_that_nobody_serves_stays_until_somebody_does() {
    let (cluster, authorities) = cluster().await;
    define(&cluster).await;
    let before = widget(&cluster, "before").await;
    owned(&cluster, "of-before", &[owner("Widget", "before", &before)]).await;
    owned(&cluster, "of-ghost", &[owner("Widget", "ghost", GHOST)]).await;
    withdraw(&cluster).await;
    let metrics = collect(&cluster, authorities).await;
    cluster
        .wait("tries to ask", || async {
            retries(&metrics, "garbage_collector_attempt_to_delete") >= 8
        })
        .await;
    assert!(is_there(&cluster, "of-before").await && is_there(&cluster, "of-ghost").await);
    define(&cluster).await;
    for name in ["of-before", "of-ghost"] {
        cluster
            .wait("an answer", || async { !is_there(&cluster, name).await })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_owned_from_the_first_moment_of_a_kind_stays_with_its_owner() {
    let (cluster, authorities) = cluster().await;
    collect(&cluster, authorities).await;
    define(&cluster).await;
    let uid = widget(&cluster, "owner").await;
    owned(&cluster, "owned", &[owner("Widget", "owner", &uid)]).await;
    owned(&cluster, "of-ghost", &[owner("Widget", "ghost", GHOST)]).await;
    cluster
        .wait("collection", || async {
            !is_there(&cluster, "of-ghost").await
        })
        .await;
    assert!(is_there(&cluster, "owned").await);
}
