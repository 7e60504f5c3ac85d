use super::*;
use crate::{ApiServer, registry::store::WriteOptions, testing};

fn allocator(server: &ApiServer) -> ServiceAddresses {
    let range = testing::SERVICE_CIDR.parse().unwrap();
    ServiceAddresses::new(range, 30000..=32767, &server.registry, Arc::clone(&server.store.cache)).unwrap()
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
        "type": "NodePort", "clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"],
        "ports": [{"port": 80, "nodePort": 30080}]}})
}

async fn write(server: &ApiServer, object: Value) -> Result<(), Status> {
    let services = server.registry.core("services").unwrap();
    server.store.create(services, "default", object, WriteOptions::default()).await.map(drop)
}

#[tokio::test]
async fn a_dropped_reservation_frees_nothing_that_may_have_been_written() {
    let server = testing::server().await;
    let addresses = allocator(&server);
    addresses.catch_up().await.unwrap();
    for has_shown in [true, false] {
        let reservation = addresses.fill(None, &mut service("a")).unwrap();
        // Through, and nobody waits for the answer.
        write(&server, service("a")).await.unwrap();
        if has_shown {
            addresses.catch_up().await.unwrap();
        }
        drop(reservation);
        assert!(addresses.fill(None, &mut service("b")).is_err(), "shown: {has_shown}");
        addresses.catch_up().await.unwrap();
        assert!(addresses.fill(None, &mut service("b")).is_err(), "shown: {has_shown}");
        let services = server.registry.core("services").unwrap();
        server.store.delete(services, "default", "a", &Default::default()).await.unwrap();
        addresses.catch_up().await.unwrap();
        addresses.fill(None, &mut service("b")).unwrap().free();
    }
}

#[tokio::test]
async fn a_freed_reservation_is_free_at_once_and_a_lost_one_in_time() {
    let server = testing::server().await;
    let addresses = allocator(&server);
    addresses.fill(None, &mut service("a")).unwrap().free();
    drop(addresses.fill(None, &mut service("a")).unwrap());
    assert!(addresses.fill(None, &mut service("b")).is_err());
    let later = Instant::now() + SETTLE + Duration::from_secs(1);
    addresses.state.lock().settle(later);
    addresses.fill(None, &mut service("b")).unwrap().free();
}

#[tokio::test]
async fn what_is_reserved_stays_so_when_all_is_read_anew() {
    let server = testing::server().await;
    let addresses = allocator(&server);
    let reservation = addresses.fill(None, &mut service("a")).unwrap();
    addresses.state.lock().reload(&addresses.services);
    assert!(addresses.fill(None, &mut service("b")).is_err());
    reservation.free();
    addresses.fill(None, &mut service("b")).unwrap().free();
}

#[tokio::test]
async fn the_store_itself_refuses_an_address_twice() {
    let server = testing::server().await;
    write(&server, service("a")).await.unwrap();
    assert!(write(&server, service("b")).await.is_err());
}
