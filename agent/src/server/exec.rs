//! `/exec` and `/attach` over the channel protocol of WebSockets.
//!
//! First byte of every message: 0 stdin, 1 stdout, 2 stderr, 3 the Status at the end, 4 terminal size, 255 (v5) the end
//! of a channel.

use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream::SplitSink};
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::{
    ServerContext,
    query::Query,
    reply::{Body, ReplyError},
    websocket::{Socket, Upgrade},
};
use crate::runtime::{RuntimeError, StreamSession, types::ExecRequest};

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
const PIECE: usize = 32 * 1024;
/// Messages on the way out: 8 of 32 KiB.
const OUTGOING: usize = 8;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Exec,
    Attach,
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
    let runtime = server.ctx.runtime.clone();
    let (response, socket) = upgrade.finish()?;
    // Ends with the command or with the connection.
    drop(tokio::spawn(async move {
        let Some(socket) = socket.await else { return };
        let session = match verb {
            Verb::Exec => runtime.exec(&status.id, &wanted).await,
            Verb::Attach => runtime.attach(&status.id, &wanted).await,
        };
        bridge(socket, session, verb).await;
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
        return Err(ReplyError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if verb == Verb::Exec && request.command.is_empty() {
        return Err(ReplyError::bad_request("you must specify at least one command for the container"));
    }
    Ok(request)
}

async fn bridge(socket: Socket, session: Result<StreamSession, RuntimeError>, verb: Verb) {
    let (sink, incoming) = socket.split();
    let (outgoing, messages) = mpsc::channel(OUTGOING);
    let writer = write(sink, messages);
    let talk = async move {
        let status = match session {
            Ok(session) => talk(session, incoming, &outgoing, verb).await,
            Err(error) => Some(failure(&error.to_string())),
        };
        if let Some(status) = status {
            let _ = outgoing.send(message(STATUS, status.to_string().as_bytes())).await;
        }
        let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = outgoing.send(Message::Close(Some(close))).await;
    };
    tokio::join!(writer, talk);
}

async fn write(mut sink: SplitSink<Socket, Message>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        if sink.send(message).await.is_err() {
            // Whoever sends more learns it from the closed channel.
            return;
        }
    }
    let _ = sink.close().await;
}

/// Moves bytes until the command ends; `None` when the peer goes first.
async fn talk(
    session: StreamSession,
    incoming: futures::stream::SplitStream<Socket>,
    outgoing: &mpsc::Sender<Message>,
    verb: Verb,
) -> Option<Value> {
    let StreamSession { stdin, stdout, stderr, resize, exit } = session;
    let outputs = async {
        tokio::join!(pump(stdout, STDOUT, outgoing), pump(stderr, STDERR, outgoing));
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
        () = receive(incoming, stdin, resize) => None,
        () = outgoing.closed() => None,
    }
}

async fn pump(stream: Option<Box<dyn AsyncRead + Send + Unpin>>, channel: u8, outgoing: &mpsc::Sender<Message>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; PIECE];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if outgoing.send(message(channel, &buffer[..read])).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Handles what the peer sends, until it hangs up.
async fn receive(
    mut incoming: futures::stream::SplitStream<Socket>,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: mpsc::Sender<(u16, u16)>,
) {
    while let Some(Ok(message)) = incoming.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            _ => continue,
        };
        match data.split_first() {
            Some((&STDIN, bytes)) => {
                let failed = match &mut stdin {
                    Some(stream) => stream.write_all(bytes).await.is_err() || stream.flush().await.is_err(),
                    None => false,
                };
                if failed {
                    stdin = None;
                }
            }
            Some((&CLOSE, [STDIN, ..])) => {
                if let Some(mut stream) = stdin.take() {
                    let _ = stream.shutdown().await;
                }
            }
            Some((&RESIZE, bytes)) => {
                if let Some(size) = terminal_size(bytes) {
                    let _ = resize.send(size).await;
                }
            }
            _ => {}
        }
    }
}

/// `{"Width": 80, "Height": 24}`.
fn terminal_size(json: &[u8]) -> Option<(u16, u16)> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let side = |name: &str| value.get(name).and_then(Value::as_u64).and_then(|side| u16::try_from(side).ok());
    Some((side("Width")?, side("Height")?))
}

fn message(channel: u8, data: &[u8]) -> Message {
    let mut bytes = Vec::with_capacity(data.len() + 1);
    bytes.push(channel);
    bytes.extend_from_slice(data);
    Message::Binary(Bytes::from(bytes))
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
mod tests {
    use super::*;

    #[test]
    fn exit_codes_become_causes() {
        assert_eq!(status_of(0, Verb::Exec)["status"], "Success");
        let failed = status_of(3, Verb::Exec);
        assert_eq!(
            (failed["reason"].as_str(), failed["details"]["causes"][0]["message"].as_str()),
            (Some("NonZeroExitCode"), Some("3"))
        );
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(terminal_size(br#"{"Width":80,"Height":24}"#), Some((80, 24)));
        assert_eq!(terminal_size(b"{}"), None);
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
}
