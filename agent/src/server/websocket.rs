//! WebSockets of the node's API: the upgrade, and the choice of a subprotocol.

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::reply::{self, Body, ReplyError};

/// A message of the peer may be this long: `kubectl cp` sends 32 KiB at a time.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// The connection after the upgrade.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// An upgrade that was asked for.
pub(super) struct Upgrade {
    upgrade: OnUpgrade,
    accept: String,
    /// The subprotocol both sides know.
    pub(super) protocol: &'static str,
}

impl Upgrade {
    /// Reads the request.
    ///
    /// # Errors
    /// 400 if it is no upgrade to a WebSocket with one of these subprotocols.
    pub(super) fn accept(request: &mut Request<Incoming>, known: &[&'static str]) -> Result<Self, ReplyError> {
        let header = |name: header::HeaderName| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        if !header(header::UPGRADE).eq_ignore_ascii_case("websocket") {
            return Err(ReplyError::bad_request("you must specify at least 1 of the supported upgrades: websocket"));
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
            .collect();
        let protocol = known.iter().find(|known| offered.contains(known)).copied();
        let protocol = protocol.ok_or_else(|| {
            ReplyError::bad_request(format!("no subprotocol in common: this node knows {}", known.join(", ")))
        })?;
        let accept = derive_accept_key(key.as_bytes());
        Ok(Self { upgrade: hyper::upgrade::on(request), accept, protocol })
    }

    /// The answer, and the socket once it has been sent.
    pub(super) fn finish(self) -> Result<(Response<Body>, impl Future<Output = Option<Socket>>), ReplyError> {
        let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let accept = HeaderValue::from_str(&self.accept).map_err(|error| ReplyError::internal(&error))?;
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(self.protocol));
        let upgrade = self.upgrade;
        let socket = async move {
            let upgraded = upgrade.await.ok()?;
            let config =
                WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
            Some(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await)
        };
        Ok((response, socket))
    }
}
