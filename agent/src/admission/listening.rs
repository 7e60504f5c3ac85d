//! Ports of the node that a process or the kernel listens on (parsing is pure).
//!
//! A published port takes what comes from other machines away from whoever listens on it: the API
//! server, the agent itself, the overlay, the node's own daemons. Who publishes it need not have
//! any right over those.

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_api::scheduling::HostPort;
use parking_lot::Mutex;

/// Where the kernel takes ports of clients from, unless told otherwise.
const CLIENTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// A client that asks by UDP is gone after so long: resolvers ask three times for five seconds.
const CLIENT_LIFE: Duration = Duration::from_secs(20);
/// States in `/proc/net`: `TCP_LISTEN`, and what an unconnected UDP socket shows (`TCP_CLOSE`).
const LISTENING: [(&str, &str); 2] = [("TCP", "0A"), ("UDP", "07")];

/// What is listened on in the node's network namespace, for others than the node itself. Clones
/// are one.
///
/// Of an unconnected UDP socket the kernel does not tell whether it waits for strangers or for an
/// answer. One on a port that clients get is a listener if it was there at the first look, or has
/// outlived any client: tunnels have their ports there (WireGuard: 51820).
#[derive(Debug, Clone)]
pub(crate) struct Listeners {
    sockets: fn() -> Vec<Socket>,
    /// Those of which it is not known what they are, and since when; `None` before the first look.
    doubtful: Arc<Mutex<Option<Doubtful>>>,
}

/// By when it was seen first; `None`: at the first look.
type Doubtful = HashMap<Socket, Option<Instant>>;

/// An open socket that is connected to nobody.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Socket {
    address: IpAddr,
    protocol: &'static str,
    port: u16,
    /// Tells it from the next one on this port.
    inode: u64,
}

impl Default for Listeners {
    fn default() -> Self {
        Self::new(kernel)
    }
}

impl Listeners {
    /// Of what `sockets` reads.
    pub(crate) fn new(sockets: fn() -> Vec<Socket>) -> Self {
        Self {
            sockets,
            doubtful: Arc::default(),
        }
    }

    /// Looks who listens now. Blocks for as long as it takes to read the tables of sockets.
    pub(crate) fn look(&self) -> Vec<HostPort> {
        self.look_at(Instant::now())
    }

    fn look_at(&self, now: Instant) -> Vec<HostPort> {
        // Before the tables are read: of two looks at once, the later table is kept.
        let mut known = self.doubtful.lock();
        let sockets = (self.sockets)();
        let before = known.take();
        let mut doubtful = Doubtful::new();
        let listens = |socket: &Socket| {
            if !socket.may_be_a_clients() {
                return true;
            }
            let seen = before.as_ref().and_then(|before| before.get(socket));
            let since = match (&before, seen) {
                (None, _) => None,
                (Some(_), Some(since)) => *since,
                (Some(_), None) => Some(now),
            };
            doubtful.insert(socket.clone(), since);
            since.is_none_or(|since| now.duration_since(since) >= CLIENT_LIFE)
        };
        let listening = sockets.into_iter().filter(listens);
        let listening = listening.map(Socket::into_host_port).collect();
        *known = Some(doubtful);
        listening
    }
}

impl Socket {
    /// Of a daemon, by TCP.
    #[cfg(test)]
    pub(crate) fn listener(address: IpAddr, port: u16) -> Self {
        Self {
            address,
            protocol: "TCP",
            port,
            inode: 0,
        }
    }

    fn may_be_a_clients(&self) -> bool {
        self.protocol == "UDP" && CLIENTS.contains(&self.port)
    }

    fn into_host_port(self) -> HostPort {
        HostPort {
            ip: self.address.to_string(),
            protocol: self.protocol.to_owned(),
            port: self.port.into(),
        }
    }
}

