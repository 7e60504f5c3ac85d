//! What the garbage collector takes and leaves, also while it cannot see everything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use coracle_controllers::{CertificateAuthority, ControllersConfig};
use coracle_telemetry::metrics::MetricsRegistry;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::cluster::Cluster;

/// Runs all controllers. `passes` sees the path of each request of the collector, and may wait;
/// what it does not let pass is answered 503. Returns what the controllers count.
async fn run_with_collector_client<F>(
    cluster: &Cluster,
    authorities: [CertificateAuthority; 2],
    passes: impl Fn(String) -> F + Clone + Send + Sync + 'static,
) -> MetricsRegistry
where
    F: Future<Output = bool> + Send + 'static,
{
    let metrics = MetricsRegistry::default();
    let counted = metrics.clone();
    let adjust = |config: &mut ControllersConfig| {
        config.initial_sync_timeout = Duration::ZERO;
        config.metrics = counted;
    };
    let wrap = move |account: &str, client: Client| {
        if account != "generic-garbage-collector" {
            return client;
        }
        let passes = passes.clone();
        let narrowed = tower::service_fn(move |request: Request<Body>| {
            let (client, passes) = (client.clone(), passes(request.uri().path().to_owned()));
            async move {
                if passes.await {
                    return client.send(request).await;
                }
                let refused = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
                Ok(refused.body(Body::empty()).unwrap())
            }
        });
        Client::new(narrowed, "default")
    };
    cluster.run_controllers(authorities, adjust, wrap).await;
    metrics
}

/// How often a queue of the controllers has taken something up again that failed.
pub(crate) fn retries(metrics: &MetricsRegistry, queue: &str) -> u64 {
    let start = format!("workqueue_retries_total{{name=\"{queue}\"}} ");
    let text = metrics.text();
    text.lines()
        .find_map(|line| line.strip_prefix(&start))
        .map_or(0, |number| number.parse().unwrap())
}

/// The collector finds the owner at its start, long before it can see who depends on it, and does
/// not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_that_are_listed_late_are_orphaned_all_the_same() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let owner: ConfigMap = cluster
        .create(
            "default",
            json!({"metadata": {"name": "owner", "finalizers": ["example.org/hold"]}}),
        )
        .await;
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid()}]}});
    cluster.create::<Secret>("default", owned).await;
    cluster
        .api::<ConfigMap>("default")
        .delete("owner", &DeleteParams::orphan())
        .await
        .unwrap();
    let listed = Arc::new(Semaphore::new(0));
    let gate = listed.clone();
    let late = move |path: String| {
        let gate = gate.clone();
        async move {
            if path == "/api/v1/secrets" {
                gate.acquire().await.unwrap().forget();
            }
            true
        }
    };
    let metrics = run_with_collector_client(&cluster, authorities, late).await;
    let finalizers = || async {
        cluster
            .get_opt::<ConfigMap>("default", "owner")
            .await
            .unwrap()
            .metadata
            .finalizers
            .unwrap()
    };
    // It has tried more than once by then.
    cluster
        .wait("tries to let go", || async {
            retries(&metrics, "garbage_collector_attempt_to_orphan") >= 3
        })
        .await;
    assert!(
        finalizers().await.contains(&"orphan".to_owned()),
        "{:?}",
        finalizers().await
    );
    listed.add_permits(100);
    cluster
        .wait("the owner to be let go", || async {
            !finalizers().await.contains(&"orphan".to_owned())
        })
        .await;
    let owned = cluster.get_opt::<Secret>("default", "owned").await.unwrap();
    assert!(owned.owner_references().is_empty() && owned.metadata.deletion_timestamp.is_none());
}

