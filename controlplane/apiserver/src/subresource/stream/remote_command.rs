//! exec and attach of clients that speak SPDY, translated into the channels of a WebSocket, which
//! is all that nodes speak.
//!
//! | stream of the client | channel of the node |
//! |---|---|
//! | `stdin`, and its end | 0, and 255 0 |
//! | `stdout`, `stderr` | 1, 2 |
//! | `error` | 3: the Status at the end |
//! | `resize`: JSON, one a line | 4: JSON |
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go` (protocol v4) at v1.37.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use coracle_api::channel::{self, Frame};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::spdy::session::{Stream, Writer};

/// The client opens its streams at once.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages on their way to the node.
const MESSAGES: usize = 8;
/// Longest line of the resize stream.
const LINE_LIMIT: usize = 1024;

/// The socket to the node.
pub(super) type Node = WebSocketStream<TokioIo<Upgraded>>;

/// Which streams the client is going to open besides `error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    resize: bool,
}

impl Expected {
    /// As the options say.
    pub(super) fn of(options: &Value) -> Self {
        let set = |name: &str| options[name] == true;
        let tty = set("tty");
        Self {
            stdin: set("stdin"),
            stdout: set("stdout"),
            stderr: set("stderr") && !tty,
            resize: tty,
        }
    }
}

#[derive(Default)]
struct Streams {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// Waits for all of them; `None` if the client does not open them.
    async fn gather(opened: &mut mpsc::Receiver<Stream>, expected: Expected) -> Option<Self> {
        let mut streams = Self::default();
        while !streams.are(expected) {
            let stream = opened.recv().await?;
            let place = match stream.header("streamtype") {
                Some("error") => &mut streams.error,
                Some("stdin") => &mut streams.stdin,
                Some("stdout") => &mut streams.stdout,
                Some("stderr") => &mut streams.stderr,
                Some("resize") => &mut streams.resize,
                _ => return None,
            };
            *place = Some(stream);
        }
        Some(streams)
    }

    fn are(&self, expected: Expected) -> bool {
        self.error.is_some()
            && (self.stdin.is_some() || !expected.stdin)
            && (self.stdout.is_some() || !expected.stdout)
            && (self.stderr.is_some() || !expected.stderr)
            && (self.resize.is_some() || !expected.resize)
    }
}

/// Moves bytes until the command ends or the client goes.
pub(super) async fn translate(node: Node, mut opened: mpsc::Receiver<Stream>, expected: Expected) {
    let gathered =
        tokio::time::timeout(STREAMS_TIMEOUT, Streams::gather(&mut opened, expected)).await;
    let Ok(Some(Streams {
        error: Some(error),
        stdin,
        stdout,
        stderr,
        resize,
    })) = gathered
    else {
        return;
    };
    let (sink, messages) = node.split();
    let (outgoing, queue) = mpsc::channel(MESSAGES);
    let (input, sizes) = (outgoing.clone(), outgoing);
    // Their ends are no end: the command's is.
    let inputs = async {
        let stdin = async {
            match stdin {
                Some(stream) => send_stdin(stream, input).await,
                None => drop(input),
            }
        };
        let resize = async {
            match resize {
                Some(stream) => send_sizes(stream, sizes).await,
                None => drop(sizes),
            }
        };
        tokio::join!(stdin, resize, write(sink, queue));
        std::future::pending::<()>().await;
    };
    let (stdout, stderr) = (
        stdout.map(|stream| stream.outgoing),
        stderr.map(|stream| stream.outgoing),
    );
    let reset = error.reset.clone();
    let outputs = receive(messages, stdout, stderr, error.outgoing);
    tokio::select! {
        () = outputs => {}
        () = inputs => {}
        () = reset.cancelled() => {}
    }
}

async fn write(
    mut sink: futures::stream::SplitSink<Node, Message>,
    mut queue: mpsc::Receiver<Message>,
) {
    while let Some(message) = queue.recv().await {
        if sink.send(message).await.is_err() {
            return;
        }
    }
    // Stays open: closing it would hang up.
    std::future::pending::<()>().await;
}

async fn send_stdin(mut stream: Stream, node: mpsc::Sender<Message>) {
    while let Some(bytes) = stream.incoming.recv().await {
        if node.send(message(channel::STDIN, &bytes)).await.is_err() {
            return;
        }
    }
    let _ = node
        .send(Message::Binary(Frame::End(channel::STDIN).write().into()))
        .await;
}

async fn send_sizes(mut stream: Stream, node: mpsc::Sender<Message>) {
    let mut pending = Vec::new();
    while let Some(bytes) = stream.incoming.recv().await {
        pending.extend_from_slice(&bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if node
                .send(message(channel::RESIZE, &line[..end]))
                .await
                .is_err()
            {
                return;
            }
        }
        if pending.len() > LINE_LIMIT {
            return;
        }
    }
}

/// Hands on what the node says until its last word, the Status.
async fn receive(
    messages: futures::stream::SplitStream<Node>,
    stdout: Option<Writer>,
    stderr: Option<Writer>,
    error: Writer,
) {
    let mut messages = pin!(messages);
    let mut status = None;
    while let Some(Ok(message)) = messages.next().await {
        let Message::Binary(data) = message else {
            if matches!(message, Message::Close(_)) {
                break;
            }
            continue;
        };
        let is_connected = match (Frame::read(&data), &stdout, &stderr) {
            (Some(Frame::Data(channel::STDOUT, bytes)), Some(stdout), _) => {
                stdout.send(bytes).await
            }
            (Some(Frame::Data(channel::STDERR, bytes)), _, Some(stderr)) => {
                stderr.send(bytes).await
            }
            (Some(Frame::Data(channel::STATUS, bytes)), ..) => {
                status = Some(Bytes::copy_from_slice(bytes));
                break;
            }
            _ => true,
        };
        if !is_connected {
            return;
        }
    }
    for writer in [stdout, stderr].into_iter().flatten() {
        writer.finish(&[]).await;
    }
    // Always something: the client takes silence for success.
    error.finish(&status.unwrap_or_else(lost)).await;
}

/// What the client is told when the node goes without a word.
fn lost() -> Bytes {
    let message = "the connection to the node was lost";
    let status = json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500});
    status.to_string().into()
}

fn message(channel: u8, data: &[u8]) -> Message {
    Message::Binary(Frame::Data(channel, data).write().into())
}
