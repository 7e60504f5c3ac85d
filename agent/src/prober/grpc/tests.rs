use std::convert::Infallible;

use futures::StreamExt;
use http_body_util::StreamBody;
use hyper::{Request, Response, body::Frame, service::service_fn};
use tokio::net::TcpListener;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// A server of health: answers by the service that is asked for, as a gRPC server does.
async fn health_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("address");
    coracle_telemetry::spawn("task of a test", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                Ok::<_, Infallible>(answer(request).await)
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            coracle_telemetry::spawn(
                "task of a test",
                server.serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

type Body = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

async fn answer(request: Request<hyper::body::Incoming>) -> Response<Body> {
    assert_eq!(
        (request.method(), request.uri().path()),
        (&http::Method::POST, METHOD)
    );
    assert_eq!(request.headers()[header::CONTENT_TYPE], "application/grpc");
    assert_eq!(request.headers()[header::TE], "trailers");
    let body = request
        .into_body()
        .collect()
        .await
        .expect("body")
        .to_bytes();
    assert_eq!(body.len(), PREFIX + body[4] as usize);
    let service = body
        .get(PREFIX + 2..)
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .unwrap_or_default();
    let trailers = |code: &str, message: &str| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.parse().expect("value"));
        trailers.insert("grpc-message", message.parse().expect("value"));
        trailers
    };
    if service == "slow" {
        tokio::time::sleep(LIMIT * 4).await;
    }
    let status = match service.as_str() {
        "" | "web" => Some(1),
        "down" => Some(2),
        "lost" => Some(3),
        _ => None,
    };
    let response = Response::builder().header(header::CONTENT_TYPE, "application/grpc");
    let (response, frames) = match (status, service.as_str()) {
        (Some(status), _) => {
            let message = Bytes::from(vec![0, 0, 0, 0, 2, 8, status]);
            (
                response,
                vec![Frame::data(message), Frame::trailers(trailers("0", ""))],
            )
        }
        // No message: the status is in the head.
        (None, "none") => {
            let mut response = response;
            response
                .headers_mut()
                .expect("valid")
                .extend(trailers("12", "unknown%20service"));
            (response, vec![])
        }
        (None, _) => (
            response,
            vec![Frame::trailers(trailers("5", "unknown service"))],
        ),
    };
    response
        .body(StreamBody::new(
            futures::stream::iter(frames).map(Ok).boxed(),
        ))
        .expect("response")
}

#[tokio::test]
async fn a_service_is_as_healthy_as_it_says() {
    let address = health_server().await;
    for (service, expected) in [
        ("", None),
        ("web", None),
        (
            "down",
            Some("service unhealthy (responded with \"NOT_SERVING\")"),
        ),
        (
            "lost",
            Some("service unhealthy (responded with \"SERVICE_UNKNOWN\")"),
        ),
        (
            "none",
            Some(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service",
            ),
        ),
        (
            "other",
            Some(
                "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
            ),
        ),
    ] {
        let expected = expected.map_or(Outcome::Success, |text| Outcome::Failure(text.to_owned()));
        assert_eq!(
            probe(address.ip(), address.port(), service, LIMIT).await,
            expected,
            "{service}"
        );
    }
    let late = probe(address.ip(), address.port(), "slow", Duration::from_secs(1)).await;
    assert_eq!(
        late,
        Outcome::Failure("timeout: health rpc did not complete within 1s".to_owned())
    );
}

#[tokio::test]
async fn a_port_that_speaks_no_grpc_is_not_healthy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("address");
    coracle_telemetry::spawn("task of a test", async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let found = probe(address.ip(), address.port(), "", LIMIT).await;
    assert!(
        matches!(&found, Outcome::Failure(text) if text.starts_with("error: health rpc probe failed: ")),
        "{found:?}"
    );
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listen")
        .local_addr()
        .expect("address");
    let found = probe(closed.ip(), closed.port(), "", LIMIT).await;
    assert!(
        matches!(&found, Outcome::Failure(text) if text.starts_with("error: failed to connect service at ")),
        "{found:?}"
    );
}

#[test]
fn an_answer_is_read_whatever_else_it_says() {
    let framed = |message: &[u8]| {
        let mut bytes = vec![0, 0, 0, 0, u8::try_from(message.len()).expect("short")];
        bytes.extend_from_slice(message);
        bytes
    };
    for (bytes, expected) in [
        (framed(&[]), Some(0)),
        (framed(&[8, 1]), Some(1)),
        (framed(&[0x12, 2, b'h', b'i', 8, 2]), Some(2)),
        (framed(&[8]), None),
        (framed(&[0x12, 9, b'x']), None),
        (vec![1, 0, 0, 0, 2, 8, 1], None),
        (vec![0, 0, 0, 0, 9, 8, 1], None),
        (vec![0, 0], None),
    ] {
        assert_eq!(decode(&bytes), expected, "{bytes:?}");
    }
    assert_eq!(unescape("50%25 of %zz%4"), "50% of %zz%4");
}
