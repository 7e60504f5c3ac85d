//! One SPDY connection of a client: its streams as channels.
//!
//! A stream whose data nobody takes stops the whole connection, by TCP, until it is taken or
//! dropped: the protocol as clients of Kubernetes speak it knows no other back-pressure. All queues
//! are bounded.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use coracle_telemetry::ErrorChain;
use futures::{Sink, SinkExt as _, StreamExt as _, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    frame::{self, Decoder, Frame, Reason},
    headers::Headers,
};

/// Streams at once: two a forwarded connection.
const STREAMS_LIMIT: usize = 512;
/// Pieces of a stream that wait to be taken; each is as long as one read of the connection at most.
const PIECES: usize = 8;
/// Frames that wait to be sent.
const FRAMES: usize = 16;
/// Streams that wait to be looked at.
const OPENED: usize = 16;
/// For a client to end the connection once all is said.
const LINGER: Duration = Duration::from_secs(600);

/// What the client sends.
pub(crate) type Incoming = BoxStream<'static, io::Result<Bytes>>;
/// What it gets.
pub(crate) type Outgoing = Pin<Box<dyn Sink<Bytes, Error = io::Error> + Send>>;

/// A stream that the client opened.
pub(crate) struct Stream {
    /// Its number.
    pub(crate) id: u32,
    /// Its headers.
    headers: Headers,
    /// What the client sends on it; ends with it.
    pub(crate) incoming: mpsc::Receiver<Bytes>,
    /// What the client gets on it.
    pub(crate) outgoing: Writer,
    /// Cancelled when the client gives it up.
    pub(crate) reset: CancellationToken,
}

impl Stream {
    /// A header; names are lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

/// The sending side of a stream.
#[derive(Clone)]
pub(crate) struct Writer {
    id: u32,
    frames: mpsc::Sender<Bytes>,
    _alive: Arc<()>,
}

impl Writer {
    /// Sends bytes; `false` once the connection is gone.
    pub(crate) async fn send(&self, bytes: &[u8]) -> bool {
        self.frames
            .send(frame::data(self.id, bytes, false))
            .await
            .is_ok()
    }

    /// Ends the stream, with last words.
    pub(crate) async fn finish(self, bytes: &[u8]) {
        let _ = self.frames.send(frame::data(self.id, bytes, true)).await;
    }

