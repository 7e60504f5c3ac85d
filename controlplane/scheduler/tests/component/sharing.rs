//! What one tenant's pods cost is not for another's to wait for.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};

const CROWD: usize = 300;
const HOSTILE: usize = 6;
const TERMS: usize = 1_500;

/// Terms that mean nobody, and none is another's equal.
fn terms() -> Value {
    let one = |number: usize| {
        let app =
            json!({"key": "app", "operator": "NotIn", "values": [format!("nobodys-{number}")]});
        let crowd = json!({"key": "crowd", "operator": "DoesNotExist"});
        json!({"labelSelector": {"matchExpressions": [app, crowd]}, "topologyKey": "zone"})
    };
    (0..TERMS).map(one).collect()
}

async fn add(cluster: &Cluster, namespace: &str, pod: Value) {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(pod).unwrap(),
    )
    .await
    .unwrap();
}

/// A node that others' pods of many kinds are on, and pods with thousands of terms that fit
/// nowhere.
async fn hostile_cluster() -> Cluster {
    let cluster = Cluster::start().await;
    cluster
        .add_node("n", json!({"cpu": "1", "memory": "1Gi", "pods": "999"}))
        .await;
    cluster
        .patch_node("n", json!({"metadata": {"labels": {"zone": "z"}}}))
        .await;
    let other: Namespace = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    Api::all(cluster.client.clone())
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::namespaced(cluster.client.clone(), "other")
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    for number in 0..CROWD {
        let labels = json!({"app": format!("app-{number}"), "crowd": "yes"});
        cluster
            .add_labelled_pod(&format!("crowd-{number}"), labels, json!({"nodeName": "n"}))
            .await;
    }
    wait("the crowd to be known", || async {
        cluster.figure("scheduler_cache_size", "type=\"pods\"") == CROWD
    })
    .await;
    let nobody =
        json!({"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "zone"});
    let affinity = json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms()},
    });
    for number in 0..HOSTILE {
        cluster
            .add_labelled_pod(
                &format!("hostile-{number}"),
                json!({"a": "0"}),
                json!({"affinity": affinity}),
            )
            .await;
    }
    for number in 0..HOSTILE {
        let why = cluster.refused(&format!("hostile-{number}")).await;
        assert_eq!(
            why,
            "0/1 nodes are available: 1 node(s) didn't match pod affinity rules. \
             preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        );
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_with_thousands_of_terms_keep_nobody_elses_waiting() {
    let cluster = hostile_cluster().await;
    let patches = AtomicUsize::new(0);
    let relabel = async {
        for round in 0.. {
            for number in 0..HOSTILE {
                let patch =
                    Patch::Merge(json!({"metadata": {"labels": {"a": format!("{round}")}}}));
                cluster
                    .pods()
                    .patch(
                        &format!("hostile-{number}"),
                        &PatchParams::default(),
                        &patch,
                    )
                    .await
                    .unwrap();
                patches.fetch_add(1, SeqCst);
            }
        }
    };
    let begun = Instant::now();
    let place = async {
        let others: Api<Pod> = Api::namespaced(cluster.client.clone(), "other");
        for number in 0..5 {
            let name = format!("p{number}");
            let spec = json!({"containers": [{"name": "c", "image": "i"}]});
            add(
                &cluster,
                "other",
                json!({"metadata": {"name": name}, "spec": spec}),
            )
            .await;
            wait(&format!("{name} to be placed"), || async {
                others
                    .get(&name)
                    .await
                    .unwrap()
                    .spec
                    .unwrap()
                    .node_name
                    .is_some()
            })
            .await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        () = relabel => {}
        () = place => {}
    }
    let patches = patches.load(SeqCst);
    assert!(patches >= HOSTILE, "{patches}");
    // Backing off for 1, 2, 4, 8, 10 s, whatever changes.
    let tries = 2 + usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!(
        cluster.attempts() <= HOSTILE * tries.min(5),
        "{} attempts, {patches} patches",
        cluster.attempts()
    );
    // Asking each term about each pod took ten times as long as they take alone; here they share
    // the machine with all that goes on beside them.
    let spent = cluster.seconds("scheduler_scheduling_algorithm_duration_seconds_sum");
    assert!(
        spent < 1.0,
        "{spent} s spent on deciding in {:?}",
        begun.elapsed()
    );
}
