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
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_tungstenite::tungstenite::{
    Message, Utf8Bytes,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use super::{UPGRADE_TIMEOUT, carrier, negotiate};
use crate::{body::Body, state::State};

/// Sockets at a time: they outlive what counts connections.
static SOCKETS: Semaphore = Semaphore::const_new(1000);
const RETRY_SECS: u32 = 1;
/// Bytes of lines that come in parts, of all sockets together: who finds no room is let go.
static LONG_LINES: Semaphore = Semaphore::const_new(16 << 20);
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

/// Cuts an answer's bytes into messages.
struct Cutter {
    framing: Framing,
    /// A line that has not come to its end.
    begun: Vec<u8>,
    room: Option<SemaphorePermit<'static>>,
}

impl Cutter {
    fn new(framing: Framing) -> Self {
        Self {
            framing,
            begun: Vec::new(),
            room: None,
        }
    }

    /// The messages of the next piece; `None` if there is no room for what it begins.
    fn messages(&mut self, piece: &Bytes) -> Option<Vec<Message>> {
        match self.framing {
            Framing::Lines => self.lines(piece),
            Framing::Binary => Some(vec![Message::Binary(piece.clone())]),
            Framing::Base64 => Some(vec![Message::text(BASE64_STANDARD.encode(piece))]),
        }
    }

    fn lines(&mut self, piece: &Bytes) -> Option<Vec<Message>> {
        let mut texts = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            if !is_end || !self.begun.is_empty() {
                let more = LONG_LINES
                    .try_acquire_many(u32::try_from(part.len()).ok()?)
                    .ok()?;
                match &mut self.room {
                    Some(room) => room.merge(more),
                    None => self.room = Some(more),
                }
                self.begun.extend_from_slice(part);
            }
            if !is_end {
                continue;
            }
            let line = match std::mem::take(&mut self.begun) {
                begun if begun.is_empty() => piece.slice_ref(part),
                begun => begun.into(),
            };
            texts.extend(Utf8Bytes::try_from(line).ok().map(Message::Text));
        }
        Some(texts)
    }

    /// What the messages were made of is no longer needed.
    fn sent(&mut self) {
        if self.begun.is_empty() {
            self.room = None;
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
    let mut cutter = Cutter::new(framing);
    let sending = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            let Some(messages) = cutter.messages(&piece) else {
                return;
            };
            for message in messages {
                if !matches!(
                    tokio::time::timeout(SEND_TIMEOUT, sink.send(message)).await,
                    Ok(Ok(()))
                ) {
                    return;
                }
            }
            cutter.sent();
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
        let texts = |cutter: &mut Cutter, piece: &'static [u8]| -> Vec<String> {
            let messages = cutter.messages(&Bytes::from_static(piece)).unwrap();
            messages.iter().map(ToString::to_string).collect()
        };
        let mut lines = Cutter::new(Framing::Lines);
        assert_eq!(
            texts(&mut lines, b"{\"a\":1}\n{\"b\":2}\n"),
            ["{\"a\":1}\n", "{\"b\":2}\n"]
        );
        assert!(texts(&mut lines, b"{\"long\"").is_empty());
        assert!(texts(&mut lines, b":").is_empty());
        assert_eq!(texts(&mut lines, b"1}\n{}\n"), ["{\"long\":1}\n", "{}\n"]);
        assert!(lines.room.is_some());
        lines.sent();
        assert!(lines.room.is_none());
        assert_eq!(texts(&mut Cutter::new(Framing::Binary), b"a\nb"), ["a\nb"]);
        assert_eq!(texts(&mut Cutter::new(Framing::Base64), b"abc"), ["YWJj"]);
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
