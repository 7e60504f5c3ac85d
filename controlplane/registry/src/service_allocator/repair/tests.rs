use serde_json::{Value, json};

use super::{super::tests::put_range, *};
use crate::{encode, store::WriteOptions, testing};

/// With the ServiceCIDR that the server makes.
async fn started() -> (Store, Registry) {
    let kept = testing::started().await;
    put_range(&kept, "kubernetes", "10.96.0.0/16", json!({})).await;
    kept
}

async fn found(store: &Store, registry: &Registry) -> Vec<String> {
    store.cache.catch_up().await.unwrap();
    let addresses = registry.get("networking.k8s.io", "v1", "ipaddresses");
    let ports = store.cache.resource(node_ports::PREFIX).unwrap();
    [entries(&addresses.unwrap().cache), entries(&ports)]
        .iter()
        .flatten()
        .map(|entry| entry.name().to_owned())
        .collect()
}

fn allocators(store: &Store, registry: &Registry) -> Allocators {
    let (range, cache) = ("10.96.0.0/16".parse().unwrap(), Arc::clone(&store.cache));
    Allocators::new(range, 30000..=32767, registry, cache).unwrap()
}

/// What a look says: of whom, and what.
async fn said(store: &Store, registry: &Registry) -> Vec<String> {
    store.cache.catch_up().await.unwrap();
    let allocators = allocators(store, registry);
    let findings = repair(store, registry, Some(&allocators)).await.unwrap();
    store.cache.catch_up().await.unwrap();
    let text = |finding: Finding| {
        let Finding {
            about,
            reason,
            message,
            ..
        } = finding;
        assert!(!about.uid.is_empty(), "{about:?}");
        format!("{} {reason}: {message}", about.name)
    };
    findings.into_iter().map(text).collect()
}

async fn create(store: &Store, registry: &Registry, name: &str, spec: Value) {
    let services = registry.core("services").unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let made = store.create(services, "default", service, WriteOptions::default());
    made.await.unwrap();
}

/// A change that nothing else goes with.
async fn put(store: &Store, op: Op) {
    let compare = Vec::new();
    store.amend(vec![Amendment { compare, op }]).await.unwrap();
}

/// Has an entry go, as a store of an older release has none.
async fn forget(store: &Store, allocation: Allocation) {
    put(
        store,
        Op::Delete {
            key: allocation.key(),
        },
    )
    .await;
}

fn address(text: &str) -> Allocation {
    Allocation::Address(text.parse().unwrap())
}

#[tokio::test]
async fn what_is_out_of_step_is_set_right() {
    let (store, registry) = started().await;
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30090,
        "clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"],
        "ports": [{"port": 53, "nodePort": 30053, "protocol": "UDP", "name": "u"},
            {"port": 53, "nodePort": 30053, "protocol": "TCP", "name": "t"}]});
    create(&store, &registry, "a", spec).await;
    let all = ["10.96.3.3", "30053", "30090"];
    assert_eq!(found(&store, &registry).await, all);
    assert_eq!(said(&store, &registry).await, [""; 0]);
    for lost in [address("10.96.3.3"), Allocation::Port(30053)] {
        forget(&store, lost).await;
    }
    for stray in [address("10.96.9.9"), Allocation::Port(30099)] {
        put(&store, stray.put("default", "gone")).await;
    }
    put(&store, address("10.96.9.10").put("default", "a")).await;
    assert_eq!(
        found(&store, &registry).await,
        ["10.96.9.10", "10.96.9.9", "30090", "30099"]
    );
    let mut said_first = said(&store, &registry).await;
    said_first.sort_unstable();
    assert_eq!(
        said_first,
        [
            "10.96.9.10 IPAddressWrongReference: IPAddress: 10.96.9.10 for Service default/a has a wrong reference; cleaning up",
            "10.96.9.9 IPAddressNotAllocated: IPAddress: 10.96.9.9 for Service default/gone appears to have leaked: cleaning up",
            "a ClusterIPNotAllocated: Cluster IP [IPv4]: 10.96.3.3 is not allocated; repairing",
            "a PortNotAllocated: Port 30053 is not allocated; repairing",
        ]
    );
    assert_eq!(found(&store, &registry).await, all);
    assert_eq!(said(&store, &registry).await, [""; 0]);
    let services = registry.core("services").unwrap();
    let options = Default::default();
    let gone = store.delete(services, "default", "a", &options);
    gone.await.unwrap();
    assert_eq!(found(&store, &registry).await, [""; 0]);
}

