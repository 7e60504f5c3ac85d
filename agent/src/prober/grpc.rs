//! Probes that call `grpc.health.v1.Health/Check`, over HTTP/2 without TLS.
//!
//! One call of one message each way: the few bytes of protobuf and of gRPC's framing are written
//! and read here.
//!
//! Source: `pkg/probe/grpc/grpc.go` at v1.37; gRPC's PROTOCOL-HTTP2.md;
//! `grpc/health/v1/health.proto`.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{HeaderMap, client::conn::http2, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::Outcome;

const METHOD: &str = "/grpc.health.v1.Health/Check";
/// The answer is two bytes and their prefix.
const MAX_ANSWER: usize = 4096;
/// Compressed (0) or not, and four bytes of length.
const PREFIX: usize = 5;

const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;

/// How a call ended that brought no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Status {
    code: u32,
    message: String,
}

/// A status that is the caller's own.
fn failed(code: u32, message: impl Into<String>) -> Status {
    Status {
        code,
        message: message.into(),
    }
}

pub(super) async fn probe(host: IpAddr, port: u16, service: &str, limit: Duration) -> Outcome {
    let address = SocketAddr::new(host, port);
    let deadline = tokio::time::Instant::now() + limit;
    let seconds = limit.as_secs();
    let stream = match tokio::time::timeout_at(deadline, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return Outcome::Failure(format!(
                "error: failed to connect service at \"{address}\": {error}"
            ));
        }
        Err(_) => {
            return Outcome::Failure(format!(
                "timeout: failed to connect service \"{address}\" within {seconds}s: context deadline exceeded"
            ));
        }
    };
    // Whose clock is first, this one or the server's, must not show in the message.
    let late = || failed(DEADLINE_EXCEEDED, "context deadline exceeded");
    let answer = tokio::time::timeout_at(deadline, check(stream, address, service, limit)).await;
    match answer.unwrap_or_else(|_| Err(late())) {
        Ok(1) => Outcome::Success,
        Ok(other) => Outcome::Failure(format!(
            "service unhealthy (responded with \"{}\")",
            serving_status(other)
        )),
        Err(Status {
            code: UNIMPLEMENTED,
            message,
        }) => Outcome::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Err(Status {
            code: DEADLINE_EXCEEDED,
            ..
        }) => Outcome::Failure(format!(
            "timeout: health rpc did not complete within {seconds}s"
        )),
        Err(Status { code, message }) => Outcome::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            code_name(code)
        )),
    }
}

/// The number that the service answers.
async fn check(
    stream: TcpStream,
    address: SocketAddr,
    service: &str,
    limit: Duration,
) -> Result<u64, Status> {
    const UNAVAILABLE: u32 = 14;
    let broken = |error: hyper::Error| failed(UNAVAILABLE, error.to_string());
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let exchange = async {
        let request = hyper::Request::post(format!("http://{address}{METHOD}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, "kube-probe/1.37")
            .header(
                "grpc-timeout",
                format!("{}m", limit.as_millis().min(99_999_999)),
            )
            .body(Full::new(request(service)))
            .map_err(|error| failed(UNAVAILABLE, error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(failed(
                UNAVAILABLE,
                format!(
                    "unexpected HTTP status code received from server: {}",
                    head.status
                ),
            ));
        }
        // Without a message the status comes at once.
        status(&head.headers).unwrap_or(Ok(()))?;
        let collected = Limited::new(body, MAX_ANSWER)
            .collect()
            .await
            .map_err(|error| failed(UNAVAILABLE, format!("read the answer: {error}")))?;
        let ended = collected.trailers().and_then(status);
        let answer = collected.to_bytes();
        ended.unwrap_or_else(|| Err(failed(2, "the server sent no status")))?;
        decode(&answer).ok_or_else(|| failed(13, "the answer is no HealthCheckResponse"))
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        answer = &mut exchange => answer,
        end = &mut connection => match end {
            Ok(()) => exchange.await,
            Err(error) => Err(broken(error)),
        },
    }
}

/// `HealthCheckRequest { string service = 1; }` with its prefix.
fn request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(1 << 3 | 2);
        put_varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(&message);
    framed.freeze()
}

fn put_varint(into: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        into.put_u8(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    into.put_u8(value.to_le_bytes()[0]);
}

/// `HealthCheckResponse { ServingStatus status = 1; }` with its prefix; 0 where it is left out.
fn decode(framed: &[u8]) -> Option<u64> {
    let (prefix, rest) = framed.split_at_checked(PREFIX)?;
    let (compressed, length) = prefix.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let mut message = rest
        .get(..usize::try_from(length).ok()?)
        .filter(|_| *compressed == 0)?;
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = varint(&mut message)?,
            (_, 0) => drop(varint(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// `None` where there is none.
fn status(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code: u32 = text("grpc-status")?.parse().unwrap_or(2);
    if code == 0 {
        return Some(Ok(()));
    }
    Some(Err(Status {
        code,
        message: unescape(text("grpc-message").unwrap_or_default()),
    }))
}

/// `%XX` of a status message.
fn unescape(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let pair = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        match pair
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .filter(|_| *byte == b'%')
        {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `HealthCheckResponse.ServingStatus` by number.
fn serving_status(number: u64) -> String {
    match number {
        0 => "UNKNOWN".to_owned(),
        1 => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

/// `google.golang.org/grpc/codes` by number.
fn code_name(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    usize::try_from(code)
        .ok()
        .and_then(|code| NAMES.get(code))
        .map_or_else(|| format!("Code({code})"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests;
