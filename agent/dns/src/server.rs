//! The sockets.
//!
//! A datagram is answered where it is read, unless others have to be asked: that goes on beside the
//! next. A connection has its questions answered one after the other. All of it is bounded; what is
//! too much is refused, or, where nobody waits for an answer, dropped.
//!
//! No address is bound here, so this works wherever its caller stands.

mod seats;

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures::FutureExt as _;
use hickory_proto::op::ResponseCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::seats::{Limits, Seat, Seats};
use crate::{
    resolver::Resolver,
    wire::{self, Answer, Request, Unread},
};

/// Questions at once that wait for others.
const UNDER_WAY: usize = 1000;
/// Datagrams that are read before others have their turn.
const BATCH: usize = 64;
/// The longest request: no question is longer than a name and its options.
const REQUEST_BYTES: usize = 4096;
/// Connections at once.
const CONNECTIONS: Limits = Limits {
    total: 100,
    each: 20,
};
/// Between two questions of a connection.
const IDLE: Duration = Duration::from_secs(10);
/// For a client to take an answer.
const SENDING: Duration = Duration::from_secs(5);
/// After a socket has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Sockets of one address.
#[derive(Debug)]
pub struct Sockets {
    /// For datagrams.
    pub udp: UdpSocket,
    /// For connections.
    pub tcp: TcpListener,
}

/// Answers until `stop`.
pub async fn run(sockets: Sockets, resolver: Arc<Resolver>, stop: CancellationToken) {
    let Sockets { udp, tcp } = sockets;
    let serve = async {
        tokio::join!(
            datagrams(Arc::new(udp), Arc::clone(&resolver)),
            connections(tcp, resolver)
        )
    };
    stop.run_until_cancelled(serve).await;
}

async fn datagrams(socket: Arc<UdpSocket>, resolver: Arc<Resolver>) {
    let mut under_way = JoinSet::new();
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        tokio::select! {
            readable = socket.readable() => {
                if let Err(error) = readable {
                    tracing::warn!(%error, "cannot read questions");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Some(_) = under_way.join_next() => continue,
        }
        for _ in 0..BATCH {
            // An error is of a datagram that was sent: nobody listens there any more.
            let Ok((length, from)) = socket.try_recv_from(&mut buffer) else {
                break;
            };
            let answer = |bytes: &[u8]| {
                // A client that is not reached asks again.
                let _ = socket.try_send_to(bytes, from);
            };
            let request = match wire::read(&buffer[..length]) {
                Ok(request) => request,
                Err(Unread::Drop) => continue,
                Err(Unread::Error(bytes)) => {
                    answer(&bytes);
                    continue;
                }
            };
            let most = request.most_bytes();
            let mut asking = answered(Arc::clone(&resolver), from.ip(), request, most).boxed();
            match asking.as_mut().now_or_never() {
                Some(Some(bytes)) => answer(&bytes),
                Some(None) => {}
                None if under_way.len() >= UNDER_WAY => {}
                None => {
                    let socket = Arc::clone(&socket);
                    coracle_telemetry::spawn_in(&mut under_way, "ask for a name", async move {
                        if let Some(bytes) = asking.await {
                            let _ = socket.send_to(&bytes, from).await;
                        }
                    });
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn connections(listener: TcpListener, resolver: Arc<Resolver>) {
    let mut open = JoinSet::new();
    let seats = Seats::new(CONNECTIONS);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let from = from.ip();
                    // Closed: others are being served, or this one has enough.
                    let Some(seat) = seats.take(from) else { continue };
                    let serve = connection(stream, from, Arc::clone(&resolver), seat);
                    coracle_telemetry::spawn_in(&mut open, "answer a connection", serve);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections with questions");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, from: IpAddr, resolver: Arc<Resolver>, seat: Seat) {
    seat.keep(questions(stream, from, resolver, &seat)).await;
}

/// Ends with the first thing that goes wrong: the client opens another.
async fn questions(mut stream: TcpStream, from: IpAddr, resolver: Arc<Resolver>, seat: &Seat) {
    let mut buffer = vec![0; REQUEST_BYTES];
    while let Ok(Ok(length)) = timeout(IDLE, stream.read_u16()).await {
        let Some(room) = buffer.get_mut(..usize::from(length)) else {
            return;
        };
        if !matches!(timeout(SENDING, stream.read_exact(room)).await, Ok(Ok(_))) {
            return;
        }
        seat.asks();
        let answer = match wire::read(room) {
            Ok(request) => {
                let most = usize::from(u16::MAX);
                answered(Arc::clone(&resolver), from, request, most).await
            }
            Err(Unread::Error(bytes)) => Some(bytes),
            Err(Unread::Drop) => None,
        };
        let Some(answer) = answer else { return };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let mut sent = length.to_be_bytes().to_vec();
        sent.extend_from_slice(&answer);
        if !matches!(timeout(SENDING, stream.write_all(&sent)).await, Ok(Ok(()))) {
            return;
        }
        seat.is_answered();
    }
}

/// The bytes of the answer.
async fn answered(
    resolver: Arc<Resolver>,
    from: IpAddr,
    request: Request,
    most: usize,
) -> Option<Vec<u8>> {
    let answer = resolver.answer(from, &request).await;
    wire::write(&request, answer, most)
        .or_else(|| wire::write(&request, Answer::refused(ResponseCode::ServFail), most))
}

#[cfg(test)]
mod tests;
