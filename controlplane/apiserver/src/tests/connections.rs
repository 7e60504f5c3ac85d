//! Connections that want nothing, clients that have gone or do not read, and answers that come
//! before the body was read.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use coracle_auth::user::UserInfo;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::raw::{CONFIG_MAPS, Raw, config_map};
use crate::{
    pki::KeyPair,
    testing::{self, Listening},
};

/// For what takes ten seconds on an idle machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) async fn connect(
    listening: &Listening,
    identity: Option<&KeyPair>,
    protocol: &str,
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(
            listening
                .server
                .state
                .config
                .pki
                .ca
                .chain()
                .unwrap()
                .remove(0),
        )
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(pair) => builder
            .with_client_auth_cert(pair.chain().unwrap(), pair.key().unwrap())
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(listening.address).await.unwrap();
    let name = ServerName::IpAddress(listening.address.ip().into());
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// How long the server keeps a connection that says `hello` and then nothing.
async fn kept(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    hello: &[u8],
) -> Duration {
    let started = Instant::now();
    stream.write_all(hello).await.unwrap();
    let to_the_end = async {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::time::timeout(DEADLINE, to_the_end)
        .await
        .expect("the server hangs up");
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_say_who_it_is_has_to_go() {
    let listening = testing::listen(testing::server().await).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let version = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n";
    let (silent, h2, h1, tcp) = tokio::join!(
        async { kept(connect(&listening, None, "http/1.1").await, b"").await },
        async { kept(connect(&listening, None, "h2").await, preface).await },
        async { kept(connect(&listening, None, "http/1.1").await, version).await },
        async { kept(TcpStream::connect(listening.address).await.unwrap(), b"").await },
    );
    for kept in [silent, h2, h1, tcp] {
        assert!(
            kept >= Duration::from_secs(8),
            "{kept:?}: a client has time"
        );
    }
    // One that has said it stays longer than that.
    let admin = listening.server.state.config.pki.admin.clone();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(
        connect(&listening, Some(&admin), "http/1.1").await,
    ))
    .await
    .unwrap();
    coracle_telemetry::spawn("task of a test", connection);
    for pause in [0, 12] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let request = Request::get(CONFIG_MAPS)
            .header("host", "x")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
    }
}

/// How many watches the server counts.
async fn watches(admin: &Raw) -> u64 {
    let (_, text) = admin.get("/metrics").await;
    let text = text.as_str().unwrap_or_default();
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("WATCH")
    });
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

async fn until_watches(admin: &Raw, expect: u64) {
    let deadline = Instant::now() + DEADLINE;
    while watches(admin).await != expect {
        assert!(
            Instant::now() < deadline,
            "{} watches",
            watches(admin).await
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_its_client_has_hung_up_behind_another_request() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("admin"));
    let before = watches(&admin).await;
    let identity = listening.server.state.config.pki.admin.clone();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&listening, Some(&identity), "http/1.1").await;
        let watch = format!("GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(watch.as_bytes()).await.unwrap();
        let mut first = [0; 20];
        stream.read_exact(&mut first).await.unwrap();
        clients.push(stream);
    }
    until_watches(&admin, before + 3).await;
    for mut stream in clients {
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
    }
    until_watches(&admin, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_body_was_read_is_seen_and_the_connection_goes_on() {
    let listening = testing::listen(testing::server().await).await;
    let pki = Arc::clone(&listening.server.state.config.pki);
    let large = Bytes::from(vec![b' '; 4 << 20]);
    let post = |uri: String, body: Bytes| {
        Request::post(uri)
            .header("host", "x")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .unwrap()
    };
    let uri = format!("https://{}{CONFIG_MAPS}", listening.address);
    let stream = connect(&listening, Some(&pki.admin), "h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    coracle_telemetry::spawn("task of a test", connection);
    let answer = sender.send_request(post(uri, large.clone())).await.unwrap();
    assert_eq!(answer.status(), 413);
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(
        String::from_utf8_lossy(&text).contains("limit is 3145728"),
        "{text:?}"
    );

    let nobody = pki.issue_client("plain", "nothing").unwrap();
    for (identity, body, expect) in [
        (&pki.admin, large, 413),
        (&nobody, Bytes::from(config_map("x").to_string()), 403),
    ] {
        let stream = connect(&listening, Some(identity), "http/1.1").await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        coracle_telemetry::spawn("task of a test", connection);
        for _ in 0..3 {
            sender.ready().await.unwrap();
            let answer = sender
                .send_request(post(CONFIG_MAPS.to_owned(), body.clone()))
                .await
                .unwrap();
            assert_eq!(answer.status(), expect);
            answer.into_body().collect().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_counted_like_every_request() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("admin"));
    for _ in 0..3 {
        let stream = connect(&listening, None, "http/1.1").await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        coracle_telemetry::spawn("task of a test", connection);
        let request = Request::get(CONFIG_MAPS)
            .header("host", "x")
            .header("authorization", "Bearer wrong");
        let answer = sender
            .send_request(request.body(Full::new(Bytes::new())).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), 401);
    }
    let (_, text) = admin.get("/metrics").await;
    let text = text.as_str().unwrap_or_default();
    let counted = text
        .lines()
        .find(|line| line.starts_with("apiserver_request_total{") && line.contains("code=\"401\""));
    assert!(
        counted.is_some_and(|line| line.ends_with(" 3")),
        "{counted:?}"
    );
}
