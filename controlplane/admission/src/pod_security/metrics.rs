//! What is counted of it, under upstream's names.
//!
//! Source: `k8s.io/pod-security-admission/metrics/metrics.go` at v1.37.

use std::borrow::Cow;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

use super::level::{Level, LevelVersion, Version};
use crate::attributes::{Attributes, Operation};

/// The release whose checks these are.
const NEWEST: u64 = 37;

/// Counters, for the server to show.
#[derive(Debug, Clone, Default)]
pub struct PodSecurityMetrics {
    /// `pod_security_evaluations_total`: of requests that were looked at, by what came of it.
    pub evaluations: Family<Evaluated, Counter>,
    /// `pod_security_exemptions_total`: of those that were not, because of who or what they are.
    pub exemptions: Family<Exempted, Counter>,
    /// `pod_security_errors_total`: of those whose namespace does not say what it asks.
    pub errors: Family<Failed, Counter>,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Evaluated {
    decision: &'static str,
    mode: &'static str,
    policy_level: &'static str,
    policy_version: Cow<'static, str>,
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Exempted {
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

/// Labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Failed {
    fatal: &'static str,
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

/// One thing to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Count {
    /// A pod was held to a level.
    Evaluated {
        is_allowed: bool,
        mode: &'static str,
        asked: LevelVersion,
    },
    /// Nobody looked.
    Exempt,
    /// What is asked could not be told: nothing then, or else the strictest.
    Failed { is_fatal: bool },
}

impl PodSecurityMetrics {
    pub(crate) fn count(&self, attributes: &Attributes<'_>, count: &Count) {
        let request_operation = match attributes.operation {
            Operation::Create => "create",
            _ => "update",
        };
        let resource = match &*attributes.resource.plural {
            "pods" => "pod",
            "namespaces" => "namespace",
            _ => "controller",
        };
        // What can be below a pod and is counted.
        let known = ["ephemeralcontainers", "resize"].into_iter();
        let subresource = known
            .chain([""])
            .find(|known| *known == attributes.subresource)
            .unwrap_or("other");
        match count {
            Count::Evaluated {
                is_allowed,
                mode,
                asked,
            } => {
                let labels = Evaluated {
                    decision: if *is_allowed { "allow" } else { "deny" },
                    mode,
                    policy_level: asked.level.name(),
                    policy_version: version(asked),
                    request_operation,
                    resource,
                    subresource,
                };
                self.evaluations.get_or_create(&labels).inc();
            }
            Count::Exempt => {
                let labels = Exempted {
                    request_operation,
                    resource,
                    subresource,
                };
                self.exemptions.get_or_create(&labels).inc();
            }
            Count::Failed { is_fatal } => {
                let labels = Failed {
                    fatal: if *is_fatal { "true" } else { "false" },
                    request_operation,
                    resource,
                    subresource,
                };
                self.errors.get_or_create(&labels).inc();
            }
        }
    }
}

/// Of no more than there are: labels of namespaces are not labels of metrics.
fn version(asked: &LevelVersion) -> Cow<'static, str> {
    match asked.version {
        Version::Minor(minor) if asked.level != Level::Privileged => {
            if minor > NEWEST {
                "future".into()
            } else {
                asked.version.to_string().into()
            }
        }
        _ => "latest".into(),
    }
}
