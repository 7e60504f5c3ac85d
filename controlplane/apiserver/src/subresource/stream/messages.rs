//! Answers that last, as messages of a WebSocket: a watch's events as texts, a log's bytes as they
//! come.
//!
//! The client has nothing to say; what it sends is read and dropped, so that its pings are answered
//! and its leaving is noticed. One that does not read is let go.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/watch.go`, `HandleWS`, and
//! `k8s.io/apimachinery/pkg/util/httpstream/wsstream/stream.go` at v1.37.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use coracle_api::status::Status;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Response, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::{
    Message, Utf8Bytes,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use super::{UPGRADE_TIMEOUT, carrier, negotiate};
use crate::{body::Body, state::State};

/// Sockets at a time: they outlive what counts connections.
static SOCKETS: Semaphore = Semaphore::const_new(1000);
const RETRY_SECS: u32 = 1;
/// For the client to take one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// For the client to take the end.
const FAREWELL: Duration = Duration::from_secs(10);

/// How an answer becomes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A text for every line.
    Lines,
    /// Bytes as they come.
    Binary,
    /// The same, readable.
    Base64,
}

impl Framing {
    fn messages(self, piece: &Bytes) -> Vec<Message> {
        match self {
            Self::Lines => {
                let lines = piece.split_inclusive(|byte| *byte == b'\n');
                let texts =
                    lines.filter_map(|line| Utf8Bytes::try_from(piece.slice_ref(line)).ok());
                texts.map(Message::Text).collect()
            }
            Self::Binary => vec![Message::Binary(piece.clone())],
            Self::Base64 => vec![Message::text(BASE64_STANDARD.encode(piece))],
        }
    }
}

/// Whether the request wants to become a WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    text(header::UPGRADE).eq_ignore_ascii_case("websocket")
        && text(header::CONNECTION)
            .split(',')
            .any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
}

/// The subprotocol of a log that both sides know, and what it means.
///
/// # Errors
/// 400 if there is none.
pub(super) fn of_log(headers: &HeaderMap) -> Result<(&'static str, Framing), Status> {
    let mut offered = negotiate::subprotocols(headers).peekable();
    if offered.peek().is_none() {
        return Ok(("", Framing::Binary));
    }
    let known = offered.find_map(|name| match name {
        "binary.k8s.io" => Some(("binary.k8s.io", Framing::Binary)),
        "base64.binary.k8s.io" => Some(("base64.binary.k8s.io", Framing::Base64)),
        _ => None,
    });
    known.ok_or_else(|| {
        Status::bad_request(
            "requested protocol(s) are not supported: supports binary.k8s.io, base64.binary.k8s.io",
        )
    })
}

/// Sends a watch's events.
pub(crate) fn watch(server: &State, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
    // Whatever it is called: there is only one way.
    let protocol = negotiate::subprotocols(&parts.headers)
        .next()
        .unwrap_or_default();
    send(server, parts, body, (protocol, Framing::Lines))
}

/// Agrees to the upgrade, and sends `body` once it is through.
pub(super) fn send(
    server: &State,
    parts: &Parts,
    body: Body,
    (protocol, framing): (&str, Framing),
) -> Result<Response<Body>, Status> {
    let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
        return Err(Status::bad_request("this connection cannot be upgraded"));
    };
    let permit = SOCKETS
        .try_acquire()
        .map_err(|_| Status::too_many_requests(RETRY_SECS))?;
    let answer = negotiate::websocket(&parts.headers, protocol)?;
    let shutdown = server.shutdown.clone();
    coracle_telemetry::spawn("messages", async move {
        let _permit = permit;
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = speak(client, body, framing) => {}
        }
    });
    Ok(answer)
}

async fn speak(client: OnUpgrade, mut body: Body, framing: Framing) {
    let Ok(Ok(upgraded)) = tokio::time::timeout(UPGRADE_TIMEOUT, client).await else {
        return;
    };
    let (mut sink, mut incoming) = carrier::websocket(upgraded, Role::Server).await.split();
    let sending = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            for message in framing.messages(&piece) {
                if !matches!(
                    tokio::time::timeout(SEND_TIMEOUT, sink.send(message)).await,
                    Ok(Ok(()))
                ) {
                    return;
                }
            }
        }
    };
    let listening = async {
        while let Some(Ok(message)) = incoming.next().await
            && !message.is_close()
        {}
    };
    tokio::select! {
        () = sending => {}
        () = listening => {}
    }
    let farewell = async {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = sink.send(Message::Close(Some(frame))).await;
        // What is unread would make the kernel forget what is unsent.
        while let Some(Ok(_)) = incoming.next().await {}
    };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_texts_and_bytes_stay_together() {
        let piece = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
        let texts: Vec<String> = Framing::Lines
            .messages(&piece)
            .into_iter()
            .map(|one| one.to_string())
            .collect();
        assert_eq!(texts, ["{\"a\":1}\n", "{\"b\":2}\n"]);
        assert_eq!(
            Framing::Binary.messages(&piece),
            [Message::Binary(piece.clone())]
        );
        assert_eq!(
            Framing::Base64.messages(&Bytes::from_static(b"abc")),
            [Message::text("YWJj")]
        );
    }

    #[test]
    fn logs_have_their_own_subprotocols() {
        let of = |offered: &str| {
            let headers = [(header::SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap())]
                .into_iter()
                .collect();
            of_log(&headers).map_err(|status| status.code)
        };
        assert_eq!(of_log(&HeaderMap::new()).ok(), Some(("", Framing::Binary)));
        assert_eq!(of("binary.k8s.io"), Ok(("binary.k8s.io", Framing::Binary)));
        assert_eq!(
            of("x, base64.binary.k8s.io"),
            Ok(("base64.binary.k8s.io", Framing::Base64))
        );
        assert_eq!(of("v4.channel.k8s.io"), Err(400));
    }
}
