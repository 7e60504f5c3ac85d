mod races;
mod refusals;
mod service_cidrs;
mod shared_ports;

use coracle_store::Op;
use serde_json::json;

use super::{allocation::Allocation, *};
use crate::{
    encode,
    store::{Store, WriteOptions, amend::Amendment},
    testing,
};

/// With the ServiceCIDR that the server makes.
async fn started() -> (Store, Registry) {
    let kept = testing::started().await;
    put_range(&kept, "kubernetes", "10.96.0.0/28", json!({})).await;
    kept
}

/// A ServiceCIDR as it is in the store, with what else is to be in it: `metadata` and `status`.
pub(super) async fn put_range(
    (store, registry): &(Store, Registry),
    name: &str,
    cidr: &str,
    more: Value,
) {
    let kind = registry.get("networking.k8s.io", "v1", "servicecidrs");
    let mut object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": name, "uid": name}, "spec": {"cidrs": [cidr]}});
    for (field, value) in more["metadata"].as_object().into_iter().flatten() {
        object["metadata"][field] = value.clone();
    }
    object["status"] = more["status"].clone();
    let op = Op::Put {
        key: kind.unwrap().key("", name).into(),
        value: encode::encode(&object).unwrap(),
    };
    let compare = Vec::new();
    store.amend(vec![Amendment { compare, op }]).await.unwrap();
}

/// Fourteen allocators, of which one is the `kubernetes` Service's, and few ports.
fn allocator((store, registry): &(Store, Registry)) -> Allocators {
    let (range, cache) = ("10.96.0.0/28".parse().unwrap(), Arc::clone(&store.cache));
    Allocators::new(range, 30000..=30003, registry, cache).unwrap()
}

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn node_port(name: &str, ports: Value) -> Value {
    service(name, json!({"type": "NodePort", "ports": ports}))
}

async fn write((store, registry): &(Store, Registry), object: Value) -> Result<(), Status> {
    let services = registry.core("services").unwrap();
    let made = store.create(services, "default", object, WriteOptions::default());
    made.await.map(drop)
}

fn losing(lost: &[Arc<str>]) -> Try<'_> {
    Try {
        lost,
        dry_run: false,
    }
}

async fn filled(allocators: &Allocators, mut new: Value) -> Value {
    let allocated = allocators.allocate(None, &mut new, Try::default()).await;
    allocated.unwrap();
    new
}

/// What the client is told of it.
async fn refused(allocators: &Allocators, mut new: Value, lost: &[Arc<str>]) -> String {
    let allocated = allocators.allocate(None, &mut new, losing(lost)).await;
    allocated.unwrap_err().message
}

#[tokio::test]
async fn all_of_a_range_are_given_out_and_none_twice() {
    let kept = started().await;
    let allocators = allocator(&kept);
    let mut seen = BTreeSet::new();
    for n in 0..13 {
        let mut new = service(&format!("s{n}"), json!({"ports": [{"port": 80}]}));
        allocators
            .allocate(None, &mut new, Try::default())
            .await
            .unwrap();
        let address = meta::get_str(&new, &["spec", "clusterIP"]).to_owned();
        assert!(seen.insert(address), "{new}");
        write(&kept, new).await.unwrap();
    }
    let full = refused(&allocators, service("x", json!({})), &[]).await;
    assert!(full.contains("range is full"), "{full}");
}

#[tokio::test]
async fn what_was_lost_is_not_drawn_again_and_refused_if_it_was_chosen() {
    let allocators = allocator(&started().await);
    let of = |port| Allocation::Port(port).key();
    for left in 30000..=30003_u16 {
        let lost: Vec<_> = (30000..=30003)
            .filter(|port| *port != left)
            .map(of)
            .collect();
        let mut new = node_port("a", json!([{"port": 80}]));
        allocators
            .allocate(None, &mut new, losing(&lost))
            .await
            .unwrap();
        assert_eq!(new["spec"]["ports"][0]["nodePort"], left);
    }
    let chosen = node_port("a", json!([{"port": 80, "nodePort": 30002}]));
    let said = refused(&allocators, chosen, &[of(30002)]).await;
    assert!(
        said.contains(
            "spec.ports[0].nodePort: Invalid value: 30002: provided port is already allocated"
        ),
        "{said}"
    );
    let address = "10.96.0.9";
    let chosen = service("a", json!({"clusterIP": address}));
    let lost = [Allocation::Address(address.parse().unwrap()).key()];
    let said = refused(&allocators, chosen, &lost).await;
    assert!(
        said.contains("failed to allocate IP 10.96.0.9: provided IP is already allocated"),
        "{said}"
    );
}

