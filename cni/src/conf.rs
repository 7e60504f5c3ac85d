//! The network configuration: keys named as those of the `bridge` and `host-local` plugins where
//! they mean the same.

mod asked;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

pub use self::asked::{StaticIp, StaticMac};
use crate::error::CniError;

/// Specification versions that this plugin speaks, oldest first.
pub const VERSIONS: [&str; 4] = ["0.4.0", "1.0.0", "1.1.0", "0.3.1"];
/// What is used when nothing says otherwise.
pub const DEFAULT_VERSION: &str = "1.0.0";
/// Longest interface name of the kernel.
pub const MAX_LINK_NAME: usize = 15;

/// One network, as on a plugin's stdin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetConf {
    /// One of [`VERSIONS`]; missing means 0.1.0 to the specification, which is not spoken.
    #[serde(default)]
    pub cni_version: String,
    /// Network name: names the reservations' directory.
    pub name: String,
    /// `coracle-cni`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The node's bridge; made if missing.
    #[serde(default = "default_bridge")]
    pub bridge: String,
    /// MTU of all links; 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Let a pod reach itself through a Service.
    #[serde(default = "yes")]
    pub hairpin_mode: bool,
    /// Drop what a pod sends under another's address.
    #[serde(default = "yes")]
    pub anti_spoof: bool,
    /// Masquerade what leaves for elsewhere than `subnet` and `noMasquerade`.
    #[serde(default)]
    pub ip_masq: bool,
    /// Over what; chosen if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_masq_backend: Option<MasqueradeBackend>,
    /// Destinations that see the pod's own address: the cluster's pods and nodes.
    #[serde(default)]
    pub no_masquerade: Vec<Ipv4Net>,
    /// Addresses.
    pub ipam: IpamConf,
    /// GC: attachments that are still in use (`cni.dev/valid-attachments`).
    #[serde(
        rename = "cni.dev/valid-attachments",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub valid_attachments: Vec<ValidAttachment>,
    /// What the runtime asks for beyond that.
    #[serde(
        rename = "runtimeConfig",
        default,
        skip_serializing_if = "RuntimeConfig::is_empty"
    )]
    pub runtime_config: RuntimeConfig,
    /// CHECK and chained ADD: what the previous ADD said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_result: Option<serde_json::Value>,
}

/// Over what a program masquerades.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MasqueradeBackend {
    /// Chains of iptables.
    Iptables,
    /// A table of nftables.
    Nftables,
}

/// Capabilities as a runtime hands them over, those that are understood here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeConfig {
    /// How fast the pod may send and receive.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// The address that the pod is to have: one, with or without a prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<StaticIp>,
    /// The MAC address of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<StaticMac>,
}

impl RuntimeConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The address that is asked for.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.ips.first().and_then(StaticIp::v4)
    }
}

/// Slower than this makes no sense: bits a second.
pub const MIN_RATE: u64 = 1_000;
/// Nor does faster.
pub const MAX_RATE: u64 = 1_000_000_000_000_000;

/// Limits in bits a second and bits; 0 is none. As the pod sees it: ingress is what it receives.
/// Written as the conventions have it, and read as containerd writes it, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bandwidth {
    /// What is received.
    #[serde(alias = "IngressRate", skip_serializing_if = "is_zero")]
    pub ingress_rate: u64,
    /// How much may come at once.
    #[serde(alias = "IngressBurst", skip_serializing_if = "is_zero")]
    pub ingress_burst: u64,
    /// What is sent.
    #[serde(alias = "EgressRate", skip_serializing_if = "is_zero")]
    pub egress_rate: u64,
    /// How much may go at once.
    #[serde(alias = "EgressBurst", skip_serializing_if = "is_zero")]
    pub egress_burst: u64,
}

/// Where addresses come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpamConf {
    /// Empty or `coracle-cni`: built in.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The node's pod CIDR.
    pub subnet: Ipv4Net,
    /// First address given out; the second of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_start: Option<Ipv4Addr>,
    /// Last address given out; the last but one of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_end: Option<Ipv4Addr>,
    /// The bridge's address; the first of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Holds one directory a network.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
}

/// One entry of `cni.dev/valid-attachments`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidAttachment {
    /// CNI_CONTAINERID.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// CNI_IFNAME.
    pub ifname: String,
}

