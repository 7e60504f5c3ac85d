//! Servers that say who they are and whom they saw, and clients that ask them.

use std::{
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use coracle_netns::NetNs;
use tokio_util::sync::CancellationToken;

use super::runtime;

/// See [`Pod::serve`].
pub(crate) fn serve(ns: &NetNs, name: &str) -> Server {
    let (tcp, udp) = ns
        .run(|| {
            let any = (Ipv4Addr::UNSPECIFIED, 8080);
            (
                TcpListener::bind(any).unwrap(),
                UdpSocket::bind(any).unwrap(),
            )
        })
        .unwrap();
    let stop = CancellationToken::new();
    let served = Arc::new(AtomicUsize::new(0));
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (token, name, counter) = (stop.clone(), name.to_owned(), Arc::clone(&served));
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let tcp = tokio::net::TcpListener::from_std(tcp).unwrap();
            let udp = tokio::net::UdpSocket::from_std(udp).unwrap();
            let mut buffer = [0; 64];
            loop {
                tokio::select! {
                    () = token.cancelled() => return,
                    Ok((stream, peer)) = tcp.accept() => {
                        counter.fetch_add(1, Ordering::Relaxed);
                        let _ = stream.writable().await;
                        let _ = stream.try_write(format!("{name} {}", peer.ip()).as_bytes());
                    }
                    Ok((_, peer)) = udp.recv_from(&mut buffer) => {
                        counter.fetch_add(1, Ordering::Relaxed);
                        let _ = udp.send_to(format!("{name} {}", peer.ip()).as_bytes(), peer).await;
                    }
                }
            }
        });
    });
    Server {
        stop,
        thread: Some(thread),
        served,
    }
}

/// See [`Pod::serve`].
pub(crate) struct Server {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    served: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a TCP server answers to a client in `from`: `(server, client address it saw)`.
pub(crate) fn ask(from: &NetNs, address: &str) -> std::io::Result<(String, Ipv4Addr)> {
    let address: SocketAddr = address.parse().unwrap();
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        parse(&answer)
    })
    .unwrap()
}

/// The same over UDP, from `port` (0: any).
pub(crate) fn ask_udp(
    from: &NetNs,
    address: &str,
    port: u16,
) -> std::io::Result<(String, Ipv4Addr)> {
    from.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect(address)?;
        socket.send(b"?")?;
        let mut buffer = [0; 64];
        let read = socket.recv(&mut buffer)?;
        parse(&String::from_utf8_lossy(&buffer[..read]))
    })
    .unwrap()
}

fn parse(answer: &str) -> std::io::Result<(String, Ipv4Addr)> {
    let malformed = || {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("answer {answer:?}"),
        )
    };
    let (server, client) = answer.split_once(' ').ok_or_else(malformed)?;
    Ok((server.to_owned(), client.parse().map_err(|_| malformed())?))
}
