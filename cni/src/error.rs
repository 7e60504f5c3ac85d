//! What can go wrong in a plugin call, and the error object of the CNI specification.

use std::{error::Error, io, net::Ipv4Addr, path::PathBuf};

use coracle_netfilter::{engine::EngineError, iptables::IptablesError};
use coracle_netns::NetNsError;
use coracle_telemetry::ErrorChain;
use serde::{Deserialize, Serialize};

use crate::netlink::NetlinkError;

/// A plugin call that failed. [`CniError::code`] maps it to the specification's numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CniError {
    /// `cniVersion` is none of ours. Code 1.
    #[error("incompatible CNI version {asked:?}")]
    IncompatibleVersion {
        /// As configured.
        asked: String,
    },
    /// A `CNI_*` variable is missing or malformed. Code 4.
    #[error("invalid environment variable {name}: {why}")]
    InvalidEnvironment {
        /// Which.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The configuration is not JSON. Code 6.
    #[error("decode the network configuration")]
    Decode(#[source] serde_json::Error),
    /// The configuration makes no sense. Code 7.
    #[error("invalid network configuration: {why}")]
    InvalidConfig {
        /// What is wrong.
        why: String,
    },
    /// ADD or CHECK for a namespace that does not exist. Code 3.
    #[error("namespace of the container")]
    UnknownNamespace(#[source] NetNsError),
    /// The namespace could not be entered. Code 5.
    #[error("namespace of the container")]
    Namespace(#[source] NetNsError),
    /// A file. Code 5.
    #[error("{operation} {path}")]
    Io {
        /// `read`, `write`...
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No address is left. Code 101.
    #[error("no addresses available in {range}")]
    Exhausted {
        /// The subnet.
        range: String,
    },
    /// The address that was asked for is another's, or its owner has another. Code 105.
    #[error("requested address {address} is not available: {why}")]
    Taken {
        /// The one that was asked for.
        address: Ipv4Addr,
        /// What is in the way.
        why: String,
    },
    /// The kernel refused a link, address or route. Code 100.
    #[error("network link")]
    Netlink(#[from] NetlinkError),
    /// What is asked for needs more than this kernel has. Code 104.
    #[error("the kernel lacks {feature}")]
    Unsupported {
        /// What is asked for.
        feature: &'static str,
        /// What it said.
        #[source]
        source: NetlinkError,
    },
    /// The rules could not be written. Code 102.
    #[error("packet filter rules")]
    Iptables(#[from] IptablesError),
    /// The same, by whatever engine keeps them. Code 102.
    #[error("packet filter rules")]
    Rules(#[from] EngineError),
    /// CHECK found something missing. Code 103.
    #[error("check: {what}")]
    CheckFailed {
        /// What is not as ADD left it.
        what: String,
    },
    /// The bridge has another address. Code 7.
    #[error("bridge {bridge} already has address {found}, not {wanted}")]
    BridgeAddress {
        /// Which.
        bridge: String,
        /// There.
        found: Ipv4Addr,
        /// Configured.
        wanted: Ipv4Addr,
    },
}

impl CniError {
    /// The error code of the specification, section 5 "Error": below 100 as there, from 100 our
    /// own.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::IncompatibleVersion { .. } => 1,
            Self::UnknownNamespace(_) => 3,
            Self::InvalidEnvironment { .. } => 4,
            Self::Namespace(_) | Self::Io { .. } => 5,
            Self::Decode(_) => 6,
            Self::InvalidConfig { .. } | Self::BridgeAddress { .. } => 7,
            Self::Netlink(_) => 100,
            Self::Exhausted { .. } => 101,
            Self::Iptables(_) | Self::Rules(_) => 102,
            Self::CheckFailed { .. } => 103,
            Self::Unsupported { .. } => 104,
            Self::Taken { .. } => 105,
        }
    }

    /// The JSON object that a plugin prints.
    #[must_use]
    pub fn to_wire(&self, cni_version: &str) -> WireError {
        let details = self
            .source()
            .map(|cause| ErrorChain(cause).to_string())
            .unwrap_or_default();
        WireError {
            cni_version: cni_version.to_owned(),
            code: self.code(),
            msg: self.to_string(),
            details,
        }
    }
}

/// The error object of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// Of the configuration.
    #[serde(rename = "cniVersion", default)]
    pub cni_version: String,
    /// See [`CniError::code`].
    pub code: u32,
    /// Short.
    #[serde(default)]
    pub msg: String,
    /// Long.
    #[serde(default)]
    pub details: String,
}
