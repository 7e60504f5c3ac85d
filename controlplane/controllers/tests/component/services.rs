//! Endpoints that somebody writes by hand, as EndpointSlices.

use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;

/// `ip:ready` of the mirrored slices of a Service.
async fn mirrored(cluster: &Cluster, service: &str) -> Vec<String> {
    let slices = cluster.list::<EndpointSlice>("default").await;
    let mut addresses: Vec<String> = slices
        .iter()
        .filter(|slice| {
            let labels = slice.metadata.labels.clone().unwrap_or_default();
            labels.get("kubernetes.io/service-name").map(String::as_str) == Some(service)
                && labels["endpointslice.kubernetes.io/managed-by"]
                    == "endpointslicemirroring-controller.k8s.io"
        })
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .map(|one| {
            format!(
                "{}:{}",
                one.addresses[0],
                one.conditions.as_ref().and_then(|c| c.ready).unwrap()
            )
        })
        .collect();
    addresses.sort();
    addresses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_without_a_selector_are_mirrored() {
    let cluster = Cluster::start().await;
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    cluster.create::<Service>("default", service).await;
    let endpoints = json!({"metadata": {"name": "db"}, "subsets": [{"addresses": [{"ip": "192.0.2.7"}],
        "notReadyAddresses": [{"ip": "192.0.2.8"}], "ports": [{"port": 5432}]}]});
    cluster.create::<Endpoints>("default", endpoints).await;
    cluster
        .wait("both addresses", || async {
            mirrored(&cluster, "db").await == ["192.0.2.7:true", "192.0.2.8:false"]
        })
        .await;
    let ready =
        json!({"subsets": [{"addresses": [{"ip": "192.0.2.8"}], "ports": [{"port": 5432}]}]});
    cluster
        .api::<Endpoints>("default")
        .patch("db", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
    cluster
        .wait("the change", || async {
            mirrored(&cluster, "db").await == ["192.0.2.8:true"]
        })
        .await;
    // With a selector they are the other controller's.
    let selector = Patch::Merge(json!({"spec": {"selector": {"app": "db"}}}));
    cluster
        .api::<Service>("default")
        .patch("db", &PatchParams::default(), &selector)
        .await
        .unwrap();
    cluster
        .wait("no mirror", || async {
            mirrored(&cluster, "db").await.is_empty()
        })
        .await;
    cluster
        .api::<Service>("default")
        .delete("db", &DeleteParams::default())
        .await
        .unwrap();
}
