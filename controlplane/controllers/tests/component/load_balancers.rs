//! Services of type LoadBalancer: which addresses of nodes they show, and what they are told.

use k8s_openapi::api::{
    core::v1::{Event, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

pub(crate) fn balanced(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

/// The addresses that a Service shows; `None`: there is none of this name.
pub(crate) async fn shown(cluster: &Cluster, name: &str) -> Option<Vec<String>> {
    let service = cluster.get_opt::<Service>("default", name).await?;
    let ingress = service.status.unwrap_or_default().load_balancer;
    let ingress = ingress.unwrap_or_default().ingress.unwrap_or_default();
    let address = |one: &k8s_openapi::api::core::v1::LoadBalancerIngress| {
        assert_eq!(one.ip_mode.as_deref(), Some("VIP"));
        one.ip.clone().unwrap()
    };
    Some(ingress.iter().map(address).collect())
}

async fn shows(cluster: &Cluster, name: &str, expect: &[&str]) {
    cluster
        .wait(&format!("{name} to show {expect:?}"), || async {
            shown(cluster, name).await.unwrap() == expect
        })
        .await;
}

/// Until somebody is told this about a Service.
async fn told(cluster: &Cluster, name: &str, reason: &str, part: &str) {
    cluster
        .wait(&format!("{reason} about {name}"), || async {
            let events = cluster.list::<Event>("default").await;
            events.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(name)
                    && event.reason.as_deref() == Some(reason)
                    && event.message.as_deref().unwrap_or_default().contains(part)
            })
        })
        .await;
}

async fn nodes(cluster: &Cluster, names: &[&str]) {
    for name in names {
        let last = name.trim_start_matches('n');
        cluster.add_node(name, &format!("192.0.2.{last}")).await;
    }
}

async fn has_finalizer(cluster: &Cluster, name: &str) -> bool {
    let service = cluster.get_opt::<Service>("default", name).await.unwrap();
    service.finalizers().iter().any(|one| one == FINALIZER)
}

async fn set_ready(cluster: &Cluster, node: &str, ready: &str) {
    let condition = json!({"type": "Ready", "status": ready, "reason": "r", "message": "m"});
    Api::<Node>::all(cluster.client.clone())
        .patch_status(
            node,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"conditions": [condition]}})),
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_services_has_a_port_until_it_goes() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11", "n12"]).await;
    cluster
        .create::<Service>("default", balanced("a", json!({})))
        .await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
    told(&cluster, "a", "EnsuringLoadBalancer", "").await;
    told(&cluster, "a", "EnsuredLoadBalancer", "").await;
    cluster
        .create::<Service>("default", balanced("b", json!({})))
        .await;
    told(
        &cluster,
        "b",
        "SyncLoadBalancerFailed",
        "Service default/a has 80/TCP",
    )
    .await;
    assert_eq!(shown(&cluster, "b").await.unwrap(), [""; 0]);
    assert!(has_finalizer(&cluster, "b").await);
    let services: Api<Service> = cluster.api("default");
    services
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("a to go", || async { shown(&cluster, "a").await.is_none() })
        .await;
    shows(&cluster, "b", &["192.0.2.11", "192.0.2.12"]).await;
    told(&cluster, "a", "DeletedLoadBalancer", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_follow_the_nodes() {
    let cluster = Cluster::start().await;
    cluster
        .create::<Service>("default", balanced("a", json!({})))
        .await;
    told(&cluster, "a", "UnAvailableLoadBalancer", "").await;
    nodes(&cluster, &["n11", "n12"]).await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
    set_ready(&cluster, "n11", "False").await;
    shows(&cluster, "a", &["192.0.2.12"]).await;
    told(&cluster, "a", "UpdatedLoadBalancer", "").await;
    set_ready(&cluster, "n11", "True").await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
    let all: Api<Node> = Api::all(cluster.client.clone());
    all.delete("n12", &DeleteParams::default()).await.unwrap();
    shows(&cluster, "a", &["192.0.2.11"]).await;
    let excluded = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    all.patch("n11", &PatchParams::default(), &Patch::Merge(excluded))
        .await
        .unwrap();
    shows(&cluster, "a", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_pod_has_the_port_is_not_shown() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11", "n12"]).await;
    cluster
        .create::<Service>("default", balanced("a", json!({})))
        .await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
    let ports = json!([{"containerPort": 8080, "hostPort": 80}]);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n12", "containers": [{"name": "c", "image": "i", "ports": ports}]}});
    cluster.create::<Pod>("default", pod).await;
    shows(&cluster, "a", &["192.0.2.11"]).await;
    let pods: Api<Pod> = cluster.api("default");
    let now = DeleteParams::default().grace_period(0);
    pods.delete("p", &now).await.unwrap();
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_traffic_is_sent_to_nodes_with_ready_endpoints() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11", "n12"]).await;
    let local = balanced("a", json!({"externalTrafficPolicy": "Local"}));
    cluster.create::<Service>("default", local).await;
    told(&cluster, "a", "UnAvailableLoadBalancer", "Local").await;
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"nodeName": "n12", "containers": [{"name": "c", "image": "i"}]}});
    cluster.create::<Pod>("default", pod).await;
    cluster.run_agent();
    shows(&cluster, "a", &["192.0.2.12"]).await;
    // Endpoints that somebody else writes count as well.
    let slice = json!({"metadata": {"name": "more", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.42.9.9"], "nodeName": "n11"}], "ports": []});
    cluster.create::<EndpointSlice>("default", slice).await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
    let slices: Api<EndpointSlice> = cluster.api("default");
    slices
        .delete("more", &DeleteParams::default())
        .await
        .unwrap();
    shows(&cluster, "a", &["192.0.2.12"]).await;
    let anywhere = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    cluster.merge::<Service>("default", "a", anywhere).await;
    shows(&cluster, "a", &["192.0.2.11", "192.0.2.12"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_of_others_are_left_alone() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11"]).await;
    let foreign = balanced("foreign", json!({"loadBalancerClass": "example.org/a"}));
    cluster.create::<Service>("default", foreign).await;
    let status =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "VIP"}]}}});
    let services: Api<Service> = cluster.api("default");
    services
        .patch_status("foreign", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let ours = balanced("ours", json!({"loadBalancerClass": "coracle.dev/node"}));
    cluster.create::<Service>("default", ours).await;
    shows(&cluster, "ours", &["192.0.2.11"]).await;
    // All changes before have been looked at by now.
    assert_eq!(shown(&cluster, "foreign").await.unwrap(), ["198.51.100.7"]);
    assert!(!has_finalizer(&cluster, "foreign").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_asked_for_is_given_if_a_node_has_it() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11", "n12"]).await;
    let pinned = balanced("a", json!({"loadBalancerIP": "192.0.2.12"}));
    cluster.create::<Service>("default", pinned).await;
    shows(&cluster, "a", &["192.0.2.12"]).await;
    let elsewhere = json!({"spec": {"loadBalancerIP": "192.0.2.99"}});
    cluster.merge::<Service>("default", "a", elsewhere).await;
    shows(&cluster, "a", &[]).await;
    let part = "192.0.2.99 is the address of no node";
    told(&cluster, "a", "SyncLoadBalancerFailed", part).await;
    // A node comes that has it.
    nodes(&cluster, &["n99"]).await;
    shows(&cluster, "a", &["192.0.2.99"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_another_type_has_no_address_and_no_finalizer() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11"]).await;
    let mut service = balanced("a", json!({}));
    service["metadata"]["finalizers"] = json!(["example.org/kept"]);
    cluster.create::<Service>("default", service).await;
    shows(&cluster, "a", &["192.0.2.11"]).await;
    let kind = |kind: &str| json!({"spec": {"type": kind}});
    cluster
        .merge::<Service>("default", "a", kind("NodePort"))
        .await;
    cluster
        .wait("the finalizer to go", || async {
            !has_finalizer(&cluster, "a").await
        })
        .await;
    assert_eq!(shown(&cluster, "a").await.unwrap(), [""; 0]);
    told(&cluster, "a", "DeletingLoadBalancer", "").await;
    cluster
        .merge::<Service>("default", "a", kind("LoadBalancer"))
        .await;
    shows(&cluster, "a", &["192.0.2.11"]).await;
    // What is deleted gives its address back, also while somebody else keeps it.
    let services: Api<Service> = cluster.api("default");
    services
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("the finalizer to go", || async {
            !has_finalizer(&cluster, "a").await
        })
        .await;
    let kept = cluster.get_opt::<Service>("default", "a").await.unwrap();
    assert_eq!(kept.finalizers(), ["example.org/kept"]);
    assert_eq!(shown(&cluster, "a").await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_writes_into_a_status_is_put_right() {
    let cluster = Cluster::start().await;
    nodes(&cluster, &["n11"]).await;
    cluster
        .create::<Service>("default", balanced("a", json!({})))
        .await;
    shows(&cluster, "a", &["192.0.2.11"]).await;
    let status =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "VIP"}]}}});
    let services: Api<Service> = cluster.api("default");
    services
        .patch_status("a", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    shows(&cluster, "a", &["192.0.2.11"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_without_a_class_are_anothers_where_the_server_says_so() {
    let named = |config: &mut coracle_controllers::ControllersConfig| {
        config.load_balancers = "none".parse().unwrap();
    };
    let cluster = Cluster::start_with(named).await;
    nodes(&cluster, &["n11"]).await;
    cluster
        .create::<Service>("default", balanced("unclassed", json!({})))
        .await;
    let ours = balanced(
        "ours",
        json!({"loadBalancerClass": "coracle.dev/node", "ports": [{"port": 81}]}),
    );
    cluster.create::<Service>("default", ours).await;
    shows(&cluster, "ours", &["192.0.2.11"]).await;
    // All changes before have been looked at by now.
    assert_eq!(shown(&cluster, "unclassed").await.unwrap(), [""; 0]);
    assert!(!has_finalizer(&cluster, "unclassed").await);
}
