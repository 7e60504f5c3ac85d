//! Which Services of type LoadBalancer this cluster serves itself: with the addresses of its nodes.

use std::{fmt, str::FromStr};

/// The class of those that ask for this by name; whoever names none is served as well.
pub const CLASS: &str = "coracle.dev/node";

/// The annotation that names who may come in, where `spec.loadBalancerSourceRanges` names nobody:
/// ranges with commas between them.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Whether a Service of this `spec.loadBalancerClass` is served here; other classes are others'
/// business.
#[must_use]
pub fn is_served(class: Option<&str>) -> bool {
    class.is_none_or(|class| class == CLASS)
}

/// Which Services of type LoadBalancer get addresses of nodes.
///
/// As text, what answers those without a class: `nodes` or `none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Served {
    /// Those of [`CLASS`] and those without a class.
    #[default]
    #[serde(rename = "nodes")]
    Unclassed,
    /// Those alone that ask for it by name: the others are another load balancer's.
    #[serde(rename = "none")]
    Named,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclassed => "nodes",
            Self::Named => "none",
        })
    }
}

impl FromStr for Served {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = [Self::Unclassed, Self::Named].into_iter();
        all.find(|one| one.to_string() == text)
            .ok_or("expected nodes or none")
    }
}

impl Served {
    /// Whether a Service of this `spec.loadBalancerClass` is among them.
    #[must_use]
    pub fn include(self, class: Option<&str>) -> bool {
        match class {
            Some(_) => is_served(class),
            None => self == Self::Unclassed,
        }
    }
}
