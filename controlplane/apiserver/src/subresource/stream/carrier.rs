//! What SPDY's bytes travel in: the upgraded connection itself, or binary messages of a WebSocket
//! on it.
//!
//! Source: `k8s.io/client-go/tools/portforward/tunneling_connection.go` at v1.37.

use std::io;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        protocol::{Role, WebSocketConfig},
    },
};
use tokio_util::{
    codec::{BytesCodec, FramedWrite},
    io::ReaderStream,
};

use super::spdy::session::{Incoming, Outgoing};

const READ: usize = 32 * 1024;
/// Most bytes of a message.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// A WebSocket on a connection whose upgrade has been agreed on.
pub(super) async fn websocket(
    upgraded: Upgraded,
    role: Role,
) -> WebSocketStream<TokioIo<Upgraded>> {
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), role, Some(config())).await
}

/// With its limits.
pub(crate) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// The connection as it is.
pub(super) fn plain(upgraded: Upgraded) -> (Incoming, Outgoing) {
    let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
    let incoming = ReaderStream::with_capacity(reader, READ).boxed();
    (
        incoming,
        Box::pin(FramedWrite::new(writer, BytesCodec::new())),
    )
}

/// Inside a WebSocket.
pub(super) async fn tunnelled(upgraded: Upgraded) -> (Incoming, Outgoing) {
    let (sink, messages) = websocket(upgraded, Role::Server).await.split();
    let incoming = messages
        .map_err(io::Error::other)
        .try_filter_map(async |message| {
            Ok(match message {
                Message::Binary(bytes) => Some(bytes),
                _ => None,
            })
        });
    let outgoing =
        sink.with(async |bytes: Bytes| Ok::<_, tungstenite::Error>(Message::Binary(bytes)));
    (
        incoming.boxed(),
        Box::pin(outgoing.sink_map_err(io::Error::other)),
    )
}
