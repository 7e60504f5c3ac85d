//! Ranges of Services' addresses and the addresses themselves, as clients use them. The first two
//! retell upstream's conformance (`test/e2e/network/service_cidrs.go` at v1.37).

use serde_json::{Value, json};

use super::{
    raw::{Raw, admin},
    watches::Events,
};

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn make_range(raw: &Raw, name: &str, cidr: &str) {
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": name}, "spec": {"cidrs": [cidr]}});
    let (code, made) = raw.post(RANGES, range).await;
    assert_eq!(code, 201, "{made}");
}

fn service(name: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": ip, "ports": [{"port": 80}]}})
}

#[tokio::test]
async fn the_clusters_own_range_is_read_listed_and_watched() {
    let raw = admin().await;
    let (code, own) = raw.get(&format!("{RANGES}/kubernetes")).await;
    assert_eq!(code, 200, "{own}");
    let (code, status) = raw.get(&format!("{RANGES}/kubernetes/status")).await;
    assert_eq!((code, &status["kind"]), (200, &json!("ServiceCIDR")));
    assert_eq!(status["metadata"]["uid"], own["metadata"]["uid"]);
    let (_, list) = raw.get(RANGES).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    let since = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{RANGES}?watch=true&resourceVersion={since}");
    let mut events = Events::at(&raw, &path).await;
    make_range(&raw, "more", "203.0.113.0/24").await;
    events.expect("ADDED", "more").await;
}

#[tokio::test]
async fn an_address_of_somebody_else_lives_its_life() {
    let raw = admin().await;
    let parent =
        json!({"group": "mygroup", "resource": "myresources", "namespace": "foo", "name": "bar"});
    for (name, kind) in [
        ("255.255.255.255", "broadcast"),
        ("fe80::42:1dff:fe84:f9e2", "link-local"),
    ] {
        let address = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
            "metadata": {"name": name, "labels": {"type": kind}}, "spec": {"parentRef": parent}});
        let (code, made) = raw.post(ADDRESSES, address).await;
        assert_eq!(code, 201, "{made}");
    }
    let (own, labelled) = (format!("{ADDRESSES}/255.255.255.255"), |kind: &str| {
        format!("{ADDRESSES}?labelSelector=type%3D{kind}")
    });
    let note = json!({"metadata": {"annotations": {"patched": "true"}}});
    let (code, mut object) = raw.merge(&own, note).await;
    assert_eq!(
        (code, &object["metadata"]["annotations"]["patched"]),
        (200, &json!("true"))
    );
    object["metadata"]["annotations"]["updated"] = json!("true");
    let (code, updated) = raw.put(&own, object).await;
    assert_eq!(
        (code, &updated["metadata"]["annotations"]["updated"]),
        (200, &json!("true"))
    );
    let (_, list) = raw.get(&labelled("broadcast")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(raw.delete(&own, json!({})).await.0, 200);
    assert_eq!(raw.delete(&labelled("link-local"), json!({})).await.0, 200);
    for kind in ["broadcast", "link-local"] {
        let (_, list) = raw.get(&labelled(kind)).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "{list}");
    }
}

#[tokio::test]
async fn a_service_may_have_an_address_of_a_range_that_is_added() {
    let raw = admin().await;
    let (code, refused) = raw.post(SERVICES, service("a", "203.0.113.10")).await;
    assert_eq!(code, 422, "{refused}");
    make_range(&raw, "more", "203.0.113.0/24").await;
    let (code, made) = raw.post(SERVICES, service("a", "203.0.113.10")).await;
    assert_eq!(code, 201, "{made}");
    let (_, address) = raw.get(&format!("{ADDRESSES}/203.0.113.10")).await;
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    assert_eq!(address["spec"]["parentRef"], parent);
    // Without controllers nobody holds it. What it has given out stays given.
    assert_eq!(
        raw.delete(&format!("{RANGES}/more"), json!({})).await.0,
        200
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, changed) = raw.merge(&format!("{SERVICES}/a"), label).await;
    assert_eq!(code, 200, "{changed}");
    let (code, refused) = raw.post(SERVICES, service("b", "203.0.113.11")).await;
    assert_eq!(code, 422, "{refused}");
}