#[tokio::test]
async fn ports_of_one_service_are_its_own() {
    let kept = started().await;
    let allocators = allocator(&kept);
    // The chosen one comes last, and is not drawn for those before it.
    let port = |name: &str, protocol: &str, node_port: u16| json!({"name": name, "port": 80, "protocol": protocol, "nodePort": node_port});
    let mut ports: Vec<Value> = ["a", "b", "c"].map(|name| port(name, "TCP", 0)).to_vec();
    for (at, one) in ports.iter_mut().enumerate() {
        one["port"] = (at + 1).into();
    }
    ports.extend([port("t", "TCP", 30001), port("u", "UDP", 30001)]);
    let mut new = node_port("a", ports.into());
    allocators
        .allocate(None, &mut new, Try::default())
        .await
        .unwrap();
    let drawn: BTreeSet<_> = (0..3)
        .map(|at| new["spec"]["ports"][at]["nodePort"].as_u64().unwrap())
        .collect();
    assert_eq!(drawn, BTreeSet::from([30000, 30002, 30003]));
    write(&kept, new.clone()).await.unwrap();
    // What it has, it may have again.
    allocators
        .allocate(Some(&new.clone()), &mut new, Try::default())
        .await
        .unwrap();
    assert!(
        write(
            &kept,
            node_port("b", json!([{"port": 80, "nodePort": 30000}]))
        )
        .await
        .is_err()
    );
}

#[tokio::test]
async fn a_service_gets_no_more_than_a_transaction_can_write() {
    let (store, registry) = started().await;
    let (range, cache) = ("10.96.0.0/28".parse().unwrap(), Arc::clone(&store.cache));
    let allocators = Allocators::new(range, 30000..=32767, &registry, cache).unwrap();
    // One of them is the address.
    let most = u16::try_from(MOST_AT_ONCE).unwrap() - 1;
    let ports = |count: u16| -> Value {
        let port = |port: u16| json!({"name": format!("p{port}"), "port": port});
        (1..=count).map(port).collect()
    };
    let mut new = node_port("a", ports(most));
    allocators
        .allocate(None, &mut new, Try::default())
        .await
        .unwrap();
    let kept = (store, registry);
    write(&kept, new).await.unwrap();
    let more = refused(&allocators, node_port("b", ports(most + 1)), &[]).await;
    assert!(
        more.contains("more than 100 cannot be allocated at once"),
        "{more}"
    );
}

#[tokio::test]
async fn the_store_itself_refuses_an_address_twice() {
    let kept = started().await;
    let chosen = |name| {
        service(
            name,
            json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}),
        )
    };
    write(&kept, chosen("a")).await.unwrap();
    assert_eq!(write(&kept, chosen("b")).await.unwrap_err().code, 500);
    let port = |name| node_port(name, json!([{"port": 80, "nodePort": 30000}]));
    write(&kept, port("c")).await.unwrap();
    assert_eq!(write(&kept, port("d")).await.unwrap_err().code, 500);
}

#[tokio::test]
async fn first_address_is_kept_for_the_service_of_the_api() {
    let allocators = allocator(&started().await);
    let first = json!({"clusterIP": "10.96.0.1"});
    let said = refused(&allocators, service("a", first.clone()), &[]).await;
    assert!(said.contains("provided IP is already allocated"), "{said}");
    let mut new = service("kubernetes", first.clone());
    allocators
        .allocate(None, &mut new, Try::default())
        .await
        .unwrap();
    // One that has it already, of an older release, may be written.
    let (old, mut new) = (service("a", first.clone()), service("a", first));
    allocators
        .allocate(Some(&old), &mut new, Try::default())
        .await
        .unwrap();
}
