//! A TCP connection to a pod, handed through as it is: HTTP's upgrade and then nothing but the bytes of both sides.

use std::{
    error::Error,
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use super::reply::{self, Body, ReplyError};
use crate::runtime::types::SandboxStatus;

const TCP: &str = "tcp";
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// For the peer to end its side once the pod has ended its own.
const LINGER: Duration = Duration::from_secs(600);
const PIECE: usize = 32 * 1024;

pub(super) fn is_asked(request: &Request<Incoming>) -> bool {
    request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(TCP.as_bytes()))
}

/// Connects to the pod as its neighbours would.
pub(super) async fn dial_pod(node_ip: IpAddr, sandbox: &SandboxStatus, port: u16) -> Result<TcpStream, ReplyError> {
    let ip = if sandbox.host_network { Some(node_ip) } else { sandbox.ips.first().copied() };
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
pub(super) fn serve(request: &mut Request<Incoming>, connection: TcpStream) -> Result<Response<Body>, ReplyError> {
    let _ = connection.set_nodelay(true);
    let upgrade = hyper::upgrade::on(request);
    // Ends with either side's connection, or with both sides' ends.
    drop(tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        join(TokioIo::new(upgraded), connection).await;
    }));
    let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static(TCP));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok(response)
}

/// Copies both ways. The pod's last words are delivered even if its connection then fails, or it hears nothing more:
/// tokio's `copy_bidirectional` would drop what it holds.
async fn join(peer: impl AsyncRead + AsyncWrite, pod: impl AsyncRead + AsyncWrite) {
    let (mut from_peer, mut to_peer) = tokio::io::split(peer);
    let (mut from_pod, mut to_pod) = tokio::io::split(pod);
    let forth = async {
        let taken = copy(&mut from_peer, &mut to_pod).await;
        if taken.is_err() {
            // Unread, it would make the kernel forget what the peer has not taken.
            let _ = tokio::io::copy(&mut from_peer, &mut tokio::io::sink()).await;
        }
    };
    let (mut forth, mut back) = (Box::pin(forth), Box::pin(copy(&mut from_pod, &mut to_peer)));
    tokio::select! {
        delivered = &mut back => if delivered.is_ok() {
            let _ = tokio::time::timeout(LINGER, forth).await;
        },
        () = &mut forth => {
            let _ = back.await;
        }
    }
}

/// Until the reader's end or failure, which is handed on as an end.
async fn copy(mut reader: impl AsyncRead + Unpin, mut writer: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        writer.write_all(&buffer[..read]).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::runtime::{RuntimeError, types::SandboxId};

    #[test]
    fn the_last_cause_is_told() {
        let error = RuntimeError::Shim {
            id: SandboxId("s".to_owned()),
            operation: "connect to a port",
            source: ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(reason(81, &error), "failed to connect to port 81: connection refused");
    }

    #[tokio::test]
    async fn pod_is_heard_to_its_last_byte_though_it_hears_nothing() {
        for length in [1, 1_833, 8_193, 100_000] {
            let (peer, mut ours) = duplex(1024);
            let (pod, mut theirs) = duplex(512);
            let joined = tokio::spawn(join(peer, pod));
            let says = tokio::spawn(async move {
                theirs.write_all(&vec![7; length]).await.expect("it is read");
                // Gone, and with it what the peer still says.
            });
            for _ in 0..20 {
                let _ = ours.write_all(b"ping").await;
                tokio::task::yield_now().await;
            }
            let mut got = Vec::new();
            ours.read_to_end(&mut got).await.expect("it is ended");
            drop(ours);
            says.await.expect("said");
            joined.await.expect("joined");
            assert_eq!(got.len(), length);
        }
    }
}
