//! What a runtime asks for a pod: the capabilities `ips` and `mac`, and whether it can have it.
//!
//! In the shapes of the conventions (`["10.2.2.42"]`, `"c2:11:22:33:44:55"`), and of those who
//! write a prefix with the address, which says nothing here: it is the subnet's.
//!
//! Source: `CONVENTIONS.md` of the CNI specification, and its plugins'
//! `plugins/ipam/host-local/backend/allocator`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Bandwidth, IpamConf, MAX_RATE, MIN_RATE, RuntimeConfig};
use crate::result::mac_text;

/// What the MAC addresses begin with that are made of pods' addresses: see [`crate::bridge::mac`].
const MADE_OF_ADDRESSES: [u8; 2] = [0x0a, 0x58];
/// The bit of the first byte that says that it is nobody's own.
const GROUP: u8 = 1;

/// An address, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StaticIp(IpAddr);

impl StaticIp {
    pub(super) fn v4(&self) -> Option<Ipv4Addr> {
        match self.0 {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }
}

impl TryFrom<String> for StaticIp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let net = text.parse().map(|net: IpNet| net.addr());
        let address = text.parse().or(net);
        address
            .map(Self)
            .map_err(|_| format!("ips: {text:?} is no address"))
    }
}

impl From<StaticIp> for String {
    fn from(ip: StaticIp) -> Self {
        ip.0.to_string()
    }
}

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StaticMac([u8; 6]);

impl StaticMac {
    pub(crate) fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for StaticMac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("mac: {text:?} is not of the form c2:11:22:33:44:55");
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2);
            let digits = part.filter(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = digits
                .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                .ok_or_else(malformed)?;
        }
        match parts.next() {
            Some(_) => Err(malformed()),
            None => Ok(Self(octets)),
        }
    }
}

impl TryFrom<String> for StaticMac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for StaticMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mac_text(&self.0))
    }
}

impl From<StaticMac> for String {
    fn from(mac: StaticMac) -> Self {
        mac.to_string()
    }
}

/// Why a pod cannot have what is asked for, if so.
pub(super) fn refusal(ipam: &IpamConf, asked: &RuntimeConfig) -> Option<String> {
    let address = match &*asked.ips {
        [] => None,
        [one] => Some(one),
        several => {
            let count = several.len();
            return Some(format!("ips: {count} addresses, a pod has one"));
        }
    };
    address
        .and_then(|address| refusal_of_address(ipam, address))
        .or_else(|| asked.mac.and_then(refusal_of_mac))
        .or_else(|| refusal_of_rates(&asked.bandwidth))
}

fn refusal_of_rates(asked: &Bandwidth) -> Option<String> {
    let rates = [asked.ingress_rate, asked.egress_rate];
    let is_odd = |rate: &u64| *rate != 0 && !(MIN_RATE..=MAX_RATE).contains(rate);
    let odd = rates.into_iter().find(is_odd)?;
    Some(format!(
        "bandwidth {odd} must be {MIN_RATE} to {MAX_RATE} bits a second"
    ))
}

fn refusal_of_address(ipam: &IpamConf, asked: &StaticIp) -> Option<String> {
    let (first, last) = (ipam.first(), ipam.last());
    let Some(address) = asked.v4() else {
        return Some(format!("ips: {} is not IPv4", asked.0));
    };
    if !(first..=last).contains(&address) {
        return Some(format!(
            "ips: {address} is not among the addresses of pods here, {first} to {last}"
        ));
    }
    let is_gateway = address == ipam.gateway();
    is_gateway.then(|| format!("ips: {address} is the gateway's"))
}

fn refusal_of_mac(asked: StaticMac) -> Option<String> {
    let octets = asked.octets();
    if octets == [0; 6] || octets[0] & GROUP != 0 {
        return Some(format!("mac: {asked} is no single link's"));
    }
    // Another pod's may be that, or the bridge's.
    octets
        .starts_with(&MADE_OF_ADDRESSES)
        .then(|| format!("mac: {asked} begins as those that are made of pods' addresses, 0a:58"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::StaticMac;
    use crate::NetConf;

    fn parse(asked: Value) -> Result<NetConf, (u32, String)> {
        let conf = json!({
            "cniVersion": "1.0.0", "name": "n", "type": "coracle-cni",
            "ipam": {"subnet": "10.1.2.0/24", "rangeEnd": "10.1.2.99"}, "runtimeConfig": asked
        });
        NetConf::parse(conf.to_string().as_bytes()).map_err(|error| {
            let wire = error.to_wire("1.0.0");
            (wire.code, format!("{} {}", wire.msg, wire.details))
        })
    }

    #[test]
    fn an_address_and_a_mac_are_taken_as_the_conventions_write_them() {
        for text in ["10.1.2.42", "10.1.2.42/16"] {
            let conf = parse(json!({"ips": [text], "mac": "C2:11:22:33:44:55"})).unwrap();
            let address = conf.runtime_config.address().unwrap();
            assert_eq!(address.to_string(), "10.1.2.42");
            let mac = conf.runtime_config.mac.map(StaticMac::octets);
            assert_eq!(mac, Some([0xc2, 0x11, 0x22, 0x33, 0x44, 0x55]));
            // As it is remembered.
            let again = serde_json::to_vec(&conf).unwrap();
            assert_eq!(NetConf::parse(&again).unwrap(), conf);
        }
        let conf = parse(json!({"mac": "02-00-00-00-00-01", "ips": []})).unwrap();
        let mac = conf.runtime_config.mac.map(StaticMac::octets);
        assert_eq!(mac, Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(conf.runtime_config.address(), None);
        let conf = parse(json!({})).unwrap();
        assert_eq!(conf.runtime_config.mac, None);
    }

    #[test]
    fn what_a_pod_cannot_have_is_refused_with_the_reason() {
        for (asked, code, part) in [
            (json!({"ips": ["10.1.3.1"]}), 7, "not among the addresses"),
            (json!({"ips": ["10.1.2.100"]}), 7, "10.1.2.1 to 10.1.2.99"),
            (json!({"ips": ["10.1.2.1"]}), 7, "is the gateway's"),
            (
                json!({"ips": ["10.1.2.0/24"]}),
                7,
                "not among the addresses",
            ),
            (json!({"ips": ["fd00::1"]}), 7, "fd00::1 is not IPv4"),
            (json!({"ips": ["10.1.2.2", "10.1.2.3"]}), 7, "a pod has one"),
            (json!({"ips": ["ten"]}), 6, "\"ten\" is no address"),
            (json!({"ips": "10.1.2.2"}), 6, "invalid type"),
            (json!({"mac": "c2:11:22:33:44"}), 6, "not of the form"),
            (json!({"mac": "c2:11:22:33:44:55:66"}), 6, "not of the form"),
            (json!({"mac": "c2:11:22:33:44:5g"}), 6, "not of the form"),
            (json!({"mac": "c2:11:22:33:44:+5"}), 6, "not of the form"),
            (json!({"mac": ""}), 6, "not of the form"),
            (json!({"mac": "01:00:5e:00:00:01"}), 7, "no single link's"),
            (json!({"mac": "00:00:00:00:00:00"}), 7, "no single link's"),
            (json!({"mac": "0a:58:0a:01:02:03"}), 7, "0a:58"),
        ] {
            let (found, said) = parse(asked.clone()).unwrap_err();
            assert_eq!(found, code, "{asked}: {said}");
            assert!(said.contains(part), "{asked}: {said}");
        }
    }
}
