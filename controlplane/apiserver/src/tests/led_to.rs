//! Endpoints and EndpointSlice of the `kubernetes` Service: what others change is put right.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::Raw;
use crate::testing;

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

fn servers(addresses: &[&str]) -> Vec<SocketAddr> {
    addresses.iter().map(|one| one.parse().unwrap()).collect()
}

async fn read(raw: &Raw, path: &str) -> Value {
    let (code, object) = raw.get(path).await;
    assert_eq!(code, 200, "{object}");
    object
}

#[tokio::test]
async fn labels_that_others_change_are_put_right_and_theirs_stay() {
    let server = testing::server().await;
    let raw = Raw::of(&server, UserInfo::master("test"));
    let led_to = servers(&["198.18.0.1:6443", "198.18.0.2:6443"]);
    server.lead_to(&led_to).await.unwrap();
    for (path, label, value) in [
        (ENDPOINTS, SKIP_MIRROR, "true"),
        (SLICE, SERVICE_NAME, "kubernetes"),
    ] {
        for broken in [
            json!({"mine": "1", label: "other"}),
            json!({"mine": "1"}),
            Value::Null,
        ] {
            let mut object = read(&raw, path).await;
            object["metadata"]["labels"] = broken.clone();
            let (code, answer) = raw.put(path, object).await;
            assert_eq!(code, 200, "{answer}");
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                // It goes by what it sees, which may be of a moment ago.
                server.lead_to(&led_to).await.unwrap();
                let labels = read(&raw, path).await["metadata"]["labels"].clone();
                if labels[label] == value {
                    assert_eq!(labels["mine"], broken["mine"], "{path}");
                    break;
                }
                assert!(Instant::now() < deadline, "{path} {broken}: {labels}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let before = read(&raw, path).await;
        server.lead_to(&led_to).await.unwrap();
        assert_eq!(read(&raw, path).await, before, "nothing to put right");
    }
}

#[tokio::test]
async fn a_slice_for_addresses_of_another_family_is_made_anew() {
    let server = testing::server().await;
    let raw = Raw::of(&server, UserInfo::master("test"));
    server
        .lead_to(&servers(&["198.18.0.1:6443"]))
        .await
        .unwrap();
    let before = read(&raw, SLICE).await;
    assert_eq!(before["addressType"], "IPv4");
    server.lead_to(&servers(&["[fd00::1]:6443"])).await.unwrap();
    let after = read(&raw, SLICE).await;
    assert_eq!(after["addressType"], "IPv6");
    assert_eq!(after["endpoints"][0]["addresses"], json!(["fd00::1"]));
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let subsets = read(&raw, ENDPOINTS).await["subsets"].clone();
    assert_eq!(subsets[0]["addresses"][0]["ip"], "fd00::1");
}
