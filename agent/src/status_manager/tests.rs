use coracle_apiserver::{testing, user::UserInfo};
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_status_that_is_pending_at_the_end_is_written() {
    let server = testing::server().await;
    let pods: Api<Pod> = Api::namespaced(server.client(UserInfo::component("test")), "default");
    let (manager, writer) = StatusManager::new(server.client(UserInfo::component("test")));
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
