//! What is written to an extender and read from it. Upstream's types have no names for JSON, so Go
//! writes those of the fields, and reads them in whatever case: extenders that were written for
//! older types say `nodenames`.
//!
//! Source: `k8s.io/kube-scheduler/extender/v1/types.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

use crate::framework::{ExtenderError, Filtered, NamedVictims};

/// `ExtenderArgs`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeArgs<'a> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) nodes: Option<NodeList<'a>>,
    pub(super) node_names: Option<Vec<&'a str>>,
}

/// `NodeList` of Kubernetes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeList<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ListMeta,
    items: Vec<&'a Arc<Node>>,
}

#[derive(Debug, Serialize)]
struct ListMeta {}

impl<'a> NodeList<'a> {
    pub(super) fn of(items: Vec<&'a Arc<Node>>) -> Self {
        Self {
            api_version: "v1",
            kind: "NodeList",
            metadata: ListMeta {},
            items,
        }
    }
}

/// `ExtenderPreemptionArgs`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PreemptionArgs<'a> {
    pub(super) pod: &'a Arc<Pod>,
    #[serde(rename = "NodeNameToVictims")]
    pub(super) victims: Option<BTreeMap<&'a str, Victims<'a>>>,
    #[serde(rename = "NodeNameToMetaVictims")]
    pub(super) meta_victims: Option<BTreeMap<&'a str, MetaVictims>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Victims<'a> {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<&'a Arc<Pod>>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) violations: i64,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct MetaVictims {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<MetaPod>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) violations: i64,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct MetaPod {
    #[serde(rename = "UID")]
    pub(super) uid: String,
}

/// `ExtenderBindingArgs`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindingArgs<'a> {
    pub(super) pod_name: &'a str,
    pub(super) pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: &'a str,
    pub(super) node: &'a str,
}

/// `ExtenderFilterResult`.
#[derive(Debug, Default)]
pub(super) struct FilterResult {
    nodes: Option<NamedNodes>,
    node_names: Option<Vec<String>>,
    failed: BTreeMap<String, String>,
    failed_and_unresolvable: BTreeMap<String, String>,
    error: String,
}

/// Of whole nodes only the names count.
#[derive(Debug, Default, Deserialize)]
struct NamedNodes {
    items: Option<Vec<NamedNode>>,
}

#[derive(Debug, Deserialize)]
struct NamedNode {
    #[serde(default)]
    metadata: NodeName,
}

#[derive(Debug, Default, Deserialize)]
struct NodeName {
    #[serde(default)]
    name: String,
}

/// `ExtenderPreemptionResult`.
#[derive(Debug, Default)]
pub(super) struct PreemptionResult {
    pub(super) nodes: BTreeMap<String, Option<MetaVictims>>,
}

/// `HostPriorityList`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct HostPriorities(pub(super) Vec<HostPriority>);

#[derive(Debug, Default)]
pub(super) struct HostPriority {
    pub(super) host: String,
    pub(super) score: i64,
}

/// `ExtenderBindingResult`.
#[derive(Debug, Default)]
pub(super) struct BindingResult {
    pub(super) error: String,
}

impl FilterResult {
    /// What is meant: names count from those alone who are told names.
    ///
    /// # Errors
    /// The extender says that it has failed.
    pub(super) fn filtered(self, named: bool) -> Result<Filtered, ExtenderError> {
        if !self.error.is_empty() {
            return Err(ExtenderError::Said(self.error));
        }
        let listed = || {
            let items = self.nodes.and_then(|nodes| nodes.items);
            let items = items.into_iter().flatten();
            items.map(|node| node.metadata.name).collect()
        };
        Ok(Filtered {
            nodes: match self.node_names {
                Some(names) if named => names,
                _ => listed(),
            },
            failed: self.failed,
            failed_and_unresolvable: self.failed_and_unresolvable,
        })
    }
}

impl From<MetaVictims> for NamedVictims {
    fn from(victims: MetaVictims) -> Self {
        Self {
            uids: victims.pods.into_iter().map(|pod| pod.uid).collect(),
            violations: victims.violations,
        }
    }
}

/// The fields of an object, not read yet.
#[derive(Deserialize)]
#[serde(transparent)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// By its name if it is there, or else by that in another case; `null` is as good as none.
    fn take<T: Deserialize<'a> + Default, E: serde::de::Error>(&self, name: &str) -> Result<T, E> {
        let folded = || {
            let mut all = self.0.iter();
            all.find(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let found = self.0.get_key_value(name).or_else(folded);
        let Some((_, raw)) = found else {
            return Ok(T::default());
        };
        let read: Result<Option<T>, _> = serde_json::from_str(raw.get());
        read.map(Option::unwrap_or_default)
            .map_err(|error| E::custom(format_args!("{name}: {error}")))
    }
}

impl<'de> Deserialize<'de> for FilterResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        Ok(Self {
            nodes: fields.take("Nodes")?,
            node_names: fields.take("NodeNames")?,
            failed: fields.take("FailedNodes")?,
            failed_and_unresolvable: fields.take("FailedAndUnresolvableNodes")?,
            error: fields.take("Error")?,
        })
    }
}

impl<'de> Deserialize<'de> for PreemptionResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let nodes = fields.take("NodeNameToMetaVictims")?;
        Ok(Self { nodes })
    }
}

impl<'de> Deserialize<'de> for MetaVictims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        Ok(Self {
            pods: fields.take("Pods")?,
            violations: fields.take("NumPDBViolations")?,
        })
    }
}

impl<'de> Deserialize<'de> for MetaPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let uid = fields.take("UID")?;
        Ok(Self { uid })
    }
}

impl<'de> Deserialize<'de> for HostPriority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let host: String = fields.take("Host")?;
        if host.is_empty() {
            return Err(D::Error::custom("a score without a host"));
        }
        let score = fields.take("Score")?;
        Ok(Self { host, score })
    }
}

impl<'de> Deserialize<'de> for BindingResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let error = fields.take("Error")?;
        Ok(Self { error })
    }
}
