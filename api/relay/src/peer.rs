//! The other end of a TCP connection: whether it still is there.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that is gone without a word is asked after this time, three times, and then given up.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// What was sent must have been taken by then: whoever pauses a long output has time, a dead peer
/// has an end.
const USER_TIMEOUT: Duration = Duration::from_secs(600);

/// The other end.
pub struct Peer;

impl Peer {
    /// Has the kernel watch it, and sends small answers at once.
    pub fn watch(stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES);
        let socket = SockRef::from(stream);
        // Best effort: a connection without them is still bounded by everything else.
        let _ = socket.set_tcp_keepalive(&keepalive);
        let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
    }
}
