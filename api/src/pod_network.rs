//! How pods of different nodes reach each other: what the server tells every agent.
//!
//! Written on each Node as the annotation [`ANNOTATION`], together with its podCIDR, so that all
//! nodes decide alike and an agent knows it from the first moment on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// JSON of a [`PodNetwork`], on every Node.
pub const ANNOTATION: &str = "coracle.dev/pod-network";
/// IANA's port of VXLAN.
pub const DEFAULT_VXLAN_PORT: u16 = 4789;

/// The way between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Direct to nodes of the same subnet, through the overlay to all others.
    #[default]
    Auto,
    /// Direct to nodes of the same subnet; the network itself knows the way to the others.
    Direct,
    /// Through the overlay to every node: for networks that drop packets with pods' addresses, as
    /// most clouds do.
    Overlay,
}

impl Mode {
    /// As a flag takes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Overlay => "overlay",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Direct, Self::Overlay];
        all.into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| "expected direct, overlay or auto".to_owned())
    }
}

/// What all nodes of a cluster have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetwork {
    /// The way between nodes.
    #[serde(default)]
    pub mode: Mode,
    /// UDP port of the overlay.
    #[serde(default = "default_vxlan_port")]
    pub vxlan_port: u16,
    /// Where podCIDRs are cut from, such as `10.244.0.0/16`; empty if the server does not say.
    #[serde(rename = "clusterCIDR", default)]
    pub cluster_cidr: String,
}

impl Default for PodNetwork {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            vxlan_port: DEFAULT_VXLAN_PORT,
            cluster_cidr: String::new(),
        }
    }
}

impl PodNetwork {
    /// The annotation's value.
    #[must_use]
    pub fn to_annotation(&self) -> String {
        serde_json::to_string(self).expect("plain fields")
    }

    /// Reads the annotation's value.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn from_annotation(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|error| format!("annotation {ANNOTATION} {text:?}: {error}"))
    }
}

fn default_vxlan_port() -> u16 {
    DEFAULT_VXLAN_PORT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_read_back_and_says_no_more_than_it_must() {
        let told = PodNetwork {
            mode: Mode::Overlay,
            vxlan_port: 8472,
            cluster_cidr: "10.244.0.0/16".into(),
        };
        assert_eq!(
            told.to_annotation(),
            r#"{"mode":"overlay","vxlanPort":8472,"clusterCIDR":"10.244.0.0/16"}"#
        );
        assert_eq!(PodNetwork::from_annotation(&told.to_annotation()), Ok(told));
        assert_eq!(PodNetwork::from_annotation("{}"), Ok(PodNetwork::default()));
    }

    #[test]
    fn unknown_modes_are_refused() {
        assert!(
            PodNetwork::from_annotation(r#"{"mode":"tunnel"}"#)
                .unwrap_err()
                .contains("tunnel")
        );
        assert!("Overlay".parse::<Mode>().is_err());
        assert_eq!("overlay".parse(), Ok(Mode::Overlay));
    }
}