/// Secrets cannot be listed, ever; of one of them not even is known whether it exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_cannot_be_listed_keeps_no_garbage_and_loses_nothing() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let alive: Secret = cluster
        .create("default", json!({"metadata": {"name": "alive"}}))
        .await;
    let hidden: Secret = cluster
        .create("default", json!({"metadata": {"name": "hidden"}}))
        .await;
    let ghost = "7d0e5f0e-0000-4000-8000-000000000000".to_owned();
    for (owner, uid) in [
        ("ghost", Some(ghost)),
        ("alive", alive.uid()),
        ("hidden", hidden.uid()),
    ] {
        let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid});
        let name = format!("of-{owner}");
        let owned = json!({"metadata": {"name": name, "ownerReferences": [reference]}});
        cluster.create::<ConfigMap>("default", owned).await;
    }
    cluster
        .api::<Secret>("default")
        .delete("hidden", &DeleteParams::default())
        .await
        .unwrap();
    let answers = Arc::new(AtomicBool::new(false));
    let answered = answers.clone();
    let broken = move |path: String| {
        let hides = path.ends_with("/secrets/hidden") && !answered.load(Ordering::Relaxed);
        std::future::ready(path != "/api/v1/secrets" && !hides)
    };
    let metrics = run_with_collector_client(&cluster, authorities, broken).await;
    let there = |name: &'static str| {
        let cluster = &cluster;
        async move {
            cluster
                .get_opt::<ConfigMap>("default", name)
                .await
                .is_some()
        }
    };
    cluster
        .wait("collection", || async { !there("of-ghost").await })
        .await;
    cluster
        .wait("tries to ask", || async {
            retries(&metrics, "garbage_collector_attempt_to_delete") >= 5
        })
        .await;
    assert!(there("of-alive").await && there("of-hidden").await);
    answers.store(true, Ordering::Relaxed);
    cluster
        .wait("an answer", || async { !there("of-hidden").await })
        .await;
    assert!(there("of-alive").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_with_an_absent_owner_is_collected() {
    let cluster = Cluster::start().await;
    let owned = json!({"metadata": {"name": "lost", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Secret", "name": "ghost", "uid": "7d0e5f0e-0000-4000-8000-000000000000"}]}});
    cluster.create::<ConfigMap>("default", owned).await;
    cluster
        .create::<ConfigMap>("default", json!({"metadata": {"name": "kept"}}))
        .await;
    cluster
        .wait("collection", || async {
            cluster
                .get_opt::<ConfigMap>("default", "lost")
                .await
                .is_none()
        })
        .await;
    assert!(
        cluster
            .get_opt::<ConfigMap>("default", "kept")
            .await
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_with_one_living_owner_stays_and_loses_the_other_reference() {
    let cluster = Cluster::start().await;
    let owner: Secret = cluster
        .create("default", json!({"metadata": {"name": "alive"}}))
        .await;
    let owned = json!({"metadata": {"name": "shared", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Secret", "name": "ghost", "uid": "7d0e5f0e-0000-4000-8000-000000000000"},
        {"apiVersion": "v1", "kind": "Secret", "name": "alive", "uid": owner.uid()}]}});
    cluster.create::<ConfigMap>("default", owned).await;
    cluster
        .wait("the dead reference to go", || async {
            let shared: ConfigMap = cluster.get_opt("default", "shared").await.unwrap();
            shared
                .owner_references()
                .iter()
                .map(|owner| owner.name.as_str())
                .eq(["alive"])
        })
        .await;
}

const GHOST: &str = "7d0e5f0e-0000-4000-8000-000000000000";

fn reference(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid})
}

/// Secret `ghost` is asked for as the owner of ConfigMap `owned` and is not there; each time, once
/// the object itself was read, `change` happens to it, which may name the uid of a Secret `alive`.
async fn collect_amid_a_change(
    change: impl Fn(&str, usize) -> Value + Send + Sync + 'static,
) -> Cluster {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let alive: Secret = cluster
        .create("default", json!({"metadata": {"name": "alive"}}))
        .await;
    let alive: Arc<str> = alive.uid().unwrap().into();
    let owned =
        json!({"metadata": {"name": "owned", "ownerReferences": [reference("ghost", GHOST)]}});
    cluster.create::<ConfigMap>("default", owned).await;
    let api = cluster.api::<ConfigMap>("default");
    let (change, read) = (Arc::new(change), Arc::new(AtomicUsize::new(0)));
    let changes = move |path: String| {
        let (api, alive, change, read) = (api.clone(), alive.clone(), change.clone(), read.clone());
        async move {
            if path.ends_with("/configmaps/owned") {
                read.fetch_add(1, Ordering::Relaxed);
            }
            let times = read.load(Ordering::Relaxed);
            if path.ends_with("/secrets/ghost") && times > 0 {
                let patch = Patch::Merge(change(&alive, times));
                // Nobody minds if it is gone by then.
                let _ = api.patch("owned", &PatchParams::default(), &patch).await;
            }
            true
        }
    };
    run_with_collector_client(&cluster, authorities, changes).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_gets_a_living_owner_at_the_last_moment_stays() {
    let cluster = collect_amid_a_change(|alive, _| {
        json!({"metadata": {"ownerReferences": [reference("ghost", GHOST), reference("alive", alive)]}})
    })
    .await;
    cluster
        .wait("the dead reference to go", || async {
            let owned: Option<ConfigMap> = cluster.get_opt("default", "owned").await;
            let owned = owned.expect("its owner lives");
            let owners = owned.owner_references().iter();
            owners.map(|owner| owner.name.as_str()).eq(["alive"])
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_changes_all_the_time_is_collected_all_the_same() {
    let cluster =
        collect_amid_a_change(|_, times| json!({"data": {"times": times.to_string()}})).await;
    cluster
        .wait("collection", || async {
            cluster
                .get_opt::<ConfigMap>("default", "owned")
                .await
                .is_none()
        })
        .await;
}
