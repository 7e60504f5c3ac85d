//! The result object of the CNI specification, versions 0.3.1 to 1.1.0.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What ADD prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// The configuration's.
    #[serde(rename = "cniVersion", default)]
    pub cni_version: String,
    /// Links made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses assigned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// Routes of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ResultRoute>,
    /// Name service: we leave it to the runtime.
    #[serde(default)]
    pub dns: serde_json::Map<String, serde_json::Value>,
}

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Namespace path; empty on the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// `4` or `6`: only in versions before 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// With prefix.
    pub address: IpNet,
    /// Next hop of the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into `interfaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRoute {
    /// Where to.
    pub dst: IpNet,
    /// Through whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

impl CniResult {
    /// Brings the result into the form of `cni_version`.
    #[must_use]
    pub fn into_version(mut self, cni_version: &str) -> Self {
        self.cni_version = cni_version.to_owned();
        let old = cni_version.starts_with("0.");
        for ip in &mut self.ips {
            ip.version = old.then(|| {
                if ip.address.addr().is_ipv4() {
                    "4"
                } else {
                    "6"
                }
                .to_owned()
            });
        }
        self
    }

    /// The addresses without their prefixes.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.ips.iter().map(|ip| ip.address.addr()).collect()
    }
}

/// `0a:58:...` as text.
#[must_use]
pub fn mac_text(address: &[u8]) -> String {
    address
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(":")
}
