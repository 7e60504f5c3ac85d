//! Ports of the node that a process or the kernel listens on (parsing is pure).
//!
//! A published port takes what comes from other machines away from whoever listens on it: the API
//! server, the agent itself, the overlay, the node's own daemons. Who publishes it need not have
//! any right over those.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use coracle_api::scheduling::HostPort;

/// Where the kernel takes ports of clients from, unless told otherwise: an unconnected UDP socket
/// there listens to nobody.
const CLIENTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// States in `/proc/net`: `TCP_LISTEN`, and what an unconnected UDP socket shows (`TCP_CLOSE`).
const LISTENING: [(&str, &str); 2] = [("TCP", "0A"), ("UDP", "07")];

/// What is listened on in the node's network namespace, for others than the node itself. What
/// cannot be read is empty.
pub(crate) fn kernel() -> Vec<HostPort> {
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
fn parse(protocol: &'static str, table: &str) -> Vec<HostPort> {
    let listens = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':')?;
        let (address, port) = (parse_address(address)?, u16::from_str_radix(port, 16).ok()?);
        let is_client = protocol == "UDP" && CLIENTS.contains(&port);
        let counts = LISTENING.contains(&(protocol, state)) && !is_client && !address.is_loopback();
        counts.then(|| HostPort {
            ip: address.to_string(),
            protocol: protocol.to_owned(),
            port: port.into(),
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
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_what_others_can_reach_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
               0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
               1: 00000000:192B 00000000:0000 0A 00000000:00000000\n\
               2: 0112A8C0:0050 00000000:0000 0A 00000000:00000000\n\
               3: 00000000:192B 0100007F:A2C4 01 00000000:00000000\n";
        let found: Vec<_> = parse("TCP", table)
            .into_iter()
            .map(|one| (one.ip, one.port))
            .collect();
        let expected =
            [("0.0.0.0", 6443), ("192.168.18.1", 80)].map(|(ip, port)| (ip.to_owned(), port));
        assert_eq!(found, expected);
        let table = "  sl  local_address rem_address st\n\
               0: 00000000:2118 00000000:0000 07 0\n   1: 00000000:A000 00000000:0000 07 0\n";
        let found: Vec<_> = parse("UDP", table)
            .into_iter()
            .map(|one| one.port)
            .collect();
        assert_eq!(found, [8472], "a client's port is nobody's");
        let table = "  sl  local_address rem_address st\n\
               0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A\n\
               1: 00000000000000000000000001000000:280B 00000000000000000000000000000000:0000 0A\n";
        let found: Vec<_> = parse("TCP", table)
            .into_iter()
            .map(|one| (one.ip, one.port))
            .collect();
        assert_eq!(found, [("::".to_owned(), 10250)]);
    }

    #[test]
    fn the_kernel_tells_of_a_listener() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("bind");
        let port = i32::from(listener.local_addr().expect("address").port());
        assert!(
            kernel()
                .iter()
                .any(|one| one.protocol == "TCP" && one.port == port)
        );
        drop(listener);
        assert!(
            !kernel()
                .iter()
                .any(|one| one.protocol == "TCP" && one.port == port)
        );
    }
}
