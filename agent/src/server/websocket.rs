//! WebSockets of the node's API: the upgrade, the choice of a subprotocol, and the end.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::reply::{self, Body, ReplyError};

/// A message of the peer may be this long, as upstream's `websocket.DefaultMaxPayloadBytes`:
/// kubectl sends 32 KiB at a time, but client libraries send whatever they are given in one piece.
const MAX_MESSAGE: usize = 32 << 20;

/// For the peer to take all that was sent: somebody may read it page by page.
const LINGER: Duration = Duration::from_secs(600);

/// How a channel and its bytes stand in a message. All subprotocols with `base64.` in their names
/// have texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A byte for the channel, and the bytes.
    Binary,
    /// A digit for the channel, and the bytes in base64.
    Base64,
}

impl Encoding {
    /// That of a subprotocol.
    pub(super) fn of(protocol: &str) -> Self {
        if protocol.contains("base64.") {
            Self::Base64
        } else {
            Self::Binary
        }
    }

    /// Bytes of a channel.
    pub(super) fn message(self, channel: u8, data: &[u8]) -> Message {
        match self {
            Self::Binary => {
                let mut bytes = Vec::with_capacity(data.len() + 1);
                bytes.push(channel);
                bytes.extend_from_slice(data);
                Message::Binary(Bytes::from(bytes))
            }
            Self::Base64 => {
                let digit = char::from(b'0'.saturating_add(channel));
                Message::text(format!("{digit}{}", BASE64_STANDARD.encode(data)))
            }
        }
    }

    /// The channel's byte and the bytes after it; `None` for what is neither data nor in this form.
    pub(super) fn read(self, message: Message) -> Option<Bytes> {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            _ => return None,
        };
        if self == Self::Binary {
            return Some(data);
        }
        let (digit, text) = data.split_first()?;
        let mut bytes = vec![digit.checked_sub(b'0')?];
        BASE64_STANDARD.decode_vec(text, &mut bytes).ok()?;
        Some(bytes.into())
    }
}

/// What a WebSocket is spoken on.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The connection after the upgrade.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// An upgrade that was asked for.
pub(super) struct Upgrade {
    upgrade: OnUpgrade,
    accept: String,
    /// The subprotocol both sides know; empty if the client named none.
    pub(super) protocol: &'static str,
}

impl Upgrade {
    /// Reads the request.
    ///
    /// # Errors
    /// 400 if it is no upgrade to a WebSocket with one of these subprotocols.
    pub(super) fn accept(
        request: &mut Request<Incoming>,
        known: &[&'static str],
    ) -> Result<Self, ReplyError> {
        let header = |name: header::HeaderName| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        if !header(header::UPGRADE).eq_ignore_ascii_case("websocket") {
            return Err(ReplyError::bad_request(
                "you must specify at least 1 of the supported upgrades: websocket",
            ));
        }
        let key = header(header::SEC_WEBSOCKET_KEY);
        if key.is_empty() {
            return Err(ReplyError::bad_request("Sec-WebSocket-Key is missing"));
        }
        let offered: Vec<&str> = request
            .headers()
            .get_all(header::SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        // An empty name is that of no subprotocol.
        let is_agreed =
            |known: &&&str| offered.contains(*known) || (offered.is_empty() && known.is_empty());
        let protocol = known.iter().find(is_agreed).copied();
        let protocol = protocol.ok_or_else(|| {
            ReplyError::bad_request(format!(
                "no subprotocol in common: this node knows {}",
                known.join(", ")
            ))
        })?;
        let accept = derive_accept_key(key.as_bytes());
        Ok(Self {
            upgrade: hyper::upgrade::on(request),
            accept,
            protocol,
        })
    }

    /// The answer, and the socket once it has been sent.
    pub(super) fn finish(
        self,
    ) -> Result<(Response<Body>, impl Future<Output = Option<Socket>>), ReplyError> {
        let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let accept =
            HeaderValue::from_str(&self.accept).map_err(|error| ReplyError::internal(&error))?;
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        if !self.protocol.is_empty() {
            headers.insert(
                header::SEC_WEBSOCKET_PROTOCOL,
                HeaderValue::from_static(self.protocol),
            );
        }
        let upgrade = self.upgrade;
        let socket = async move {
            let upgraded = upgrade.await.ok()?;
            Some(
                WebSocketStream::from_raw_socket(
                    TokioIo::new(upgraded),
                    Role::Server,
                    Some(config()),
                )
                .await,
            )
        };
        Ok((response, socket))
    }
}

/// With its limits.
pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Says goodbye, waits until the peer has read so far, and only then ends the connection.
///
/// Dropping it instead would lose what is on its way: the kernel forgets it as soon as there is an
/// unread byte of the peer's, be it a ping, and TLS without its own end is an error to who reads
/// it.
pub(super) async fn hang_up<S: Stream>(
    sink: SplitSink<WebSocketStream<S>, Message>,
    incoming: SplitStream<WebSocketStream<S>>,
) {
    let Ok(mut socket) = incoming.reunite(sink) else {
        return;
    };
    let farewell = async {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        // Also after the peer has said it first: then this answers.
        let _ = socket.close(Some(frame)).await;
        while let Some(Ok(_)) = socket.next().await {}
        let _ = socket.get_mut().shutdown().await;
    };
    let _ = tokio::time::timeout(LINGER, farewell).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_stand_in_bytes_or_in_digits() {
        for (protocol, expect) in [
            ("", Message::binary(b"\x01abc".as_slice())),
            ("v4.channel.k8s.io", Message::binary(b"\x01abc".as_slice())),
            ("base64.channel.k8s.io", Message::text("1YWJj")),
            ("v4.base64.channel.k8s.io", Message::text("1YWJj")),
        ] {
            let encoding = Encoding::of(protocol);
            let message = encoding.message(1, b"abc");
            assert_eq!(message, expect, "{protocol}");
            assert_eq!(
                encoding.read(message).as_deref(),
                Some(b"\x01abc".as_slice()),
                "{protocol}"
            );
        }
        assert_eq!(Encoding::Base64.read(Message::text("1***")), None);
        assert_eq!(Encoding::Base64.read(Message::text("")), None);
        assert_eq!(Encoding::Binary.read(Message::Ping(Bytes::new())), None);
    }
}
