use serde_json::json;

use super::*;
use crate::{
    resource::Registry,
    store::{Store, WriteOptions},
    testing,
};

fn allocator((store, registry): &(Store, Registry)) -> ServiceAddresses {
    let range = "10.96.0.0/16".parse().unwrap();
    ServiceAddresses::new(range, 30000..=32767, registry, Arc::clone(&store.cache)).unwrap()
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
        "type": "NodePort", "clusterIP": "10.96.3.3", "clusterIPs": ["10.96.3.3"],
        "ports": [{"port": 80, "nodePort": 30080}]}})
}

async fn write((store, registry): &(Store, Registry), object: Value) -> Result<(), Status> {
    let services = registry.core("services").unwrap();
    store
        .create(services, "default", object, WriteOptions::default())
        .await
        .map(drop)
}

#[tokio::test]
async fn a_dropped_reservation_frees_nothing_that_may_have_been_written() {
    let kept = testing::started().await;
    let addresses = allocator(&kept);
    addresses.catch_up().await.unwrap();
    for has_shown in [true, false] {
        let mut reservation = addresses.fill(None, &mut service("a")).unwrap();
        reservation.sent();
        // Through, and nobody waits for the answer.
        write(&kept, service("a")).await.unwrap();
        if has_shown {
            addresses.catch_up().await.unwrap();
        }
        drop(reservation);
        assert!(
            addresses.fill(None, &mut service("b")).is_err(),
            "shown: {has_shown}"
        );
        addresses.catch_up().await.unwrap();
        assert!(
            addresses.fill(None, &mut service("b")).is_err(),
            "shown: {has_shown}"
        );
        let services = kept.1.core("services").unwrap();
        kept.0
            .delete(services, "default", "a", &Default::default())
            .await
            .unwrap();
        addresses.catch_up().await.unwrap();
        addresses.fill(None, &mut service("b")).unwrap().free();
    }
}

#[tokio::test]
async fn a_freed_reservation_is_free_at_once_and_a_lost_one_in_time() {
    let kept = testing::started().await;
    let addresses = allocator(&kept);
    addresses.fill(None, &mut service("a")).unwrap().free();
    // Given up before anything was sent.
    drop(addresses.fill(None, &mut service("a")).unwrap());
    let mut lost = addresses.fill(None, &mut service("a")).unwrap();
    lost.sent();
    drop(lost);
    assert!(addresses.fill(None, &mut service("b")).is_err());
    let later = Instant::now() + SETTLE + Duration::from_secs(1);
    addresses.state.lock().settle(later);
    addresses.fill(None, &mut service("b")).unwrap().free();
}

#[tokio::test]
async fn what_is_reserved_stays_so_when_all_is_read_anew() {
    let kept = testing::started().await;
    let addresses = allocator(&kept);
    let reservation = addresses.fill(None, &mut service("a")).unwrap();
    addresses.state.lock().reload(&addresses.services);
    assert!(addresses.fill(None, &mut service("b")).is_err());
    reservation.free();
    addresses.fill(None, &mut service("b")).unwrap().free();
}

#[tokio::test]
async fn the_store_itself_refuses_an_address_twice() {
    let kept = testing::started().await;
    write(&kept, service("a")).await.unwrap();
    assert!(write(&kept, service("b")).await.is_err());
}
