//! Logs and watches as messages of a WebSocket.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::StreamExt as _;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::*;

/// Messages until the peer says goodbye.
async fn messages(stream: Client) -> Vec<Message> {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let mut all = Vec::new();
    while let Some(Ok(message)) = tokio::time::timeout(Duration::from_secs(60), socket.next())
        .await
        .unwrap()
    {
        match message {
            Message::Close(_) => return all,
            message => all.push(message),
        }
    }
    panic!("the connection ended without a word after {all:?}");
}

#[tokio::test]
async fn logs_are_messages_for_those_who_want_a_websocket() {
    for (header, protocol, expect) in [
        ("", "", Message::binary(b"line 1".as_slice())),
        (
            "sec-websocket-protocol: binary.k8s.io\r\n",
            "binary.k8s.io",
            Message::binary(b"line 1".as_slice()),
        ),
        (
            "sec-websocket-protocol: base64.binary.k8s.io\r\n",
            "base64.binary.k8s.io",
            Message::text(BASE64_STANDARD.encode("line 1")),
        ),
    ] {
        let listening = cluster("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nline 1").await;
        let (stream, head) = ask(&listening, &format!("{PODS}/x/log?container=c"), header).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert_eq!(
            head.contains("sec-websocket-protocol"),
            !protocol.is_empty(),
            "{head}"
        );
        assert!(head.contains(protocol), "{head}");
        assert_eq!(messages(stream).await, [expect]);
        let (_, head) = ask(
            &listening,
            &format!("{PODS}/x/log"),
            "sec-websocket-protocol: no.such\r\n",
        )
        .await;
        assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    }
}

#[tokio::test]
async fn events_are_messages_for_those_who_want_a_websocket() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    for name in ["a", "b"] {
        assert_eq!(admin.post(CONFIG_MAPS, config_map(name)).await.0, 201);
    }
    let (stream, head) = ask(
        &listening,
        &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"),
        "",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let names: Vec<_> = messages(stream)
        .await
        .into_iter()
        .map(|message| {
            let event: serde_json::Value =
                serde_json::from_str(message.to_text().unwrap()).unwrap();
            (
                event["type"].clone(),
                event["object"]["metadata"]["name"].clone(),
            )
        })
        .collect();
    assert_eq!(
        names,
        [(json!("ADDED"), json!("a")), (json!("ADDED"), json!("b"))]
    );
    let (_, head) = ask(&listening, "/api/v1/nosuch?watch=1", "").await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
}