/// What cannot be read is empty.
fn kernel() -> Vec<Socket> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let tables = [
        ("TCP", "tcp"),
        ("TCP", "tcp6"),
        ("UDP", "udp"),
        ("UDP", "udp6"),
    ];
    tables
        .iter()
        .flat_map(|(protocol, table)| parse(protocol, &read(&format!("/proc/net/{table}"))))
        .collect()
}

/// The table of one protocol, as proc(5) describes it.
fn parse(protocol: &'static str, table: &str) -> Vec<Socket> {
    let listens = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':')?;
        let (address, port) = (parse_address(address)?, u16::from_str_radix(port, 16).ok()?);
        let counts = LISTENING.contains(&(protocol, state)) && !address.is_loopback();
        // Queues, timer, retransmissions, user and timeout are before it.
        let inode = fields.nth(5).and_then(|inode| inode.parse().ok());
        counts.then(|| Socket {
            address,
            protocol,
            port,
            inode: inode.unwrap_or_default(),
        })
    };
    table.lines().skip(1).filter_map(listens).collect()
}

/// Words of 32 bits in hexadecimal, each in the machine's order of bytes.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        Some(
            u32::from_str_radix(text.get(at..at + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn found(protocol: &'static str, table: &str) -> Vec<(String, u16, u64)> {
        let found = parse(protocol, table).into_iter();
        let found = found.map(|one| (one.address.to_string(), one.port, one.inode));
        found.collect()
    }

    #[test]
    fn only_what_others_can_reach_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
               0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1\n\
               1: 00000000:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 72 1\n\
               2: 0112A8C0:0050 00000000:0000 0A 00000000:00000000\n\
               3: 00000000:192B 0100007F:A2C4 01 00000000:00000000\n";
        let expected = [("0.0.0.0", 6443, 72), ("192.168.18.1", 80, 0)];
        let expected = expected.map(|(ip, port, inode)| (ip.to_owned(), port, inode));
        assert_eq!(found("TCP", table), expected);
        let table = "  sl  local_address rem_address st\n\
               0: 00000000:2118 00000000:0000 07 0\n   1: 00000000:A000 01000001:0035 01 0\n";
        assert_eq!(found("UDP", table), [("0.0.0.0".to_owned(), 8472, 0)]);
        let table = "  sl  local_address rem_address st\n\
               0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A\n\
               1: 00000000000000000000000001000000:280B 00000000000000000000000000000000:0000 0A\n";
        assert_eq!(found("TCP", table), [("::".to_owned(), 10250, 0)]);
    }

    #[test]
    fn the_kernel_tells_of_a_listener() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("bind");
        let port = i32::from(listener.local_addr().expect("address").port());
        let is_told = || {
            let mut all = Listeners::default().look().into_iter();
            all.any(|one| one.protocol == "TCP" && one.port == port)
        };
        assert!(is_told());
        drop(listener);
        assert!(!is_told());
    }

    #[test]
    fn a_udp_socket_on_a_port_of_clients_listens_if_it_stays() {
        let bind = |port: u16| UdpSocket::bind(("0.0.0.0", port)).expect("bind");
        let port = |socket: &UdpSocket| socket.local_addr().expect("address").port();
        let (listeners, started) = (Listeners::default(), Instant::now());
        let has = |secs: u64, port: u16| {
            let mut all = listeners
                .look_at(started + Duration::from_secs(secs))
                .into_iter();
            all.any(|one| one.protocol == "UDP" && one.port == i32::from(port))
        };
        let tunnel = bind(0);
        assert!(has(0, port(&tunnel)), "it was there before us");
        let late = bind(0);
        let number = port(&late);
        assert!(!has(1, number), "it may be a client's");
        assert!(!has(20, number));
        assert!(has(21, number), "no client asks for so long");
        drop(late);
        let next = bind(number);
        assert!(!has(22, number), "another one");
        assert!(has(42, number) && has(42, port(&tunnel)));
        drop(next);
        assert!(!has(43, number));
    }
}
