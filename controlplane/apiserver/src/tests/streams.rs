//! Streams from a node, against a node that this test plays.

mod agent;
mod messages;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use coracle_auth::user::UserInfo;
use rustls::RootCertStore;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::TlsConnector;

use super::raw::{CONFIG_MAPS, PODS, Raw, config_map, pod};
use crate::testing::{self, Listening};
use agent::{Then, agent, node, old_serving};

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n";

/// A server with a pod on a node that answers so.
async fn cluster(answer: &'static str) -> Listening {
    cluster_with(answer, Then::Echo).await
}

async fn cluster_with(answer: &'static str, then: Then) -> Listening {
    let listening = testing::listen(testing::local_server().await).await;
    let address = node(&listening.server.state.config.pki, "n1", answer, then).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    make_node(&admin, "n1", address).await;
    let mut object = pod("x");
    object["spec"]["nodeName"] = "n1".into();
    assert_eq!(admin.post(PODS, object).await.0, 201);
    listening
}

/// A Node whose status says that its agent listens there.
async fn make_node(admin: &Raw, name: &str, address: SocketAddr) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    assert_eq!(admin.post("/api/v1/nodes", node).await.0, 201);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    assert_eq!(
        admin
            .merge(&format!("/api/v1/nodes/{name}/status"), status)
            .await
            .0,
        200
    );
}

type Client = tokio_rustls::client::TlsStream<TcpStream>;

/// A client's side of an upgrade: the stream after the request was sent, and the head of the
/// answer.
async fn upgrade(listening: &Listening) -> (Client, String) {
    let path = format!("{PODS}/x/exec?command=ls&stdout=true");
    ask(
        listening,
        &path,
        "sec-websocket-protocol: v5.channel.k8s.io\r\n",
    )
    .await
}

