//! Endpoints and EndpointSlices as upstream's conformance asks for them: by pods of several ports,
//! soon, and gone with what they are of.

use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

async fn slices(cluster: &Cluster, service: &str) -> Vec<EndpointSlice> {
    let mut slices = cluster.list::<EndpointSlice>("default").await;
    slices.retain(|slice| {
        let of = slice.labels().get("kubernetes.io/service-name");
        of.is_some_and(|name| name == service)
    });
    slices
}

/// `pods at port`, sorted, of the slices of a Service.
async fn sliced(cluster: &Cluster, service: &str) -> Vec<String> {
    let words = slices(cluster, service).await.into_iter().map(|slice| {
        let mut pods: Vec<String> = slice
            .endpoints
            .iter()
            .flatten()
            .filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone())
            .collect();
        pods.sort();
        let ports = slice.ports.iter().flatten();
        let ports: Vec<i32> = ports.filter_map(|port| port.port).collect();
        format!("{pods:?} at {ports:?}")
    });
    let mut words: Vec<String> = words.collect();
    words.sort();
    words
}

/// The same of its Endpoints; nothing where there are none.
async fn legacy(cluster: &Cluster, service: &str) -> Option<Vec<String>> {
    let endpoints: Endpoints = cluster.get_opt("default", service).await?;
    let subsets = endpoints.subsets.into_iter().flatten().map(|subset| {
        let mut pods: Vec<String> = subset
            .addresses
            .iter()
            .flatten()
            .filter_map(|address| address.target_ref.as_ref()?.name.clone())
            .collect();
        pods.sort();
        let ports: Vec<i32> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| port.port)
            .collect();
        format!("{pods:?} at {ports:?}")
    });
    let mut words: Vec<String> = subsets.collect();
    words.sort();
    Some(words)
}

/// `port/protocol`, sorted, of both.
async fn ports_of(cluster: &Cluster, service: &str) -> [Vec<String>; 2] {
    let word = |port: Option<i32>, protocol: &Option<String>| {
        let protocol = protocol.as_deref().unwrap_or_default();
        format!("{}/{protocol}", port.unwrap_or_default())
    };
    let slices = slices(cluster, service).await;
    let ports = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
    let mut sliced: Vec<String> = ports.map(|one| word(one.port, &one.protocol)).collect();
    let endpoints: Option<Endpoints> = cluster.get_opt("default", service).await;
    let subsets = endpoints.into_iter().flat_map(|one| one.subsets).flatten();
    let ports = subsets.flat_map(|subset| subset.ports).flatten();
    let mut legacy: Vec<String> = ports
        .map(|one| word(Some(one.port), &one.protocol))
        .collect();
    sliced.sort();
    legacy.sort();
    [sliced, legacy]
}

fn pod(name: &str, labels: &Value, port: u16) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "n1", "containers": [
        {"name": "c", "image": "i", "ports": [{"name": "named", "containerPort": port}, {"name": "other", "containerPort": 3005}]}]}})
}

