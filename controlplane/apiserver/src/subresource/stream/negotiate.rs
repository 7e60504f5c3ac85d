//! Which protocol a stream is going to be spoken in.
//!
//! Source: `k8s.io/apimachinery/pkg/util/httpstream/httpstream.go`, `Handshake`, at v1.37.

use coracle_api::status::{Reason, Status};
use coracle_registry::strategy::Subresource;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::body::Body;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";
/// SPDY of port-forward inside a WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// What the client wants to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The channels that nodes speak, too: relayed as they are.
    Channels,
    /// SPDY on the connection itself, with this protocol in its streams.
    Spdy(&'static str),
    /// SPDY inside a WebSocket.
    Tunnel,
}

/// Reads the request's headers.
///
/// # Errors
/// 400 if it is no upgrade; 403 if there is no protocol in common.
pub(super) fn form(headers: &HeaderMap, subresource: Subresource) -> Result<Form, Status> {
    let Some(upgrade) = headers
        .get(header::UPGRADE)
        .and_then(|value| value.to_str().ok())
    else {
        return Err(Status::bad_request(
            "unable to upgrade: missing upgrade headers in request",
        ));
    };
    let is_forward = subresource == Subresource::Portforward;
    if upgrade.eq_ignore_ascii_case("websocket") {
        let tunnels = is_forward && subprotocols(headers).any(|name| name == TUNNEL);
        return Ok(if tunnels {
            Form::Tunnel
        } else {
            Form::Channels
        });
    }
    if !upgrade.eq_ignore_ascii_case(SPDY) {
        let message = format!(
            "unable to upgrade: unknown protocol {upgrade:?}: websocket and {SPDY} are known"
        );
        return Err(Status::bad_request(message));
    }
    let known = if is_forward {
        "portforward.k8s.io"
    } else {
        "v4.channel.k8s.io"
    };
    let offered: Vec<&str> = offers(headers, &STREAM_PROTOCOL).collect();
    if offered.is_empty() {
        return Err(Status::bad_request(format!(
            "unable to upgrade: {STREAM_PROTOCOL} is required"
        )));
    }
    if offered.contains(&known) {
        return Ok(Form::Spdy(known));
    }
    let message = format!(
        "unable to upgrade: unable to negotiate protocol: client supports {}, server accepts {known}",
        offered.join(", ")
    );
    Err(Status::new(403, Reason::Forbidden, message))
}

/// The subprotocols that a WebSocket's client offers, in its order.
pub(super) fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    offers(headers, &header::SEC_WEBSOCKET_PROTOCOL)
}

fn offers<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// 101, in the words of the form.
pub(super) fn agree(form: Form, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let Form::Spdy(protocol) = form else {
        return websocket(headers, TUNNEL);
    };
    let mut answer = switching();
    let answered = answer.headers_mut();
    answered.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    answered.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok(answer)
}

fn switching() -> Response<Body> {
    let mut answer = Response::new(Body::Empty);
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer
}

/// 101 of a WebSocket; an empty `protocol` is none.
pub(super) fn websocket(headers: &HeaderMap, protocol: &str) -> Result<Response<Body>, Status> {
    let mut answer = switching();
    let answered = answer.headers_mut();
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
        return Err(Status::bad_request(
            "unable to upgrade: Sec-WebSocket-Key is missing",
        ));
    };
    let accept =
        HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(Status::internal)?;
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        let protocol = HeaderValue::from_str(protocol).map_err(Status::internal)?;
        answered.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart_by_headers() {
        let check = |subresource, pairs: &[(&'static str, &str)], expect: Result<Form, u16>| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            let headers: HeaderMap = pairs.collect();
            assert_eq!(
                form(&headers, subresource).map_err(|status| status.code),
                expect,
                "{headers:?}"
            );
        };
        let (exec, forward) = (Subresource::Exec, Subresource::Portforward);
        let v5 = ("sec-websocket-protocol", "v5.channel.k8s.io");
        let tunnel = ("sec-websocket-protocol", TUNNEL);
        let spdy = ("upgrade", "SPDY/3.1");
        let versions = (
            "x-stream-protocol-version",
            "v5.channel.k8s.io, v4.channel.k8s.io,v3.channel.k8s.io",
        );
        check(exec, &[], Err(400));
        check(exec, &[("upgrade", "h2c")], Err(400));
        check(exec, &[("upgrade", "websocket"), v5], Ok(Form::Channels));
        check(exec, &[spdy, versions], Ok(Form::Spdy("v4.channel.k8s.io")));
        check(
            exec,
            &[spdy, ("x-stream-protocol-version", "channel.k8s.io")],
            Err(403),
        );
        check(exec, &[spdy], Err(400));
        check(
            forward,
            &[spdy, ("x-stream-protocol-version", "portforward.k8s.io")],
            Ok(Form::Spdy("portforward.k8s.io")),
        );
        check(forward, &[spdy, versions], Err(403));
        check(
            forward,
            &[("upgrade", "websocket"), tunnel],
            Ok(Form::Tunnel),
        );
        check(
            forward,
            &[
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ],
            Ok(Form::Channels),
        );
    }
}