async fn ask(listening: &Listening, path: &str, headers: &str) -> (Client, String) {
    let pki = &listening.server.state.config.pki;
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca.chain().unwrap().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(pki.admin.chain().unwrap(), pki.admin.key().unwrap())
        .unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // A slow client.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let stream = socket.connect(listening.address).await.unwrap();
    let name = ServerName::IpAddress(listening.address.ip().into());
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         {headers}sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn upgraded_stream_is_relayed_both_ways() {
    let listening = cluster(SWITCHING).await;
    let (mut stream, head) = upgrade(&listening).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("v5.channel.k8s.io"), "{head}");
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"HELLO");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_bytes_of_a_node_that_breaks_off_are_relayed() {
    for length in [1, 1_833, 100_000, 12_001_833] {
        let listening = cluster_with(SWITCHING, Then::Burst(length)).await;
        for round in 0..5 {
            let (stream, _) = upgrade(&listening).await;
            let (mut reader, mut writer) = tokio::io::split(stream);
            let chatter = coracle_telemetry::spawn("task of a test", async move {
                // Heartbeats that come when nobody is left to hear them.
                while writer.write_all(b"beat").await.is_ok() && writer.flush().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            let mut got = Vec::new();
            let ended = reader.read_to_end(&mut got).await;
            assert_eq!(got.len(), length, "round {round}: {ended:?}");
            assert!(ended.is_ok(), "round {round}: {ended:?}");
            chatter.abort();
        }
    }
}

#[tokio::test]
async fn refused_upgrades_are_answers_and_nothing_follows() {
    for (answer, expect) in [
        (
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nnope",
            "HTTP/1.1 400",
        ),
        (
            "HTTP/1.1 500 Broken\r\ncontent-length: 4\r\n\r\nnope",
            "HTTP/1.1 500",
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: https://192.0.2.1/\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 502",
        ),
    ] {
        let listening = cluster(answer).await;
        let (_, head) = upgrade(&listening).await;
        assert!(head.starts_with(expect), "{head}");
        assert!(!head.to_lowercase().contains("location"), "{head}");
    }
}

#[tokio::test]
async fn logs_are_the_nodes_bytes_and_its_errors_the_clients() {
    let listening = cluster("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nline 1").await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    assert_eq!(
        admin.get(&format!("{PODS}/x/log")).await,
        (200, json!("line 1"))
    );
    let waiting = "HTTP/1.1 400 Bad Request\r\ncontent-length: 65\r\n\r\ncontainer \"c\" in pod \"x\" is waiting to start: ContainerCreating  \n";
    let listening = cluster(waiting).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let (code, answer) = admin.get(&format!("{PODS}/x/log")).await;
    assert_eq!(
        (code, &answer["reason"]),
        (400, &json!("BadRequest")),
        "{answer}"
    );
    assert_eq!(
        answer["message"],
        "container \"c\" in pod \"x\" is waiting to start: ContainerCreating"
    );
}

#[tokio::test]
async fn node_that_is_gone_is_said_so() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let mut object = pod("x");
    object["spec"]["nodeName"] = "gone".into();
    admin.post(PODS, object).await;
    let (code, answer) = admin.get(&format!("{PODS}/x/log")).await;
    assert_eq!(
        (code, &answer["message"]),
        (404, &json!("nodes \"gone\" not found"))
    );
}

#[tokio::test]
async fn metrics_of_nodes_and_pods_come_from_the_nodes() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 122\r\n\r\n\
        {\"node\":{\"cpu\":{\"time\":\"2026-01-01T00:00:00Z\",\"usageNanoCores\":250000000},\"memory\":{\"workingSetBytes\":1048576}},\"pods\":[]}";
    let listening = cluster(answer).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let (code, list) = admin.get("/apis/metrics.k8s.io/v1beta1/nodes").await;
    assert_eq!(
        (code, &list["kind"]),
        (200, &json!("NodeMetricsList")),
        "{list}"
    );
    assert_eq!(list["items"][0]["metadata"]["name"], "n1");
    assert_eq!(
        list["items"][0]["usage"],
        json!({"cpu": "250000000n", "memory": "1024Ki"})
    );
    let (code, one) = admin.get("/apis/metrics.k8s.io/v1beta1/nodes/n1").await;
    assert_eq!(
        (code, &one["kind"], &one["timestamp"]),
        (200, &json!("NodeMetrics"), &json!("2026-01-01T00:00:00Z"))
    );
    let (code, none) = admin
        .get("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
        .await;
    assert_eq!((code, &none["items"]), (200, &json!([])), "{none}");
    assert_eq!(
        admin.get("/apis/metrics.k8s.io/v1beta1/nodes/n2").await.0,
        404
    );
    assert_eq!(
        admin.get("/apis/metrics.k8s.io/v1beta1/nothing").await.0,
        404
    );
    let (code, group) = admin.get("/apis/metrics.k8s.io/v1beta1").await;
    assert_eq!(
        (code, &group["resources"][1]["kind"]),
        (200, &json!("PodMetrics")),
        "{group}"
    );
}

#[tokio::test]
async fn what_a_node_claims_to_be_is_asked_for_nothing_unless_it_is_the_node() {
    let listening = cluster("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    assert_eq!(
        admin.get("/api/v1/nodes/n1/proxy/healthz").await,
        (200, json!("ok"))
    );
    // The API server itself.
    make_node(&admin, "fake", listening.address).await;
    let path = "/api/v1/nodes/fake/proxy/api/v1/namespaces/kube-system/secrets";
    let (code, answer) = admin.get(path).await;
    assert_eq!(code, 500, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .ends_with("tls: the certificate is not that of node \"fake\""),
        "{answer}"
    );
    // Another node.
    let other = node(
        &listening.server.state.config.pki,
        "n2",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        Then::Echo,
    )
    .await;
    make_node(&admin, "n3", other).await;
    let (code, answer) = admin.get("/api/v1/nodes/n3/proxy/healthz").await;
    assert_eq!(code, 500, "{answer}");
}

#[tokio::test]
async fn agents_that_know_the_clusters_authority_alone_are_reached() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let listening = testing::listen(testing::local_server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let pki = &listening.server.state.config.pki;
    let old = agent(&pki.ca, &old_serving(pki, "old"), OK, Then::Echo).await;
    make_node(&admin, "old", old).await;
    assert_eq!(
        admin.get("/api/v1/nodes/old/proxy/healthz").await,
        (200, json!("ok"))
    );
    make_node(&admin, "other", old).await;
    assert_eq!(
        admin.get("/api/v1/nodes/other/proxy/healthz").await.0,
        500,
        "by its own name alone"
    );
}

#[tokio::test]
async fn addresses_that_are_no_nodes_are_not_dialled() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    for (name, address) in [
        ("loopback", "127.0.0.1:10250"),
        ("mapped", "[::ffff:127.0.0.1]:10250"),
        ("metadata", "169.254.169.254:80"),
        ("nowhere", "0.0.0.0:10250"),
        ("api", "198.18.0.1:6443"),
    ] {
        make_node(&admin, name, address.parse().unwrap()).await;
        let (code, answer) = admin
            .get(&format!("/api/v1/nodes/{name}/proxy/healthz"))
            .await;
        assert_eq!(code, 400, "{name}: {answer}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .ends_with("is not allowed"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn pages_come_through_the_proxy_with_their_links_below_it() {
    for is_secret in [false, true] {
        let listening = cluster_with(SWITCHING, Then::Page { is_secret }).await;
        let admin = Raw::of(&listening.server, UserInfo::master("test"));
        let prefix = format!(
            "{PODS}/{}x:8443/proxy",
            if is_secret { "https:" } else { "" }
        );
        let (code, page) = admin.get(&format!("{prefix}/a")).await;
        let expect = format!("<html><a href=\"{prefix}/rewriteme\">x</a> <b href=\"/y\">yy");
        assert_eq!((code, page), (200, json!(expect)), "with TLS: {is_secret}");
    }
}

#[tokio::test]
async fn every_method_goes_through_the_proxy_and_reads_are_sent_below_it() {
    let listening = cluster_with(SWITCHING, Then::Asked).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let web = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let subsets = json!([{"ports": [{"port": 8080}], "addresses": [{"ip": "10.244.0.9",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "x"}}]}]);
    let behind = json!({"metadata": {"name": "web"}, "subsets": subsets});
    let core = "/api/v1/namespaces/default";
    for (plural, object) in [("services", web), ("endpoints", behind)] {
        let (code, made) = admin.post(&format!("{core}/{plural}"), object).await;
        assert_eq!(code, 201, "{made}");
    }
    for prefix in [
        format!("{PODS}/x/proxy"),
        format!("{core}/services/web/proxy"),
    ] {
        for method in ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"] {
            let asked = |path: &str| match method {
                "HEAD" => json!(""),
                _ => json!(format!("{method} {path} HTTP/1.1")),
            };
            let path = format!("{prefix}/some/path?with={method}");
            let seen = admin.send(method, &path, "", "").await;
            let below = format!("/some/path?with={method}");
            assert_eq!(seen, (200, asked(&below)), "{method} {path}");
            let path = format!("{prefix}?method={method}");
            let (code, seen) = admin.send(method, &path, "", "").await;
            let expected = match method {
                "GET" | "HEAD" => (301, json!("")),
                _ => (200, asked(&format!("/?method={method}"))),
            };
            assert_eq!((code, seen), expected, "{method} {path}");
        }
    }
}