#[tokio::test]
async fn what_two_services_have_is_told_of_the_one_whose_it_is_not() {
    let (store, registry) = started().await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"],
        "ports": [{"port": 53, "nodePort": 30053}]});
    // The younger one has the lower name.
    for name in ["b", "a"] {
        create(&store, &registry, name, spec.clone()).await;
        for allocation in [address("10.96.3.3"), Allocation::Port(30053)] {
            forget(&store, allocation).await;
        }
    }
    let twice = [
        "a ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.96.3.3 was assigned to multiple services; please recreate service",
        "a PortAlreadyAllocated: Port 30053 was assigned to multiple services; please recreate service",
    ];
    let first = said(&store, &registry).await;
    assert_eq!(first[..2], twice);
    assert_eq!(
        first[2..],
        [
            "b ClusterIPNotAllocated: Cluster IP [IPv4]: 10.96.3.3 is not allocated; repairing",
            "b PortNotAllocated: Port 30053 is not allocated; repairing",
        ]
    );
    assert_eq!(said(&store, &registry).await, twice);
    // The entry decides, and not the age.
    put(&store, address("10.96.3.3").put("default", "a")).await;
    assert!(said(&store, &registry).await[0].starts_with("b ClusterIPAlreadyAllocated"));
}

#[tokio::test]
async fn an_entry_that_names_another_is_set_right() {
    let (store, registry) = started().await;
    let spec =
        json!({"clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"], "ports": [{"port": 80}]});
    create(&store, &registry, "a", spec).await;
    put(&store, address("10.96.3.3").put("default", "gone")).await;
    assert_eq!(
        said(&store, &registry).await,
        [
            "a ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.96.3.3 for Service default/a has a wrong reference; repairing"
        ]
    );
    assert_eq!(said(&store, &registry).await, [""; 0]);
}

#[tokio::test]
async fn what_is_out_of_range_or_kept_for_another_is_told() {
    let (store, registry) = started().await;
    for (name, ip, node_port) in [("a", "10.97.0.9", 80), ("b", "10.96.0.1", 30000)] {
        let spec = json!({"type": "NodePort", "clusterIP": ip, "clusterIPs": [ip],
            "ports": [{"port": 80, "nodePort": node_port}]});
        create(&store, &registry, name, spec).await;
    }
    let told = [
        "a ClusterIPOutOfRange: Cluster IP [IPv4]: 10.97.0.9 is not within any configured Service CIDR; please recreate service",
        "a PortOutOfRange: Port 80 is not within the port range 30000-32767; please recreate service",
        "b ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.96.0.1 was assigned to multiple services; please recreate service",
    ];
    assert_eq!(said(&store, &registry).await, told);
    // They keep what they have all the same: nobody else gets it.
    assert_eq!(
        found(&store, &registry).await,
        ["10.96.0.1", "10.97.0.9", "30000", "80"]
    );
}

#[tokio::test]
async fn what_is_no_address_of_the_cluster_is_told() {
    let (store, registry) = started().await;
    let services = registry.core("services").unwrap();
    // As nobody could write it today.
    for (name, ip) in [
        ("a", "nonsense"),
        ("b", "fd00::7"),
        ("c", "None"),
        ("d", ""),
    ] {
        let service = json!({"kind": "Service", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"type": "ClusterIP", "clusterIP": ip, "ports": [{"port": 80}]}});
        let op = Op::Put {
            key: services.key("default", name).into(),
            value: encode::encode(&service).unwrap(),
        };
        put(&store, op).await;
    }
    assert_eq!(
        said(&store, &registry).await,
        [
            "a ClusterIPNotValid: Cluster IP nonsense is not a valid IP; please recreate Service",
            "b ClusterIPOutOfRange: Cluster IP [IPv6]: fd00::7 is not within any configured Service CIDR; please recreate service",
        ]
    );
}

#[tokio::test]
async fn an_address_of_any_range_is_in_range() {
    let kept = started().await;
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    put_range(&kept, "more", "10.97.0.0/24", terminating).await;
    let (store, registry) = kept;
    for (name, ip) in [("a", "10.97.0.9"), ("b", "10.97.0.255")] {
        let spec = json!({"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80}]});
        create(&store, &registry, name, spec).await;
    }
    assert_eq!(
        said(&store, &registry).await,
        [
            "b ClusterIPOutOfRange: Cluster IP [IPv4]: 10.97.0.255 is not within any configured Service CIDR; please recreate service"
        ]
    );
}

#[tokio::test]
async fn an_own_range_that_is_another_than_asked_for_is_told() {
    let kept = testing::started().await;
    put_range(&kept, "kubernetes", "10.98.0.0/16", json!({})).await;
    let (store, registry) = &kept;
    let other = "kubernetes KubernetesDefaultServiceCIDRInconsistent: The default ServiceCIDR [10.98.0.0/16] does not match the controller flag configurations [10.96.0.0/16]";
    assert_eq!(said(store, registry).await, [other]);
    let condition =
        json!({"type": "Ready", "status": "False", "reason": "Terminating", "message": "it goes"});
    let not_ready = json!({"status": {"conditions": [condition]}});
    put_range(&kept, "kubernetes", "10.96.0.0/16", not_ready).await;
    assert_eq!(
        said(store, registry).await,
        ["kubernetes Terminating: Configuration matches, but it goes"]
    );
    // Its end is its controller's.
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    put_range(&kept, "kubernetes", "10.98.0.0/16", gone).await;
    assert_eq!(said(store, registry).await, [""; 0]);
}
