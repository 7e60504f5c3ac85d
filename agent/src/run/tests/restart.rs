//! What another run of the agent, or of a worker, makes of what the last one has left.

use super::{super::api::read_ca, *};
use crate::config::AgentConfig;

#[tokio::test(flavor = "multi_thread")]
async fn agent_restart_changes_nothing() {
    let mut cluster = Cluster::start().await;
    let probe = json!({"containers": [{"name": "main", "image": "nginx:1", "readinessProbe": {"exec": {"command": ["true"]}}}]});
    cluster.create(pod("web", probe)).await;
    let before = cluster.wait_pod("web", is_ready).await;
    let calls = cluster.runtime.calls();
    cluster.restart_agent().await;
    cluster.create(pod("other", json!({}))).await;
    cluster.wait_pod("other", is_ready).await;
    let after = cluster.pods().get("web").await.expect("get");
    assert_eq!(before.status, after.status);
    let new: Vec<String> = cluster.runtime.calls().split_off(calls.len());
    let touched = new
        .iter()
        .filter(|call| !call.contains("exec_sync"))
        .filter(|call| {
            call.contains("web") || call.starts_with("stop") || call.starts_with("remove")
        });
    assert_eq!(touched.collect::<Vec<_>>(), Vec::<&String>::new());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_killed_before_it_copied_the_last_status_keeps_it() {
    let mut cluster = Cluster::start().await;
    let probe = json!({"exec": {"command": ["true"]}});
    let main =
        json!({"name": "main", "image": "nginx:1", "readinessProbe": probe, "startupProbe": probe});
    cluster
        .create(pod("web", json!({"containers": [main]})))
        .await;
    let before = cluster.wait_pod("web", is_ready).await;
    cluster.stop_agent().await;
    // The copy on disk is of the moment at which the pod was bound.
    let copy = Pod {
        status: None,
        ..before.clone()
    };
    let path = cluster.copy_of(before.metadata.uid.as_deref().expect("uid"));
    std::fs::write(path, serde_json::to_vec(&copy).expect("JSON")).expect("write the copy");
    cluster.start_agent();
    cluster.create(pod("other", json!({}))).await;
    cluster.wait_pod("other", is_ready).await;
    let after = cluster.pods().get("web").await.expect("get");
    assert_eq!(
        (before.metadata.resource_version, before.status),
        (after.metadata.resource_version, after.status)
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_deleted_while_the_agent_was_away_is_removed() {
    let mut cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    cluster.stop_agent().await;
    cluster
        .pods()
        .delete(
            "web",
            &DeleteParams {
                grace_period_seconds: Some(0),
                ..DeleteParams::default()
            },
        )
        .await
        .expect("delete");
    cluster.start_agent();
    cluster
        .wait_until("the runtime is empty", async || {
            let (sandboxes, containers) = cluster.runtime_state(&uid).await;
            sandboxes.is_empty()
                && containers.is_empty()
                && !cluster.agent_dir().join("pods").join(&uid).exists()
                && !cluster.copy_of(&uid).exists()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_outlives_a_bug_in_its_worker() {
    let cluster = Cluster::start().await;
    cluster.runtime.panic_next("create_container");
    cluster.create(pod("web", json!({}))).await;
    cluster.wait_pod("web", is_ready).await;
    cluster.runtime.panic_next("stop_container");
    cluster.delete("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_tells_of_pods_that_ran_without_a_record() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    cluster.lost_pods = (1..=10).map(|n| format!("default/p{n}")).collect();
    cluster.start_agent();
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let said = "as their restart policies say: default/p1, default/p2, default/p3, default/p4, default/p5, \
                default/p6, default/p7, default/p8 and 2 more";
    cluster
        .wait_until("the event RunDirectoryLost", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items.iter().any(|event| {
                event.reason.as_deref() == Some("RunDirectoryLost")
                    && event.involved_object.name.as_deref() == Some("n1")
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|text| text.ends_with(said))
            })
        })
        .await;
    cluster.stop().await;
}

/// An agent that was killed while it made a pod leaves files, and perhaps no record of whose they
/// are; meanwhile the pod was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_pod_that_nobody_knows_go_and_the_api_hears_nothing_of_it() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    let left = ["pods/u-1", "pods/u-2", "logs/default_web_u-2"];
    let left = left.map(|name| cluster.agent_dir().join(name));
    for dir in &left {
        std::fs::create_dir_all(dir.join("main")).expect("directory");
    }
    cluster.start_agent();
    cluster
        .wait_until("all of it is gone", async || {
            left.iter().all(|dir| !dir.exists())
        })
        .await;
    cluster.stop_agent().await;
    let nameless: Vec<String> = cluster.requests();
    let nameless = nameless.iter().filter(|request| request.contains("//"));
    assert_eq!(nameless.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_outlives_a_bug_in_what_it_does_beside_its_pods() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    let before = cluster.runtime.calls().len();
    cluster.runtime.panic_next("update_class_cgroup");
    cluster.start_agent();
    cluster
        .wait_until("all classes are weighed", async || {
            let calls = cluster.runtime.calls().split_off(before);
            let weighed = calls
                .iter()
                .filter(|call| call.starts_with("update_class_cgroup"));
            // The first try is the one that panics.
            weighed.count() > 3
        })
        .await;
    cluster.create(pod("web", json!({}))).await;
    cluster.wait_pod("web", is_ready).await;
    cluster.stop().await;
}

#[test]
fn a_ca_that_cannot_be_read_is_not_taken_for_none() {
    let dir = tempfile::tempdir().expect("directory");
    let mut config = AgentConfig::new("n1", "198.18.0.2".parse().expect("address"));
    let path = dir.path().join("ca.crt");
    config.client_ca = Some(path.clone());
    assert!(read_ca(&config).expect("there is none").is_none());
    for malformed in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nMIIB"] {
        std::fs::write(&path, malformed).expect("write");
        let error = read_ca(&config).expect_err(malformed).to_string();
        let text = format!("read the CA of API clients in {}", path.display());
        assert_eq!(error, text, "{malformed:?}");
    }
}
