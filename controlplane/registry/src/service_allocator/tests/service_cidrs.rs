//! Which of several ServiceCIDRs an address comes from.

use ipnet::Ipv4Net;

use super::*;

fn terminating() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn plain(name: &str) -> Value {
    service(name, json!({"ports": [{"port": 80}]}))
}

fn chosen(ip: &str) -> Value {
    service("x", json!({"clusterIP": ip, "ports": [{"port": 80}]}))
}

/// Makes Services until nothing is left; what they got, in turn.
async fn drawn_out(kept: &(Store, Registry), allocators: &Allocators) -> Vec<Ipv4Addr> {
    let mut drawn = Vec::new();
    loop {
        let mut new = plain(&format!("s{}", drawn.len()));
        if let Err(full) = allocators.allocate(None, &mut new, Try::default()).await {
            let said = "Internal error occurred: failed to allocate a serviceIP: range is full";
            assert_eq!(full.message, said);
            return drawn;
        }
        drawn.push(new["spec"]["clusterIP"].as_str().unwrap().parse().unwrap());
        write(kept, new).await.unwrap();
        assert!(drawn.len() < 100);
    }
}

#[tokio::test]
async fn a_second_range_is_drawn_from_when_the_first_is_full() {
    let kept = started().await;
    // Older, but not the cluster's own; and one that goes.
    put_range(&kept, "a", "10.97.0.0/29", ready("True")).await;
    put_range(&kept, "b", "10.98.0.0/29", terminating()).await;
    put_range(&kept, "c", "10.99.0.0/29", ready("False")).await;
    let drawn = drawn_out(&kept, &allocator(&kept)).await;
    let first: Ipv4Net = "10.96.0.0/28".parse().unwrap();
    let second: Ipv4Net = "10.97.0.0/29".parse().unwrap();
    assert!(drawn[..13].iter().all(|ip| first.contains(ip)), "{drawn:?}");
    // Its first address is nobody's in particular.
    let mut rest = drawn[13..].to_vec();
    rest.sort_unstable();
    assert!(rest.into_iter().eq(second.hosts()), "{drawn:?}");
}

#[tokio::test]
async fn each_range_has_a_part_for_those_who_choose() {
    let kept = testing::started().await;
    put_range(&kept, "a", "10.97.0.0/27", ready("True")).await;
    let drawn = drawn_out(&kept, &allocator(&kept)).await;
    assert_eq!(drawn.len(), 30);
    let chosen = Ipv4Addr::new(10, 97, 0, 17);
    assert!(drawn[..14].iter().all(|ip| *ip >= chosen), "{drawn:?}");
    assert!(drawn[14..].iter().all(|ip| *ip < chosen), "{drawn:?}");
}

#[tokio::test]
async fn an_address_of_any_ready_range_can_be_chosen() {
    let kept = started().await;
    let allocators = allocator(&kept);
    let refusal = |ip| {
        format!(
            "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: the provided network does not match the current range"
        )
    };
    let ip = "10.97.0.6";
    assert_eq!(refused(&allocators, chosen(ip), &[]).await, refusal(ip));
    for (state, is_given) in [
        (json!({}), true),
        (ready("True"), true),
        (ready("False"), false),
        (ready("Unknown"), false),
        (terminating(), false),
    ] {
        put_range(&kept, "a", "10.97.0.0/29", state.clone()).await;
        if is_given {
            assert_eq!(
                filled(&allocators, chosen(ip)).await["spec"]["clusterIP"],
                ip
            );
        } else {
            let said = refused(&allocators, chosen(ip), &[]).await;
            assert_eq!(said, refusal(ip), "{state}");
        }
    }
    // Another ServiceCIDR says the same range.
    put_range(&kept, "b", "10.97.0.0/24", ready("True")).await;
    filled(&allocators, chosen(ip)).await;
}

#[tokio::test]
async fn what_a_service_has_of_a_range_that_is_gone_it_keeps() {
    let kept = started().await;
    let allocators = allocator(&kept);
    let old = chosen("10.97.0.6");
    let mut new = old.clone();
    let allocated = allocators.allocate(Some(&old), &mut new, Try::default());
    allocated.await.unwrap();
    assert_eq!(new["spec"]["clusterIP"], "10.97.0.6");
}

#[tokio::test]
async fn without_any_range_nothing_is_given_out() {
    let kept = testing::started().await;
    let allocators = allocator(&kept);
    assert!(drawn_out(&kept, &allocators).await.is_empty());
    put_range(&kept, "six", "fd00::/112", ready("True")).await;
    assert!(drawn_out(&kept, &allocators).await.is_empty());
    for dry_run in [false, true] {
        let attempt = Try { lost: &[], dry_run };
        let mut new = chosen("10.96.0.9");
        let refused = allocators.allocate(None, &mut new, attempt).await;
        let said = refused.unwrap_err().message;
        assert!(said.ends_with(": the provided network does not match the current range"));
    }
}

#[tokio::test]
async fn an_address_that_somebody_wrote_an_object_for_is_not_drawn() {
    let kept = testing::started().await;
    put_range(&kept, "a", "10.97.0.0/29", ready("True")).await;
    let (store, registry) = &kept;
    let kind = registry.get("networking.k8s.io", "v1", "ipaddresses");
    let gateway =
        json!({"group": "gateway.networking.k8s.io", "resource": "gateways", "name": "g"});
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": "10.97.0.3"}, "spec": {"parentRef": gateway}});
    let made = store.create(kind.unwrap(), "", object, WriteOptions::default());
    made.await.unwrap();
    let drawn = drawn_out(&kept, &allocator(&kept)).await;
    assert_eq!(drawn.len(), 5);
    assert!(!drawn.contains(&Ipv4Addr::new(10, 97, 0, 3)), "{drawn:?}");
}
