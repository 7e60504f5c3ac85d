//! A TCP connection to a pod, handed through as it is: HTTP's upgrade and then nothing but the
//! bytes of both sides.

use std::{
    error::Error,
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use coracle_relay::relay;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::reply::{self, Body, ReplyError};
use crate::runtime::types::SandboxStatus;

const TCP: &str = "tcp";
const DIAL_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn is_asked(request: &Request<Incoming>) -> bool {
    request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(TCP.as_bytes()))
}

/// Connects to the pod as its neighbours would.
pub(super) async fn dial_pod(
    node_ip: IpAddr,
    sandbox: &SandboxStatus,
    port: u16,
) -> Result<TcpStream, ReplyError> {
    let ip = if sandbox.host_network {
        Some(node_ip)
    } else {
        sandbox.ips.first().copied()
    };
    let ip = ip.ok_or_else(|| ReplyError::bad_request("the pod has no address"))?;
    match tokio::time::timeout(DIAL_LIMIT, TcpStream::connect(SocketAddr::new(ip, port))).await {
        Ok(connection) => connection.map_err(|error| refused(port, &error)),
        Err(_) => Err(refused(port, &std::io::Error::from(ErrorKind::TimedOut))),
    }
}

/// The answer when nothing listens there.
pub(super) fn refused(port: u16, error: &dyn Error) -> ReplyError {
    ReplyError::new(StatusCode::BAD_GATEWAY, reason(port, error))
}

/// `failed to connect to port 81: Connection refused`: the last cause is what people want to know.
pub(super) fn reason(port: u16, error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("failed to connect to port {port}: {cause}")
}

/// Agrees to the upgrade and joins both sides.
pub(super) fn serve(
    request: &mut Request<Incoming>,
    connection: TcpStream,
) -> Result<Response<Body>, ReplyError> {
    let _ = connection.set_nodelay(true);
    let upgrade = hyper::upgrade::on(request);
    // Ends with either side's connection, or with both sides' ends.
    drop(coracle_telemetry::spawn("tunnel", async move {
        let Ok(upgraded) = upgrade.await else { return };
        relay(TokioIo::new(upgraded), connection).await;
    }));
    let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static(TCP));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{RuntimeError, types::SandboxId};

    #[test]
    fn the_last_cause_is_told() {
        let error = RuntimeError::Shim {
            id: SandboxId("s".to_owned()),
            operation: "connect to a port",
            source: ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(
            reason(81, &error),
            "failed to connect to port 81: connection refused"
        );
    }
}