    /// Tells the client to send no more.
    pub(crate) async fn cancel(&self) {
        let _ = self
            .frames
            .send(frame::reset(self.id, Reason::Cancel))
            .await;
    }
}

struct Session {
    incoming: Incoming,
    opened: mpsc::Sender<Stream>,
    frames: mpsc::Sender<Bytes>,
    streams: HashMap<u32, Open>,
    last: u32,
    /// Cancelled at the end: every stream's token is a child of it.
    gone: CancellationToken,
}

struct Open {
    /// `None` once the client has ended its side.
    data: Option<mpsc::Sender<Bytes>>,
    reset: CancellationToken,
    /// Whether somebody may still write to it.
    writer: Weak<()>,
}

/// Takes a connection that has been agreed on: the streams that the client opens on it, and the
/// future that runs it.
///
/// It ends with the client. Once the receiver of streams and everything of the streams is dropped,
/// what was written until then is sent, and the client has [`LINGER`] to take it.
pub(crate) fn serve(
    incoming: Incoming,
    outgoing: Outgoing,
) -> (mpsc::Receiver<Stream>, impl Future<Output = ()> + Send) {
    let (opened, streams) = mpsc::channel(OPENED);
    let (frames, queue) = mpsc::channel(FRAMES);
    let gone = CancellationToken::new();
    let session = Session {
        incoming,
        opened,
        frames,
        streams: HashMap::new(),
        last: 0,
        gone: gone.clone(),
    };
    let run = async move {
        let _end = gone.drop_guard();
        let (mut incoming, ()) = tokio::join!(session.read(), write(outgoing, queue));
        // With unread bytes of the client's, the kernel would forget what the client has not taken.
        let rest = async { while let Some(Ok(_)) = incoming.next().await {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    };
    (streams, run)
}

async fn write(mut outgoing: Outgoing, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(frame) = queue.recv().await {
        // What has gathered meanwhile goes out with one flush.
        let mut sent = outgoing.feed(frame).await;
        while let (Ok(()), Ok(frame)) = (&sent, queue.try_recv()) {
            sent = outgoing.feed(frame).await;
        }
        if sent.is_err() || outgoing.flush().await.is_err() {
            return;
        }
    }
    let _ = outgoing.close().await;
}

impl Session {
    /// Until nobody listens or the client ends; what is left of the connection.
    async fn read(mut self) -> Incoming {
        self.take_all().await;
        self.incoming
    }

    async fn take_all(&mut self) {
        let mut decoder = Decoder::new();
        let _end = self.gone.clone().drop_guard();
        loop {
            let bytes = tokio::select! {
                bytes = self.incoming.next() => bytes,
                () = self.opened.closed() => return,
            };
            let Some(Ok(bytes)) = bytes else { return };
            decoder.push(&bytes);
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => {
                        if !self.take(frame).await {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(error = %ErrorChain(&error), "SPDY connection broken");
                        let _ = self.frames.send(frame::go_away(self.last, true)).await;
                        return;
                    }
                }
            }
        }
    }

    /// `false` when nobody listens any more.
    async fn take(&mut self, frame: Frame) -> bool {
        match frame {
            Frame::Open {
                stream,
                headers,
                fin,
            } => return self.open(stream, headers, fin).await,
            Frame::Data { stream, bytes, fin } => self.data(stream, bytes, fin).await,
            Frame::Reset { stream } => {
                if let Some(open) = self.streams.remove(&stream) {
                    open.reset.cancel();
                }
            }
            // Even numbers are answers to pings of ours, and we send none.
            Frame::Ping(id) if id % 2 == 1 => {
                return self.frames.send(frame::ping(id)).await.is_ok();
            }
            Frame::Ping(_) | Frame::GoAway | Frame::Ignored => {}
        }
        true
    }

    async fn open(&mut self, id: u32, headers: Headers, fin: bool) -> bool {
        self.streams.retain(|_, open| !open.is_over());
        if self.streams.len() >= STREAMS_LIMIT {
            return self
                .frames
                .send(frame::reset(id, Reason::Refused))
                .await
                .is_ok();
        }
        let (data, incoming) = mpsc::channel(PIECES);
        let (reset, alive) = (self.gone.child_token(), Arc::new(()));
        let open = Open {
            data: (!fin).then_some(data),
            reset: reset.clone(),
            writer: Arc::downgrade(&alive),
        };
        self.streams.insert(id, open);
        let is_first = std::mem::replace(&mut self.last, id) == 0;
        if self.frames.send(frame::reply(id, is_first)).await.is_err() {
            return false;
        }
        let outgoing = Writer {
            id,
            frames: self.frames.clone(),
            _alive: alive,
        };
        self.opened
            .send(Stream {
                id,
                headers,
                incoming,
                outgoing,
                reset,
            })
            .await
            .is_ok()
    }

    async fn data(&mut self, stream: u32, bytes: Bytes, fin: bool) {
        let Some(open) = self.streams.get_mut(&stream) else {
            return;
        };
        if let Some(data) = &open.data
            && !bytes.is_empty()
        {
            // A receiver that is gone wants no more of it: dropped.
            tokio::select! {
                _ = data.send(bytes) => {}
                () = self.frames.closed() => {}
            }
        }
        if fin {
            open.data = None;
        }
    }
}

impl Open {
    /// Whether whoever took it has let go of it.
    fn is_over(&self) -> bool {
        self.writer.strong_count() == 0 && self.data.as_ref().is_none_or(mpsc::Sender::is_closed)
    }
}
