//! A connection that stays open while the rules under it change.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use coracle_netns::NetNs;

/// How long an answer may take that nothing is in the way of.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that sends back what it gets, on one connection.
pub(crate) fn echo(ns: &NetNs, port: u16) {
    let listener = ns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
    let listener = listener.unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..read]).unwrap();
        }
    });
}

/// With such a server.
pub(crate) struct Conversation(TcpStream);

impl Conversation {
    pub(crate) fn new(ns: &NetNs, to: &str) -> Self {
        let to: SocketAddr = to.parse().unwrap();
        let stream = ns.run(|| TcpStream::connect(to).unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Which comes back.
    pub(crate) fn say(&mut self, word: &str) {
        self.0.write_all(word.as_bytes()).unwrap();
        let mut answer = vec![0; word.len()];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, word.as_bytes());
    }
}
