//! Connections that stay, and are asked whether they still work.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use coracle_netns::NetNs;

use super::world::PATIENCE;

/// Answers each byte with itself; can speak first.
pub(super) struct Echo {
    port: u16,
    accepted: Arc<Mutex<Vec<TcpStream>>>,
}

impl Echo {
    pub(super) fn new(ns: &NetNs) -> Self {
        Self::on(ns, 7777)
    }

    pub(super) fn on(ns: &NetNs, port: u16) -> Self {
        let listener = ns.run(|| TcpListener::bind(("0.0.0.0", port)));
        let listener = listener.unwrap().unwrap();
        let accepted: Arc<Mutex<Vec<TcpStream>>> = Default::default();
        let all = Arc::clone(&accepted);
        // Ends with the process; what it has accepted is the test's.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                all.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    let (mut from, mut to) = (&stream, &stream);
                    let mut byte = [0];
                    while from.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
                });
            }
        });
        Self { port, accepted }
    }

    pub(super) fn connect(&self, from: &NetNs, to: Ipv4Addr) -> Connection {
        self.try_connect(from, to).unwrap()
    }

    pub(super) fn try_connect(&self, from: &NetNs, to: Ipv4Addr) -> Option<Connection> {
        let to = SocketAddr::from((to, self.port));
        let stream = from.run(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = stream.unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Connection { stream, sent: 0 })
    }

    pub(super) fn send_to_all(&self) {
        for mut stream in self.accepted.lock().unwrap().iter() {
            stream.write_all(&[0]).unwrap();
        }
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    sent: u8,
}

impl Connection {
    /// Whether what is sent now comes back.
    pub(super) fn answers(&mut self) -> bool {
        self.sent += 1;
        if self.stream.write_all(&[self.sent]).is_err() {
            return false;
        }
        let mut byte = [0];
        while self.stream.read_exact(&mut byte).is_ok() {
            if byte[0] == self.sent {
                return true;
            }
        }
        false
    }
}
