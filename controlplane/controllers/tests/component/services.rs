//! Endpoints that somebody writes by hand, as EndpointSlices; whom endpoints are meant for.

use k8s_openapi::api::{
    core::v1::{Endpoints, Event, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
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

/// The one slice of a Service.
async fn slice_of(cluster: &Cluster, service: &str) -> Option<EndpointSlice> {
    let slices = cluster.list::<EndpointSlice>("default").await;
    slices.into_iter().find(|slice| {
        let labels = slice.metadata.labels.clone().unwrap_or_default();
        labels.get("kubernetes.io/service-name").map(String::as_str) == Some(service)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_meant_for_the_zone_that_their_node_is_in() {
    const CHANGED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
        "trafficDistribution": "PreferSameZone", "ports": [{"port": 80}]}});
    cluster.create::<Service>("default", service).await;
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    cluster.create::<Pod>("default", pod).await;
    cluster.run_agent();
    let first = || async {
        let slice = slice_of(&cluster, "web").await?;
        let endpoint = slice.endpoints?.into_iter().next()?;
        let annotations = slice.metadata.annotations.unwrap_or_default();
        Some((endpoint, annotations.contains_key(CHANGED)))
    };
    // The node says nothing of a zone yet, and the pod's becoming ready has a time.
    cluster
        .wait("an endpoint", || async {
            first().await.is_some_and(|(endpoint, is_timed)| {
                let ready = endpoint.conditions.and_then(|conditions| conditions.ready);
                is_timed && ready == Some(true) && endpoint.hints.is_none()
            })
        })
        .await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for zone in ["a", "b"] {
        let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        nodes
            .patch("n1", &PatchParams::default(), &Patch::Merge(labels))
            .await
            .unwrap();
        cluster
            .wait("the zone", || async {
                let hints = first().await.and_then(|(endpoint, _)| endpoint.hints);
                let zones = hints.and_then(|hints| hints.for_zones).unwrap_or_default();
                zones.iter().map(|zone| zone.name.as_str()).eq([zone])
            })
            .await;
    }
    // Whoever does not mind any more has them everywhere.
    let anywhere = json!({"spec": {"trafficDistribution": null}});
    cluster.merge::<Service>("default", "web", anywhere).await;
    cluster
        .wait("no hints", || async {
            first().await.is_some_and(|(one, _)| one.hints.is_none())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_by_zones_is_told_of() {
    let cluster = Cluster::start().await;
    let service = json!({"metadata": {"name": "web", "annotations": {"service.kubernetes.io/topology-mode": "Auto"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create::<Service>("default", service).await;
    let why = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4";
    cluster
        .wait("the event", || async {
            let events = cluster.list::<Event>("default").await;
            events.iter().any(|event| {
                event.reason.as_deref() == Some("TopologyAwareHintsDisabled")
                    && event.message.as_deref() == Some(why)
            })
        })
        .await;
}