impl NetConf {
    /// Parses and validates a configuration.
    ///
    /// # Errors
    /// [`CniError::Decode`], [`CniError::IncompatibleVersion`], [`CniError::InvalidConfig`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CniError> {
        let conf: Self = serde_json::from_slice(bytes).map_err(CniError::Decode)?;
        conf.validate()?;
        Ok(conf)
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`CniError::IncompatibleVersion`], [`CniError::InvalidConfig`].
    pub fn validate(&self) -> Result<(), CniError> {
        if !VERSIONS.contains(&self.cni_version.as_str()) {
            return Err(CniError::IncompatibleVersion {
                asked: self.cni_version.clone(),
            });
        }
        let invalid = |why: String| Err(CniError::InvalidConfig { why });
        let plain = |s: &str| {
            s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        };
        // It names the directory of its addresses, and must not lead out of where that lies.
        if self.name.is_empty() || !plain(&self.name) || self.name.starts_with('.') {
            return invalid(format!(
                "name {:?} must be letters, digits, '_', '.', '-'",
                self.name
            ));
        }
        let is_link = (1..=MAX_LINK_NAME).contains(&self.bridge.len())
            && !matches!(self.bridge.as_str(), "." | "..");
        if !is_link || !plain(&self.bridge) {
            return invalid(format!(
                "bridge {:?} must be a link name of 1 to {MAX_LINK_NAME} characters",
                self.bridge
            ));
        }
        if !matches!(self.ipam.kind.as_str(), "" | "coracle-cni") {
            return invalid(format!(
                "ipam.type {:?}: only the built-in one is supported",
                self.ipam.kind
            ));
        }
        if self.ipam.subnet.prefix_len() > 30 {
            return invalid(format!(
                "ipam.subnet {} has no room for a gateway and a pod",
                self.ipam.subnet
            ));
        }
        if let Some(mtu) = self.mtu.filter(|mtu| !(576..=65535).contains(mtu)) {
            return invalid(format!("mtu {mtu} must be 576 to 65535"));
        }
        if let Some(why) = asked::refusal(&self.ipam, &self.runtime_config) {
            return invalid(why);
        }
        for (key, address) in [
            ("rangeStart", self.ipam.range_start),
            ("rangeEnd", self.ipam.range_end),
            ("gateway", self.ipam.gateway),
        ] {
            if let Some(address) = address.filter(|a| !self.ipam.subnet.contains(a)) {
                return invalid(format!(
                    "ipam.{key} {address} is not in {}",
                    self.ipam.subnet
                ));
            }
        }
        if self.ipam.first() > self.ipam.last() {
            return invalid(format!(
                "ipam.rangeStart {} is after {}",
                self.ipam.first(),
                self.ipam.last()
            ));
        }
        Ok(())
    }
}

impl IpamConf {
    /// The bridge's address.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        self.gateway
            .unwrap_or_else(|| offset(self.subnet.network(), 1))
    }

    /// The bridge's address with the subnet's prefix.
    #[must_use]
    pub fn gateway_net(&self) -> Ipv4Net {
        Ipv4Net::new(self.gateway(), self.subnet.prefix_len())
            .expect("the prefix length is the subnet's own")
    }

    /// First address that may be given out.
    #[must_use]
    pub fn first(&self) -> Ipv4Addr {
        self.range_start
            .unwrap_or_else(|| offset(self.subnet.network(), 1))
    }

    /// Last address that may be given out.
    #[must_use]
    pub fn last(&self) -> Ipv4Addr {
        self.range_end
            .unwrap_or_else(|| Ipv4Addr::from(u32::from(self.subnet.broadcast()).saturating_sub(1)))
    }

    /// Where the reservations of `network` are.
    #[must_use]
    pub fn directory(&self, network: &str) -> PathBuf {
        self.data_dir.join(network)
    }
}

fn offset(address: Ipv4Addr, by: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address).saturating_add(by))
}

fn default_bridge() -> String {
    "coracle0".into()
}

fn default_data_dir() -> PathBuf {
    Path::new("/var/lib/coracle/agent/cni/networks").into()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(edit: impl FnOnce(&mut serde_json::Value)) -> Result<NetConf, CniError> {
        let mut json = serde_json::json!({
            "cniVersion": "1.0.0", "name": "n", "type": "coracle-cni", "ipam": {"subnet": "10.1.2.0/24"}
        });
        edit(&mut json);
        NetConf::parse(json.to_string().as_bytes())
    }

    #[test]
    fn defaults_are_the_first_address_and_the_rest() {
        let conf = conf(|_| {}).unwrap();
        assert_eq!(conf.ipam.gateway_net().to_string(), "10.1.2.1/24");
        assert_eq!(
            (conf.ipam.first(), conf.ipam.last()),
            ([10, 1, 2, 1].into(), [10, 1, 2, 254].into())
        );
        assert!(conf.hairpin_mode && !conf.ip_masq);
    }

    #[test]
    fn bad_configurations_have_the_specified_code() {
        type Edit = fn(&mut serde_json::Value);
        let cases: [(Edit, u32); 10] = [
            (|c| c["cniVersion"] = "0.2.0".into(), 1),
            (|c| c["name"] = "../x".into(), 7),
            (|c| c["name"] = "".into(), 7),
            (|c| c["bridge"] = "a-name-that-is-too-long".into(), 7),
            (|c| c["bridge"] = "..".into(), 7),
            (|c| c["ipam"]["type"] = "dhcp".into(), 7),
            (|c| c["ipam"]["subnet"] = "10.0.0.0/31".into(), 7),
            (|c| c["ipam"]["gateway"] = "10.9.0.1".into(), 7),
            (|c| c["mtu"] = 3.into(), 7),
            (|c| c["ipam"]["subnet"] = "nonsense".into(), 6),
        ];
        for (edit, code) in cases {
            assert_eq!(conf(edit).unwrap_err().code(), code);
        }
    }
}
