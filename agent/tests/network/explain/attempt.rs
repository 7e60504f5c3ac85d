//! What becomes of a connection that is tried.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use coracle_netns::NetNs;

/// A local connection is made within a millisecond.
const PATIENCE: Duration = Duration::from_millis(150);

/// What a client sees.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Which server answered, and whom it saw.
    Connected((String, IpAddr)),
    Refused,
    Silence,
    /// There is no route.
    Unreachable,
}

pub(super) fn connect(from: &NetNs, to: SocketAddr) -> Attempt {
    use std::io::Read as _;
    let attempt = from.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    match attempt.unwrap() {
        Ok(answer) => {
            let (server, client) = answer.split_once(' ').unwrap();
            Attempt::Connected((server.to_owned(), client.parse().unwrap()))
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Attempt::Refused,
        Err(error) if error.kind() == ErrorKind::TimedOut => Attempt::Silence,
        Err(error) if error.kind() == ErrorKind::NetworkUnreachable => Attempt::Unreachable,
        Err(error) => panic!("{to}: {error}"),
    }
}
