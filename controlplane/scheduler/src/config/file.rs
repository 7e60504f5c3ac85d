//! The file as it is written. What is left out is `None`: the defaults are the reader's.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::{ConfigError, ElectionConfig, extender, time};

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// No pod waits longer than some decades.
const MAX_SECONDS: u64 = i32::MAX as u64;
const KIND: &str = "KubeSchedulerConfiguration";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    api_version: String,
    kind: String,
    parallelism: Option<i32>,
    leader_election: Option<LeaderElection>,
    client_connection: Option<ClientConnection>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) pod_initial_backoff_seconds: Option<u64>,
    pub(super) pod_max_backoff_seconds: Option<u64>,
    pub(super) profiles: Option<Vec<Profile>>,
    #[serde(default)]
    pub(super) extenders: Vec<extender::Written>,
    // Of a process that serves its own profiles, and of a cache that costs nothing to fill.
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<bool>,
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    #[serde(rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Option<bool>,
}

/// How a process of its own reaches the API server. Of it the kubeconfig counts: a client chooses
/// its own pace and encoding.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientConnection {
    kubeconfig: Option<String>,
    #[serde(rename = "acceptContentTypes")]
    _accept_content_types: Option<String>,
    #[serde(rename = "contentType")]
    _content_type: Option<String>,
    #[serde(rename = "qps")]
    _qps: Option<f64>,
    #[serde(rename = "burst")]
    _burst: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaderElection {
    leader_elect: Option<bool>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) scheduler_name: Option<String>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    #[serde(default)]
    pub(super) plugins: Plugins,
    #[serde(default)]
    pub(super) plugin_config: Vec<PluginConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginConfig {
    pub(super) name: String,
    #[serde(default)]
    pub(super) args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Plugins {
    pub(super) multi_point: Switches,
    pub(super) pre_enqueue: Switches,
    pub(super) queue_sort: Switches,
    pub(super) pre_filter: Switches,
    pub(super) filter: Switches,
    pub(super) post_filter: Switches,
    pub(super) pre_score: Switches,
    pub(super) score: Switches,
    pub(super) reserve: Switches,
    pub(super) permit: Switches,
    pub(super) pre_bind: Switches,
    pub(super) bind: Switches,
    pub(super) post_bind: Switches,
    pub(super) placement_generate: Switches,
    pub(super) placement_score: Switches,
}

/// What is turned on and off at a point.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Switches {
    pub(super) enabled: Vec<Switch>,
    pub(super) disabled: Vec<Switch>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Switch {
    pub(super) name: String,
    #[serde(default)]
    pub(super) weight: i64,
}

impl File {
    /// What is wrong whatever the profiles say.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if (self.api_version.as_str(), self.kind.as_str()) != (API_VERSION, KIND) {
            let found = format!("{}, {}", self.api_version, self.kind);
            return Err(ConfigError::at(
                "apiVersion, kind",
                format!("expected {API_VERSION}, {KIND}; it says {found}"),
            ));
        }
        if let Some(parallelism) = self.parallelism.filter(|number| *number <= 0) {
            let why = format!(
                "Invalid value: {parallelism}: should be an integer value greater than zero"
            );
            return Err(ConfigError::at("parallelism", why));
        }
        let (initial, max) = (
            self.pod_initial_backoff_seconds.unwrap_or(1),
            self.pod_max_backoff_seconds.unwrap_or(10),
        );
        if initial == 0 {
            return Err(ConfigError::at(
                "podInitialBackoffSeconds",
                "must be greater than 0",
            ));
        }
        if max > MAX_SECONDS {
            let why = format!("must be at most {MAX_SECONDS}");
            return Err(ConfigError::at("podMaxBackoffSeconds", why));
        }
        if max < initial {
            let why = "must be greater than or equal to PodInitialBackoffSeconds";
            return Err(ConfigError::at("podMaxBackoffSeconds", why));
        }
        Ok(())
    }

    /// The kubeconfig that it names.
    pub(super) fn kubeconfig(&self) -> Option<PathBuf> {
        let connection = self.client_connection.as_ref();
        let path = connection.and_then(|connection| connection.kubeconfig.as_ref());
        path.filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Who leads, by the file.
    pub(super) fn election(&self) -> Result<ElectionConfig, ConfigError> {
        let unsaid = ElectionConfig::default();
        let Some(said) = &self.leader_election else {
            return Ok(unsaid);
        };
        if let Some(lock) = said
            .resource_lock
            .as_deref()
            .filter(|lock| !matches!(*lock, "leases" | ""))
        {
            let why = format!("Unsupported value: {lock:?}: supported values: \"leases\"");
            return Err(ConfigError::at("leaderElection.resourceLock", why));
        }
        let found = ElectionConfig {
            elect: said.leader_elect.unwrap_or(unsaid.elect),
            lease: name(said.resource_name.as_ref(), unsaid.lease),
            namespace: name(said.resource_namespace.as_ref(), unsaid.namespace),
            lease_duration: time(
                "leaderElection.leaseDuration",
                said.lease_duration.as_ref(),
                unsaid.lease_duration,
            )?,
            renew_deadline: time(
                "leaderElection.renewDeadline",
                said.renew_deadline.as_ref(),
                unsaid.renew_deadline,
            )?,
            retry_period: time(
                "leaderElection.retryPeriod",
                said.retry_period.as_ref(),
                unsaid.retry_period,
            )?,
        };
        let why = match &found {
            it if !it.elect => return Ok(found),
            it if it.lease_duration <= it.renew_deadline => {
                "leaseDuration must be greater than renewDeadline"
            }
            it if it.renew_deadline <= it.retry_period => {
                "renewDeadline must be greater than retryPeriod"
            }
            it if it.retry_period.is_zero() => "retryPeriod must be greater than zero",
            _ => return Ok(found),
        };
        Err(ConfigError::at("leaderElection", why))
    }
}

/// An empty one is none.
fn name(said: Option<&String>, unsaid: String) -> String {
    let said = said.filter(|said| !said.is_empty());
    said.cloned().unwrap_or(unsaid)
}
