use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use coracle_apiserver::{testing, user::UserInfo};
use http::{Method, Request, Response};
use kube::{
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_status_that_is_pending_at_the_end_is_written() {
    let server = testing::server().await;
    let pods: Api<Pod> = Api::namespaced(server.client(UserInfo::master("test")), "default");
    let (manager, writer) = StatusManager::new(server.client(UserInfo::master("test")));
    // More than are in flight at once, twice over.
    let count = 2 * MAX_IN_FLIGHT + 1;
    for number in 0..count {
        let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "default"}, "spec": {
            "nodeName": "n1", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "nginx:1"}]}});
        let pod = serde_json::from_value(pod).expect("pod");
        let made = pods.create(&PostParams::default(), &pod).await;
        let status = PodStatus {
            phase: Some("Running".to_owned()),
            ..PodStatus::default()
        };
        manager.set(&Arc::new(made.expect("create")), status).await;
    }
    let stopped = CancellationToken::new();
    stopped.cancel();
    writer.run(stopped).await;
    let listed = pods.list(&ListParams::default()).await.expect("list");
    let phases = listed.items.iter().map(|pod| pod.status_or_default());
    let running = phases.filter(|status| status.phase.as_deref() == Some("Running"));
    assert_eq!(running.count(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_writes_into_a_status_is_put_right() {
    let server = testing::server().await;
    let pods: Api<Pod> = Api::namespaced(server.client(UserInfo::master("test")), "default");
    let (manager, writer) = StatusManager::new(server.client(UserInfo::master("test")));
    let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "nodeName": "n1", "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "nginx:1"}]}});
    let pod = serde_json::from_value(pod).expect("pod");
    let made = pods.create(&PostParams::default(), &pod).await;
    let status = json!({"phase": "Running", "qosClass": "BestEffort", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": [{"name": "main", "image": "nginx:1", "imageID": "i", "ready": true,
            "started": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]});
    let status: PodStatus = serde_json::from_value(status).expect("status");
    let read = async || pods.get("web").await.expect("get");
    let shown = async |wanted: &PodStatus| {
        while patch::was_changed_by_others(read().await.status_or_default(), wanted) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let claims = async {
        manager
            .set(&Arc::new(made.expect("create")), status.clone())
            .await;
        shown(&status).await;
        let lies = json!({"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}],
            "containerStatuses": [{"name": "main", "image": "nginx:1", "imageID": "i", "ready": false,
                "started": false, "restartCount": 7, "state": {"waiting": {"reason": "Lies"}}}]}});
        let (parameters, lies) = (PatchParams::default(), Patch::Merge(lies));
        let changed = pods
            .patch_status("web", &parameters, &lies)
            .await
            .expect("patch");
        assert_eq!(
            changed.status_or_default().pod_ip.as_deref(),
            Some("10.9.9.9")
        );
        // As the pod's worker does when the watch has told of it.
        manager.set(&Arc::new(changed), status.clone()).await;
        shown(&status).await;
    };
    tokio::select! {
        told = tokio::time::timeout(Duration::from_secs(20), claims) => told.expect("put right in time"),
        () = writer.run(CancellationToken::new()) => unreachable!("nobody stops it"),
    }
}

/// A server whose first answer to DELETE is a conflict, and that has a pod with this UID.
fn conflicting(uid: &'static str) -> (kube::Client, Arc<AtomicUsize>) {
    let deletes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&deletes);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = if request.method() != Method::DELETE {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "web", "namespace": "default", "uid": uid}})
        } else if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                "reason": "Conflict", "message": "another writer of the same UID"})
        } else {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        };
        let status = u16::try_from(answer["code"].as_u64().unwrap_or(200)).expect("a status");
        let response = Response::builder().status(status);
        let response = response.body(Body::from(answer.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(response.expect("response")) }
    });
    (kube::Client::new(service, "default"), deletes)
}

#[tokio::test(start_paused = true)]
async fn a_conflict_ends_a_pod_only_if_another_has_its_name() {
    for (uid, tries) in [("another", 1), ("own", 2)] {
        let (client, deletes) = conflicting(uid);
        let (manager, writer) = StatusManager::new(client);
        let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "own"}});
        let pod: Pod = serde_json::from_value(pod).expect("pod");
        tokio::select! {
            () = manager.finish(&pod) => {}
            () = writer.run(CancellationToken::new()) => unreachable!("nobody stops it"),
        }
        assert_eq!(deletes.load(Ordering::Relaxed), tries, "{uid}");
    }
}
