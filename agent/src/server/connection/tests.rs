use std::net::SocketAddr;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::client::TlsStream;

use super::*;
use crate::{
    join::{Identity, Stored, csr},
    server::{
        auth::tests::{authority, connector, issue},
        reply,
    },
};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n";

/// A node's API that answers `ok` to everything, and upgrades `/stream`.
struct Node {
    address: SocketAddr,
    connections: Arc<Connections>,
    authority: rcgen::Certificate,
    api_server: csr::Pair,
}

impl Node {
    async fn start(most: usize) -> Self {
        let (issuer, authority) = authority("kubelet-ca");
        let identity =
            Identity::new(Stored::from_pair(issue(&issuer, "system:node:n1")).expect("pair"));
        let acceptor =
            Acceptor::new(Arc::new(identity), authority.der().clone()).expect("acceptor");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let connections = Connections::new(most);
        tokio::spawn(accept(listener, acceptor, Arc::clone(&connections), answer));
        Self {
            address,
            connections,
            authority,
            api_server: issue(&issuer, "kube-apiserver-kubelet-client"),
        }
    }

    async fn connect(&self, pair: Option<&csr::Pair>) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connect");
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").expect("name");
        connector(&[&self.authority], pair)
            .connect(name, stream)
            .await
            .expect("handshake")
    }

    /// Waits until so many strangers and so many others are there.
    async fn has(&self, strangers: usize, admitted: usize) {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while self.connections.counted() != (strangers, admitted) {
            assert!(
                std::time::Instant::now() < until,
                "{:?}",
                self.connections.counted()
            );
            // Not the runtime's clock, which may stand.
            std::thread::sleep(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    }
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Body>, ReplyError> {
    if request.uri().path() != "/stream" {
        return Ok(reply::text(StatusCode::OK, "ok"));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut reader, mut writer) =
            tokio::io::split(TokioIo::new(upgrade.await.expect("upgrade")));
        tokio::io::copy(&mut reader, &mut writer).await
    });
    let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    response
        .headers_mut()
        .insert("connection", http::HeaderValue::from_static("upgrade"));
    response
        .headers_mut()
        .insert("upgrade", http::HeaderValue::from_static("echo"));
    Ok(response)
}

/// What comes until the end, and after how long that is.
async fn to_the_end(stream: &mut (impl AsyncRead + Unpin)) -> (String, Duration) {
    let (opened, mut got) = (Instant::now(), Vec::new());
    // An end without TLS' farewell is one, too.
    let _ = stream.read_to_end(&mut got).await;
    (String::from_utf8_lossy(&got).into_owned(), opened.elapsed())
}

#[tokio::test(start_paused = true)]
async fn who_does_not_show_that_it_may_ask_has_to_go() {
    let node = Node::start(100).await;
    let mut silent = TcpStream::connect(node.address).await.expect("connect");
    let mut handshaken = node.connect(None).await;
    let mut second_version = node.connect(None).await;
    second_version
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .expect("write");
    let mut slow = node.connect(None).await;
    slow.write_all(b"GET / HTTP/1.1\r\n").await.expect("write");
    let (a, b, c, d) = tokio::join!(
        to_the_end(&mut silent),
        to_the_end(&mut handshaken),
        to_the_end(&mut second_version),
        to_the_end(&mut slow)
    );
    for (_, after) in [a, b, c, d] {
        assert!(after <= STRANGER + Duration::from_secs(1), "{after:?}");
    }
    node.has(0, 0).await;
}

#[tokio::test]
async fn a_stranger_is_answered_once() {
    let node = Node::start(100).await;
    let mut stranger = node.connect(None).await;
    stranger
        .write_all(&[REQUEST, REQUEST].concat())
        .await
        .expect("write");
    let (answer, after) = to_the_end(&mut stranger).await;
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.matches("HTTP/1.1").count() == 1,
        "{answer}"
    );
    assert!(after < STRANGER / 2, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_api_server_keeps_its_connection_between_requests_for_a_while() {
    let node = Node::start(100).await;
    let mut known = node.connect(Some(&node.api_server)).await;
    for _ in 0..3 {
        known.write_all(REQUEST).await.expect("write");
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok") {
            assert_ne!(
                known.read_buf(&mut answer).await.expect("read"),
                0,
                "{answer:?}"
            );
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
        tokio::time::advance(HEADER_LIMIT / 2).await;
    }
    let (_, after) = to_the_end(&mut known).await;
    assert!(after <= HEADER_LIMIT + Duration::from_secs(1), "{after:?}");
    node.has(0, 0).await;
}

#[tokio::test]
async fn strangers_make_room_and_streams_keep_their_places() {
    let node = Node::start(4).await;
    let mut stream = node.connect(Some(&node.api_server)).await;
    stream
        .write_all(b"GET /stream HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .await
        .expect("write");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("read");
    assert_eq!(&answer, b"HTTP/1.1 101");
    node.has(0, 1).await;
    let mut strangers = Vec::new();
    // This machine has 256 places beyond the bound.
    for _ in 0..300 {
        strangers.extend(TcpStream::connect(node.address).await);
        tokio::task::yield_now().await;
    }
    node.has(259, 1).await;
    stream.write_all(b"still").await.expect("write");
    drop(strangers);
    node.has(0, 1).await;
    drop(stream);
    node.has(0, 0).await;
}
