use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// The newest subprotocol.
const SPEECH: Speech = Speech {
    encoding: Encoding::Binary,
    has_status: true,
};

fn message(channel: u8, data: &[u8]) -> Message {
    SPEECH.encoding.message(channel, data)
}

#[test]
fn exit_codes_become_causes() {
    assert_eq!(status_of(0, Verb::Exec)["status"], "Success");
    let failed = status_of(3, Verb::Exec);
    assert_eq!(
        (
            failed["reason"].as_str(),
            failed["details"]["causes"][0]["message"].as_str()
        ),
        (Some("NonZeroExitCode"), Some("3"))
    );
}

#[test]
fn requests_without_streams_or_command_are_refused() {
    let parse = |query: &str, verb| parse(&Query::parse(Some(query)), verb);
    assert!(parse("command=ls", Verb::Exec).is_err());
    assert!(parse("output=1", Verb::Exec).is_err());
    assert!(parse("output=1", Verb::Attach).is_ok());
    let tty = parse("command=sh&input=1&output=1&error=1&tty=1", Verb::Exec).expect("valid");
    assert!(tty.tty && !tty.stderr);
}

#[test]
fn older_subprotocols_end_without_a_status() {
    let (fine, failed) = (status_of(0, Verb::Exec), status_of(3, Verb::Exec));
    let text = |protocol: &str, status: &Value| {
        let last = Speech::of(protocol).last(status)?;
        let data = Encoding::of(protocol).read(last).expect("its own form");
        assert_eq!(data[0], channel::STATUS);
        Some(String::from_utf8(data[1..].to_vec()).expect("text"))
    };
    for protocol in [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
        "v4.base64.channel.k8s.io",
    ] {
        assert_eq!(text(protocol, &fine), Some(fine.to_string()), "{protocol}");
        assert_eq!(
            text(protocol, &failed),
            Some(failed.to_string()),
            "{protocol}"
        );
    }
    for protocol in ["", "channel.k8s.io", "base64.channel.k8s.io"] {
        assert_eq!(text(protocol, &fine), None, "{protocol}");
        let words = "command terminated with non-zero exit code: exit status 3";
        assert_eq!(
            text(protocol, &failed).as_deref(),
            Some(words),
            "{protocol}"
        );
    }
}

/// A command that says what it hears, and then this.
fn cat(last_words: Vec<u8>, code: i32) -> (StreamSession, watch::Receiver<bool>) {
    let (stdin, mut heard) = tokio::io::duplex(64 * 1024);
    let (stdout, mut said) = tokio::io::duplex(64 * 1024);
    let (has_ended, ended) = watch::channel(false);
    let running = coracle_telemetry::spawn("task of a test", async move {
        tokio::io::copy(&mut heard, &mut said).await.expect("copy");
        said.write_all(&last_words).await.expect("say");
        drop(said);
        has_ended.send_replace(true);
    });
    let session = StreamSession {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: None,
        resize: mpsc::channel(1).0,
        exit: Box::pin(async move {
            running.await.expect("it runs");
            Ok(code)
        }),
    };
    (session, ended)
}

/// A peer that takes few bytes at a time.
async fn connection() -> (WebSocketStream<TcpStream>, WebSocketStream<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let address = listener.local_addr().expect("an address");
    let (peer, accepted) = tokio::join!(socket.connect(address), listener.accept());
    let peer = WebSocketStream::from_raw_socket(peer.expect("connect"), Role::Client, None).await;
    let socket = accepted.expect("accept").0;
    (
        WebSocketStream::from_raw_socket(socket, Role::Server, Some(websocket::config())).await,
        peer,
    )
}

/// Runs one exec: `input` bytes go in, `piece` at a time, and as many and `words` come out while
/// the peer chatters.
async fn execute(input: usize, piece: usize, words: usize) -> (usize, Value) {
    let (socket, peer) = connection().await;
    let (session, mut ended) = cat(vec![1; words], 3);
    let bridge = coracle_telemetry::spawn(
        "task of a test",
        bridge(socket, Ok(session), Verb::Exec, SPEECH),
    );
    let (mut sink, mut stream) = peer.split();
    let sending = async {
        for piece in vec![7; input].chunks(piece) {
            sink.send(message(channel::STDIN, piece))
                .await
                .expect("send");
        }
        sink.send(Message::Binary(Frame::End(channel::STDIN).write().into()))
            .await
            .expect("send");
        // Heartbeats cross the command's end.
        for _ in 0..50 {
            if sink
                .send(Message::Ping(Bytes::from_static(b"beat")))
                .await
                .is_err()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let receiving = async {
        if input == 0 {
            // Slower than the command, of which everything is still on its way.
            ended.wait_for(|ended| *ended).await.expect("it ends");
        }
        let (mut bytes, mut status) = (0, Value::Null);
        while let Some(Ok(message)) = stream.next().await {
            let Message::Binary(data) = message else {
                continue;
            };
            match Frame::read(&data) {
                Some(Frame::Data(channel::STDOUT, rest)) => bytes += rest.len(),
                Some(Frame::Data(channel::STATUS, json)) => {
                    status = serde_json::from_slice(json).expect("JSON")
                }
                other => panic!("{other:?}"),
            }
        }
        (bytes, status)
    };
    let ((), outcome) = tokio::join!(sending, receiving);
    drop((sink, stream));
    bridge.await.expect("the connection is let go");
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_and_exit_code_arrive_whole_whatever_the_peer_says_meanwhile() {
    for round in 0..5 {
        for (input, words) in [
            (0, 1),
            (0, 1_833),
            (0, 200_000),
            (0, 1_500_000),
            (100_000, 0),
            (3_000_000, 1_833),
        ] {
            let (bytes, status) = execute(input, PIECE, words).await;
            assert_eq!(bytes, input + words, "round {round}");
            assert_eq!(
                status["details"]["causes"][0]["message"], "3",
                "round {round}: {status}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_may_come_in_one_piece() {
    let (bytes, _) = execute(12_000_000, 12_000_000, 0).await;
    assert_eq!(bytes, 12_000_000);
}
