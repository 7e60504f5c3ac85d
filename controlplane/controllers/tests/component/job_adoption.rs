//! Which pods are a Job's, as upstream's conformance asks for it.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_adopts_what_matches_and_releases_what_does_not() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let containers = json!([{"name": "c", "image": "busybox:1"}]);
    let job: Job = cluster
        .create(
            "default",
            json!({"metadata": {"name": "sum"}, "spec": {"parallelism": 2, "completions": 4,
                "template": {"spec": {"restartPolicy": "Never", "containers": containers}}}}),
        )
        .await;
    let two = || async { cluster.list::<Pod>("default").await.len() == 2 };
    cluster.wait("its pods", two).await;
    let name = cluster.list::<Pod>("default").await[0].name_any();
    let change = |change: Value| cluster.merge::<Pod>("default", &name, change);
    let owner = || async {
        let pod: Pod = cluster.get_opt("default", &name).await.unwrap();
        let owners = pod.owner_references().iter();
        owners.map(|owner| owner.uid.clone()).next()
    };
    assert_eq!(owner().await, job.uid());
    change(json!({"metadata": {"ownerReferences": null}})).await;
    let adopted = || async { owner().await == job.uid() };
    cluster.wait("adoption", adopted).await;
    let labels = [
        "job-name",
        "controller-uid",
        "batch.kubernetes.io/job-name",
        "batch.kubernetes.io/controller-uid",
    ];
    let without: Value = labels
        .iter()
        .map(|label| ((*label).to_owned(), Value::Null))
        .collect();
    change(json!({"metadata": {"labels": without}})).await;
    let released =
        || async { owner().await.is_none() && cluster.list::<Pod>("default").await.len() == 3 };
    cluster.wait("release, and another pod", released).await;
}
