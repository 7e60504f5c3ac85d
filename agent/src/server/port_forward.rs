//! `/portForward`, in two forms.
//!
//! The channel protocol of WebSockets, as client libraries have it: `?port=80&port=81`, two
//! channels a port. Channel 2n carries the data of the n-th port, 2n+1 its errors; the first
//! message on each holds the port number as two little-endian bytes. With v5 the message 255 n ends
//! channel n.
//!
//! A bare TCP tunnel, as the API server has it: `?port=80` with `Upgrade: tcp`, answered once the
//! connection stands; `address=pod` goes to the pod's own address instead of its loopback.
//! kubectl's SPDY ends at the API server (ADR 2).

use futures::{SinkExt, StreamExt, stream::SplitStream};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    ServerContext,
    query::Query,
    reply::{Body, ReplyError},
    tunnel,
    websocket::{self, Encoding, Socket, Upgrade},
};
use crate::runtime::types::{SandboxId, SandboxState};

const V5: &str = "v5.channel.k8s.io";
/// Client libraries offer v5 for every stream and mean v4 here: ends of channels only for those
/// that say nothing else.
const PROTOCOLS: [&str; 5] = [
    "v4.channel.k8s.io",
    V5,
    "portforward.k8s.io",
    "v4.base64.channel.k8s.io",
    "",
];
const CLOSE: u8 = 255;
const PIECE: usize = 32 * 1024;
const OUTGOING: usize = 8;
/// Channels are one byte.
const MAX_PORTS: usize = 127;
/// There they are a letter, from `0` on.
const MAX_PORTS_AS_TEXT: usize = 39;

pub(super) async fn serve(
    server: &ServerContext,
    mut request: Request<Incoming>,
    namespace: &str,
    pod: &str,
) -> Result<Response<Body>, ReplyError> {
    let query = Query::parse(request.uri().query());
    let ports: Option<Vec<u16>> = ["port", "ports"]
        .iter()
        .flat_map(|name| query.all(name))
        .flat_map(|list| {
            list.split(',')
                .map(|port| port.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    let ports = ports
        .filter(|ports| !ports.is_empty() && ports.len() <= MAX_PORTS)
        .ok_or_else(|| ReplyError::bad_request("ports must be numbers"))?;
    let uid = server.find_pod(namespace, pod)?;
    let (sandboxes, _) = server
        .ctx
        .runtime
        .pod_state(&uid)
        .await
        .map_err(|error| ReplyError::internal(&error))?;
    let sandbox = sandboxes
        .into_iter()
        .find(|s| s.state == SandboxState::Ready);
    let sandbox = sandbox
        .ok_or_else(|| ReplyError::bad_request(format!("pod \"{pod}\" has no running sandbox")))?;
    if let (true, &[port]) = (tunnel::is_asked(&request), &ports[..]) {
        let connection = if query.get("address") == Some("pod") {
            tunnel::dial_pod(server.ctx.config.node_ip, &sandbox, port).await
        } else {
            let connection = server.ctx.runtime.port_forward(&sandbox.id, port).await;
            connection.map_err(|error| tunnel::refused(port, &error))
        };
        return tunnel::serve(&mut request, connection?);
    }
    let upgrade = Upgrade::accept(&mut request, &PROTOCOLS)?;
    let speech = Speech {
        encoding: Encoding::of(upgrade.protocol),
        can_close: upgrade.protocol == V5,
    };
    if speech.encoding == Encoding::Base64 && ports.len() > MAX_PORTS_AS_TEXT {
        return Err(ReplyError::bad_request(format!(
            "at most {MAX_PORTS_AS_TEXT} ports in base64"
        )));
    }
    let (response, socket) = upgrade.finish()?;
    let server = server.clone();
    // Ends with the connection.
    drop(coracle_telemetry::spawn("port-forward", async move {
        if let Some(socket) = socket.await {
            forward(&server, &sandbox.id, &ports, socket, speech).await;
        }
    }));
    Ok(response)
}

/// What the subprotocol says of messages.
#[derive(Debug, Clone, Copy)]
struct Speech {
    encoding: Encoding,
    /// Whether there is a message for the end of a channel.
    can_close: bool,
}

async fn forward(
    server: &ServerContext,
    sandbox: &SandboxId,
    ports: &[u16],
    socket: Socket,
    speech: Speech,
) {
    let encoding = speech.encoding;
    let (mut sink, mut incoming) = socket.split();
    let (outgoing, mut messages) = mpsc::channel::<Message>(OUTGOING);
    let write = async move {
        while let Some(message) = messages.recv().await {
            if sink.send(message).await.is_err() {
                break;
            }
        }
        sink
    };
    let heard = &mut incoming;
    // Owns the sender, so that the writer ends with it.
    let talk = async move {
        let mut writers: Vec<Option<OwnedWriteHalf>> = Vec::new();
        let mut readers = Vec::new();
        for (index, &port) in ports.iter().enumerate() {
            let channel = u8::try_from(index * 2).unwrap_or(u8::MAX);
            for channel in [channel, channel + 1] {
                let _ = outgoing
                    .send(encoding.message(channel, &port.to_le_bytes()))
                    .await;
            }
            match server.ctx.runtime.port_forward(sandbox, port).await {
                Ok(stream) => {
                    let (reader, writer) = stream.into_split();
                    writers.push(Some(writer));
                    readers.push(read(reader, channel, &outgoing, speech));
                }
                Err(error) => {
                    let text = tunnel::reason(port, &error);
                    let _ = outgoing
                        .send(encoding.message(channel + 1, text.as_bytes()))
                        .await;
                    writers.push(None);
                }
            }
        }
        let read_all = futures::future::join_all(readers);
        tokio::select! {
            () = receive(heard, &mut writers, encoding) => {}
            _ = read_all => {}
        }
    };
    let (sink, ()) = tokio::join!(write, talk);
    websocket::hang_up(sink, incoming).await;
}

async fn read(
    mut reader: OwnedReadHalf,
    channel: u8,
    outgoing: &mpsc::Sender<Message>,
    speech: Speech,
) {
    let mut buffer = vec![0; PIECE];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if outgoing
            .send(speech.encoding.message(channel, &buffer[..read]))
            .await
            .is_err()
        {
            return;
        }
    }
    if speech.can_close {
        let _ = outgoing
            .send(speech.encoding.message(CLOSE, &[channel]))
            .await;
    }
}

/// Hands on what the peer sends, until it hangs up.
async fn receive(
    incoming: &mut SplitStream<Socket>,
    writers: &mut [Option<OwnedWriteHalf>],
    encoding: Encoding,
) {
    while let Some(Ok(message)) = incoming.next().await {
        if message.is_close() {
            return;
        }
        let Some(data) = encoding.read(message) else {
            continue;
        };
        match data.split_first() {
            Some((&CLOSE, [channel, ..])) => {
                // Dropping it ends the connection's one half.
                if let Some(writer) = writers
                    .get_mut(usize::from(channel / 2))
                    .filter(|_| channel % 2 == 0)
                {
                    *writer = None;
                }
            }
            Some((&channel, bytes)) if channel % 2 == 0 => {
                if let Some(Some(writer)) = writers.get_mut(usize::from(channel / 2)) {
                    let _ = writer.write_all(bytes).await;
                }
            }
            _ => {}
        }
    }
}