fn service(name: &str, selector: &Value, target: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": selector, "publishNotReadyAddresses": true,
        "ports": [{"name": "example", "port": 80, "targetPort": target}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_have_the_ports_of_their_pods() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    cluster.run_agent();
    for (name, labels, port) in [
        ("pod1", json!({"one": "on", "shared": "on"}), 3000),
        ("pod2", json!({"two": "on", "shared": "on"}), 3001),
    ] {
        cluster
            .create::<Pod>("default", pod(name, &labels, port))
            .await;
    }
    let both = [r#"["pod1"] at [3000]"#, r#"["pod2"] at [3001]"#];
    for (name, selector, target, expected) in [
        ("by-number", json!({"one": "on"}), json!(3000), &both[..1]),
        (
            "by-name",
            json!({"shared": "on"}),
            json!("named"),
            &both[..],
        ),
        ("nobody", json!({"three": "on"}), json!(8080), &[]),
    ] {
        cluster
            .create::<Service>("default", service(name, &selector, &target))
            .await;
        let empty = ["[] at []"];
        cluster
            .wait(name, || async {
                let sliced = sliced(&cluster, name).await;
                let right = match expected {
                    [] => sliced == empty,
                    _ => sliced == expected,
                };
                right
                    && legacy(&cluster, name)
                        .await
                        .is_some_and(|said| said == expected)
            })
            .await;
    }
    // Somebody takes the slices away.
    for slice in slices(&cluster, "by-name").await {
        let api = cluster.api::<EndpointSlice>("default");
        api.delete(&slice.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
    cluster
        .wait("the slices again", || async {
            sliced(&cluster, "by-name").await == both
        })
        .await;
    // With their Service they go for good.
    for name in ["by-name", "nobody"] {
        cluster
            .api::<Service>("default")
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        cluster
            .wait("nothing of it", || async {
                slices(&cluster, name).await.is_empty() && legacy(&cluster, name).await.is_none()
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_services_soon_have_their_endpoints() {
    const SERVICES: usize = 200;
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    cluster.run_agent();
    let labels = json!({"app": "web"});
    cluster
        .create::<Pod>("default", pod("pod1", &labels, 3000))
        .await;
    for number in 0..SERVICES {
        let name = format!("s{number}");
        cluster
            .create::<Service>("default", service(&name, &labels, &json!(3000)))
            .await;
    }
    // Upstream lets the median have 20 s and the slowest 50 s.
    cluster
        .wait("endpoints of all", || async {
            let slices = cluster.list::<EndpointSlice>("default").await;
            let filled = slices.iter().filter(|slice| {
                slice.name_any() != "kubernetes" && slice.endpoints.iter().flatten().count() == 1
            });
            filled.count() == SERVICES
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_of_one_number_are_apart_by_protocol() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    cluster.run_agent();
    let labels = json!({"one": "on"});
    cluster
        .create::<Pod>("default", pod("pod1", &labels, 3000))
        .await;
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "port": 80, "protocol": protocol, "targetPort": 3000});
    let ports = |protocols: &[&str]| -> Value { protocols.iter().map(|one| port(one)).collect() };
    let both = json!({"metadata": {"name": "both"}, "spec": {"selector": labels,
        "publishNotReadyAddresses": true, "ports": ports(&["TCP", "UDP"])}});
    cluster.create::<Service>("default", both).await;
    for (protocols, expected) in [
        (&["TCP", "UDP"][..], &["3000/TCP", "3000/UDP"][..]),
        (&["UDP"], &["3000/UDP"]),
        (&["TCP"], &["3000/TCP"]),
    ] {
        let change = json!({"spec": {"ports": ports(protocols)}});
        cluster.merge::<Service>("default", "both", change).await;
        cluster
            .wait("ports of these protocols", || async {
                let [sliced, legacy] = ports_of(&cluster, "both").await;
                sliced == expected && legacy == expected
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_is_made_follows_and_goes_with_its_endpoints() {
    let cluster = Cluster::start().await;
    let db =
        json!({"metadata": {"name": "db"}, "spec": {"ports": [{"name": "sql", "port": 5432}]}});
    cluster.create::<Service>("default", db).await;
    let subsets = |ip: &str, port: u16| json!([{"addresses": [{"ip": ip}], "ports": [{"name": "sql", "port": port}]}]);
    let written = json!({"metadata": {"name": "db"}, "subsets": subsets("192.0.2.7", 5432)});
    cluster.create::<Endpoints>("default", written).await;
    let mirrored = || async {
        let slices = slices(&cluster, "db").await;
        let ends = slices.iter().map(|slice| {
            let addresses = slice
                .endpoints
                .iter()
                .flatten()
                .flat_map(|one| &one.addresses);
            let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
            let manager = &slice.labels()["endpointslice.kubernetes.io/managed-by"];
            assert_eq!(manager, "endpointslicemirroring-controller.k8s.io");
            (addresses.cloned().collect(), ports.collect())
        });
        ends.collect::<Vec<(Vec<String>, Vec<i32>)>>()
    };
    let is = |ip: &str, port: i32| vec![(vec![ip.to_owned()], vec![port])];
    cluster
        .wait("a mirror", || async {
            mirrored().await == is("192.0.2.7", 5432)
        })
        .await;
    let change = json!({"subsets": subsets("192.0.2.9", 5433)});
    cluster.merge::<Endpoints>("default", "db", change).await;
    cluster
        .wait("the change", || async {
            mirrored().await == is("192.0.2.9", 5433)
        })
        .await;
    cluster
        .api::<Endpoints>("default")
        .delete("db", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("no mirror", || async { mirrored().await.is_empty() })
        .await;
}
