//! The rules that choose one of several endpoints, and the names that go with them. Pure.

use sha2::{Digest as _, Sha256};

use crate::service::{Endpoint, Port, ServiceKey};

/// The rules that choose one endpoint.
pub(super) fn balance(
    port: &Port,
    endpoints: &[Endpoint],
    affinity_secs: Option<u32>,
    hash: &str,
) -> Vec<String> {
    let protocol = port.protocol.as_str();
    let mut rules = Vec::with_capacity(endpoints.len() * 2);
    let list = |endpoint: &Endpoint| {
        format!(
            "--name {} --mask 255.255.255.255 --rsource",
            recent(hash, endpoint)
        )
    };
    for endpoint in endpoints {
        let Some(secs) = affinity_secs else { break };
        rules.push(format!(
            "-p {protocol} -m recent --update --seconds {secs} --reap {} -j DNAT --to-destination {}",
            list(endpoint),
            endpoint.address
        ));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let mut rule = format!("-p {protocol}");
        let left = endpoints.len() - index;
        if left > 1 {
            rule += &format!(
                " -m statistic --mode random --probability {}",
                probability(left)
            );
        }
        if affinity_secs.is_some() {
            rule += &format!(" -m recent --set {}", list(endpoint));
        }
        rules.push(format!(
            "{rule} -j DNAT --to-destination {}",
            endpoint.address
        ));
    }
    rules
}

/// 1 of `parts`, as `iptables-save` prints what the kernel keeps: a multiple of 2^-31 with 11
/// digits.
pub(super) fn probability(parts: usize) -> String {
    const WHOLE: f64 = 2_147_483_648.0;
    let parts = u32::try_from(parts).unwrap_or(u32::MAX);
    format!("{:.11}", (WHOLE / f64::from(parts)).round() / WHOLE)
}

/// Name of the list of clients of one endpoint.
fn recent(hash: &str, endpoint: &Endpoint) -> String {
    format!(
        "CORACLE-{}",
        short_hash(&format!("{hash} {}", endpoint.address))
    )
}

pub(super) fn port_hash(key: &ServiceKey, port: &Port) -> String {
    short_hash(&format!(
        "{key}:{}:{}:{}",
        port.name,
        port.protocol.as_str(),
        port.port
    ))
}

/// 16 characters: with the prefix, chain names have the 28 characters that iptables allows.
fn short_hash(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    Sha256::digest(text)
        .iter()
        .take(16)
        .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
        .collect()
}
