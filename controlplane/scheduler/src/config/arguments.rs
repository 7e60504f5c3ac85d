//! What plugins are told, `pluginConfig` of a profile.
//!
//! Source: `pkg/scheduler/apis/config/types_pluginargs.go`, `v1/defaults.go`,
//! `validation/validation_pluginargs.go` at v1.37.

mod check;

use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{ConfigError, file::PluginConfig};
use crate::framework::PluginName;

/// What every plugin that can be told something is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    pub(crate) fit: FitArgs,
    pub(crate) balanced: BalancedArgs,
    pub(crate) node_affinity: NodeAffinityArgs,
    pub(crate) spread: SpreadArgs,
    pub(crate) inter_pod_affinity: InterPodAffinityArgs,
    pub(crate) volume_binding: VolumeBindingArgs,
    pub(crate) preemption: PreemptionArgs,
}

/// NodeResourcesFit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct FitArgs {
    /// Extended resources that somebody else counts, by name.
    pub(crate) ignored_resources: Vec<String>,
    /// The same by what is before the slash.
    pub(crate) ignored_resource_groups: Vec<String>,
    pub(crate) scoring_strategy: ScoringStrategy,
}

/// By what a node is good or bad.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ScoringStrategy {
    #[serde(rename = "type")]
    pub(crate) strategy: Strategy,
    pub(crate) resources: Vec<Weighted>,
    requested_to_capacity_ratio: Ratio,
}

/// Which nodes are preferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Strategy {
    /// The emptier ones.
    #[default]
    LeastAllocated,
    /// The fuller ones.
    MostAllocated,
    /// By points between which scores go in straight lines.
    RequestedToCapacityRatio,
}

/// A resource and what it counts beside others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Weighted {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) weight: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ratio {
    shape: Vec<RatioPoint>,
}

/// At so much use, in percent, a node has this score, out of 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RatioPoint {
    pub(crate) utilization: i64,
    pub(crate) score: i64,
}

/// NodeResourcesBalancedAllocation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BalancedArgs {
    pub(crate) resources: Vec<Weighted>,
}

/// NodeAffinity.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NodeAffinityArgs {
    /// Asked of every pod of the profile, beside what it asks itself.
    pub(crate) added_affinity: Option<NodeAffinity>,
}

/// PodTopologySpread.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct SpreadArgs {
    default_constraints: Vec<TopologySpreadConstraint>,
    defaulting_type: Defaulting,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum Defaulting {
    #[default]
    System,
    List,
}

/// InterPodAffinity.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct InterPodAffinityArgs {
    /// What it counts that a pod on a node requires to be near a pod.
    pub(crate) hard_pod_affinity_weight: i64,
    /// Whether of what other pods wish nothing counts.
    pub(crate) ignore_preferred_terms_of_existing_pods: bool,
}

/// VolumeBinding.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct VolumeBindingArgs {
    bind_timeout_seconds: u64,
}

/// DefaultPreemption: how many nodes are enough to choose from.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PreemptionArgs {
    pub(crate) min_candidate_nodes_percentage: usize,
    pub(crate) min_candidate_nodes_absolute: usize,
}

fn cpu_and_memory() -> Vec<Weighted> {
    let of = |name: &str| Weighted {
        name: name.to_owned(),
        weight: 1,
    };
    ["cpu", "memory"].map(of).into()
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            resources: cpu_and_memory(),
            requested_to_capacity_ratio: Ratio::default(),
        }
    }
}

impl Default for BalancedArgs {
    fn default() -> Self {
        Self {
            resources: cpu_and_memory(),
        }
    }
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout_seconds: 600,
        }
    }
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

impl ScoringStrategy {
    /// The points of [`Strategy::RequestedToCapacityRatio`], by use.
    pub(crate) fn shape(&self) -> &[RatioPoint] {
        &self.requested_to_capacity_ratio.shape
    }
}

impl SpreadArgs {
    /// What pods wish and require that say nothing; `None`: what the system has for them.
    pub(crate) fn constraints(&self) -> Option<&[TopologySpreadConstraint]> {
        (self.defaulting_type == Defaulting::List).then_some(&*self.default_constraints)
    }
}

impl VolumeBindingArgs {
    /// For all volumes of a pod to be bound.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.bind_timeout_seconds)
    }
}

impl Arguments {
    /// # Errors
    /// What a plugin cannot be told, or not twice.
    pub(super) fn of(written: &[PluginConfig], place: &str) -> Result<Self, ConfigError> {
        let mut found = Self::default();
        for (index, PluginConfig { name, args }) in written.iter().enumerate() {
            let place = format!("{place}.pluginConfig[{index}]");
            if written[..index].iter().any(|other| other.name == *name) {
                return Err(ConfigError::at(
                    place,
                    format!("repeated config for plugin {name}"),
                ));
            }
            match PluginName::parse(name) {
                Some(PluginName::NodeResourcesFit) => found.fit = read(args, &place)?,
                Some(PluginName::NodeResourcesBalancedAllocation) => {
                    found.balanced = read(args, &place)?
                }
                Some(PluginName::NodeAffinity) => found.node_affinity = read(args, &place)?,
                Some(PluginName::PodTopologySpread) => found.spread = read(args, &place)?,
                Some(PluginName::InterPodAffinity) => {
                    found.inter_pod_affinity = read(args, &place)?
                }
                Some(PluginName::VolumeBinding) => found.volume_binding = read(args, &place)?,
                Some(PluginName::DefaultPreemption) => found.preemption = read(args, &place)?,
                Some(_) => {
                    let why = format!("plugin {name} takes no arguments");
                    return Err(ConfigError::at(place, why));
                }
                None => {
                    return Err(ConfigError::at(
                        place,
                        format!("plugin {name:?} does not exist"),
                    ));
                }
            }
            found.check(&place)?;
        }
        for resources in [
            &mut found.fit.scoring_strategy.resources,
            &mut found.balanced.resources,
        ] {
            if resources.is_empty() {
                *resources = cpu_and_memory();
            }
        }
        Ok(found)
    }
}

impl Weighted {
    /// One that is not said is 1.
    pub(crate) fn weight(&self) -> i64 {
        if self.weight == 0 { 1 } else { self.weight }
    }
}

/// What is left out has its default.
fn read<T: DeserializeOwned + Default>(args: &Value, place: &str) -> Result<T, ConfigError> {
    let mut args = args.clone();
    match &mut args {
        Value::Null => return Ok(T::default()),
        Value::Object(fields) => {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        _ => {}
    }
    serde_json::from_value(args).map_err(|error| ConfigError::at(format!("{place}.args"), error))
}
