//! `/exec` and `/attach` over the channels of WebSockets.

use coracle_api::channel::{self, Frame};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::{
    ServerContext,
    query::Query,
    reply::{Body, ReplyError},
    websocket::{self, Encoding, Stream, Upgrade},
};
use crate::runtime::{RuntimeError, StreamSession, types::ExecRequest};

/// The later ones first. Before v4 there was no Status at the end: nothing was said of success, and
/// of a failure the text.
const PROTOCOLS: [&str; 6] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];
const PIECE: usize = 32 * 1024;
/// Messages on the way out: 8 of 32 KiB.
const OUTGOING: usize = 8;

type Sink<S> = SplitSink<WebSocketStream<S>, Message>;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Exec,
    Attach,
}

/// What the subprotocol says of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Speech {
    encoding: Encoding,
    has_status: bool,
}

impl Speech {
    fn of(protocol: &str) -> Self {
        Self {
            encoding: Encoding::of(protocol),
            has_status: protocol.starts_with('v'),
        }
    }

    /// How the command ended, if there is something to say.
    fn last(self, status: &Value) -> Option<Message> {
        if self.has_status {
            return Some(
                self.encoding
                    .message(channel::STATUS, status.to_string().as_bytes()),
            );
        }
        let text = status["message"]
            .as_str()
            .filter(|_| status["status"] != "Success")?;
        Some(self.encoding.message(channel::STATUS, text.as_bytes()))
    }
}

pub(super) async fn serve(
    server: &ServerContext,
    mut request: Request<Incoming>,
    verb: Verb,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<Response<Body>, ReplyError> {
    let wanted = parse(&Query::parse(request.uri().query()), verb)?;
    let status = server.find_running(namespace, pod, container).await?;
    let upgrade = Upgrade::accept(&mut request, &PROTOCOLS)?;
    let speech = Speech::of(upgrade.protocol);
    let runtime = server.ctx.runtime.clone();
    let (response, socket) = upgrade.finish()?;
    // Ends with the command or with the connection.
    drop(coracle_telemetry::spawn("exec or attach", async move {
        let Some(socket) = socket.await else { return };
        let session = match verb {
            Verb::Exec => runtime.exec(&status.id, &wanted).await,
            Verb::Attach => runtime.attach(&status.id, &wanted).await,
        };
        bridge(socket, session, verb, speech).await;
    }));
    Ok(response)
}

fn parse(query: &Query, verb: Verb) -> Result<ExecRequest, ReplyError> {
    let tty = query.flag(&["tty"]);
    let request = ExecRequest {
        command: query.all("command"),
        stdin: query.flag(&["input", "stdin"]),
        stdout: query.flag(&["output", "stdout"]),
        stderr: query.flag(&["error", "stderr"]) && !tty,
        tty,
    };
    if !request.stdin && !request.stdout && !request.stderr {
        return Err(ReplyError::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    if verb == Verb::Exec && request.command.is_empty() {
        return Err(ReplyError::bad_request(
            "you must specify at least one command for the container",
        ));
    }
    Ok(request)
}

/// Joins both until the command has ended and the peer has got all of it, or the peer has gone.
async fn bridge<S: Stream>(
    socket: WebSocketStream<S>,
    session: Result<StreamSession, RuntimeError>,
    verb: Verb,
    speech: Speech,
) {
    let (sink, mut incoming) = socket.split();
    let (outgoing, messages) = mpsc::channel(OUTGOING);
    let writer = write(sink, messages);
    let talk = async {
        let status = match session {
            Ok(session) => talk(session, (&mut incoming, &outgoing), verb, speech.encoding).await,
            Err(error) => Some(failure(&error.to_string())),
        };
        if let Some(last) = status.and_then(|status| speech.last(&status)) {
            let _ = outgoing.send(last).await;
        }
        drop(outgoing);
    };
    let (sink, ()) = tokio::join!(writer, talk);
    websocket::hang_up(sink, incoming).await;
}

/// Until there is nothing more to send, or nobody to send it to.
async fn write<S: Stream>(mut sink: Sink<S>, mut messages: mpsc::Receiver<Message>) -> Sink<S> {
    while let Some(message) = messages.recv().await {
        if sink.send(message).await.is_err() {
            // Whoever sends more learns it from the closed channel.
            break;
        }
    }
    sink
}

/// Moves bytes until the command ends; `None` when the peer goes first.
async fn talk<S: Stream>(
    session: StreamSession,
    (incoming, outgoing): (&mut SplitStream<WebSocketStream<S>>, &mpsc::Sender<Message>),
    verb: Verb,
    encoding: Encoding,
) -> Option<Value> {
    let StreamSession {
        stdin,
        stdout,
        stderr,
        resize,
        exit,
    } = session;
    let outputs = async {
        tokio::join!(
            pump(stdout, channel::STDOUT, outgoing, encoding),
            pump(stderr, channel::STDERR, outgoing, encoding)
        );
    };
    let finished = async {
        let ((), exit) = tokio::join!(outputs, exit);
        exit
    };
    tokio::select! {
        exit = finished => Some(match exit {
            Ok(code) => status_of(code, verb),
            Err(error) => failure(&error.to_string()),
        }),
        () = receive(incoming, stdin, resize, encoding) => None,
        () = outgoing.closed() => None,
    }
}

async fn pump(
    stream: Option<Box<dyn AsyncRead + Send + Unpin>>,
    channel: u8,
    outgoing: &mpsc::Sender<Message>,
    encoding: Encoding,
) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; PIECE];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if outgoing
                    .send(encoding.message(channel, &buffer[..read]))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
}

/// Handles what the peer sends, until it hangs up.
async fn receive<S: Stream>(
    incoming: &mut SplitStream<WebSocketStream<S>>,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: mpsc::Sender<(u16, u16)>,
    encoding: Encoding,
) {
    while let Some(Ok(message)) = incoming.next().await {
        if message.is_close() {
            return;
        }
        let Some(data) = encoding.read(message) else {
            continue;
        };
        match Frame::read(&data) {
            Some(Frame::Data(channel::STDIN, bytes)) => {
                let failed = match &mut stdin {
                    Some(stream) => {
                        stream.write_all(bytes).await.is_err() || stream.flush().await.is_err()
                    }
                    None => false,
                };
                // The process reads no more. What it says is still wanted.
                if failed {
                    stdin = None;
                }
            }
            Some(Frame::End(channel::STDIN)) => {
                if let Some(mut stream) = stdin.take() {
                    let _ = stream.shutdown().await;
                }
            }
            Some(Frame::Data(channel::RESIZE, bytes)) => {
                if let Some(size) = channel::terminal_size(bytes) {
                    let _ = resize.send(size).await;
                }
            }
            _ => {}
        }
    }
}

fn status_of(code: i32, verb: Verb) -> Value {
    if code == 0 || verb == Verb::Attach {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

fn failure(message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "details": {"causes": [{"message": message}]}, "code": 500})
}

#[cfg(test)]
mod tests;
