//! port-forward of kubectl: pairs of SPDY streams, each pair a TCP connection to a port of the pod.
//!
//! A client opens two streams a connection, with the same `requestID`: `error`, on which it gets at
//! most one message, and `data`. Each pair becomes a connection of its own to the node, so that
//! they do not wait for each other there.
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming/portforward/httpstream.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use coracle_api::status::Status;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    location::Agent,
    node,
    spdy::session::{Stream, Writer},
};
use crate::state::State;

const PIECE: usize = 32 * 1024;
/// Pairs of which one half has come.
const HALVES_LIMIT: usize = 64;

/// The pod that is meant.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) agent: Agent,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Serves pairs until the client goes.
pub(super) async fn serve(server: Arc<State>, pod: Pod, mut opened: mpsc::Receiver<Stream>) {
    let mut halves: HashMap<String, Stream> = HashMap::new();
    // Aborted with this future.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = opened.recv() => stream,
            Some(_) = connections.join_next() => continue,
        };
        let Some(stream) = stream else { return };
        let Some(id) = pair(&stream) else {
            stream.outgoing.cancel().await;
            continue;
        };
        halves.retain(|_, half| !half.reset.is_cancelled());
        match halves.remove(&id) {
            None if halves.len() < HALVES_LIMIT => drop(halves.insert(id, stream)),
            None => stream.outgoing.cancel().await,
            Some(other) => {
                let (data, error) = if is_error(&stream) {
                    (other, stream)
                } else {
                    (stream, other)
                };
                let (server, pod) = (Arc::clone(&server), pod.clone());
                let serve = async move { connection(&server, &pod, data, error).await };
                coracle_telemetry::spawn_in(&mut connections, "forward a port", serve);
            }
        }
    }
}

fn is_error(stream: &Stream) -> bool {
    stream.header("streamtype") == Some("error")
}

/// What the two streams of a connection have in common. Old clients say nothing, but open `data`
/// right after `error`.
fn pair(stream: &Stream) -> Option<String> {
    let implied = match stream.header("streamtype")? {
        "error" => stream.id,
        "data" => stream.id.checked_sub(2)?,
        _ => return None,
    };
    Some(
        stream
            .header("requestid")
            .map_or_else(|| implied.to_string(), str::to_owned),
    )
}

async fn connection(server: &Arc<State>, pod: &Pod, data: Stream, error: Stream) {
    let reset = data.reset.clone();
    let talk = async {
        match dial(server, pod, data.header("port")).await {
            Ok(connection) => {
                copy(connection, data).await;
                error.outgoing.finish(&[]).await;
            }
            Err((port, status)) => {
                let message = format!(
                    "error forwarding port {port} to pod {}: {}",
                    pod.name, status.message
                );
                error.outgoing.finish(message.as_bytes()).await;
                data.outgoing.finish(&[]).await;
            }
        }
    };
    tokio::select! {
        () = talk => {}
        () = reset.cancelled() => {}
    }
}

async fn dial(server: &State, pod: &Pod, port: Option<&str>) -> Result<Upgraded, (String, Status)> {
    let port = port.unwrap_or_default();
    let fail = |status| (port.to_owned(), status);
    match port.parse::<u16>() {
        Ok(number) if number > 0 => node::tunnel(server, pod, number, node::Side::Loopback)
            .await
            .map_err(fail),
        _ => Err(fail(Status::bad_request(format!("{port:?} is no port")))),
    }
}

/// Until the pod ends its side; the client's end is only half of it.
async fn copy(connection: Upgraded, data: Stream) {
    let Stream {
        mut incoming,
        outgoing,
        ..
    } = data;
    let (mut reader, mut writer) = tokio::io::split(TokioIo::new(connection));
    let sending = async {
        while let Some(bytes) = incoming.recv().await {
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                // The pod takes no more; what it still has to say is heard.
                break;
            }
        }
        let _ = writer.shutdown().await;
        incoming.close();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sending => {}
        () = receive(&mut reader, &outgoing) => {}
    }
    outgoing.finish(&[]).await;
}

async fn receive(reader: &mut tokio::io::ReadHalf<TokioIo<Upgraded>>, outgoing: &Writer) {
    let mut buffer = vec![0; PIECE];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if !outgoing.send(&buffer[..read]).await {
            return;
        }
    }
}
