//! What the scheduler is told: profiles, and how it goes about it. By `KubeSchedulerConfiguration`
//! of `kubescheduler.config.k8s.io/v1`, or upstream's defaults.
//!
//! | module | what |
//! |---|---|
//! | `file` | the file as it is written |
//! | `points` | which plugins are asked where: what of the defaults is taken away, added, put in another order |
//! | `arguments` | what plugins are told |
//! | `profile` | all of it together, for one `schedulerName` |
//! | `extender` | processes beside the scheduler, and how they are reached |
//!
//! A field that is not known is refused. `parallelism` is read and changes nothing: one thread
//! decides.
//!
//! Source: `k8s.io/kube-scheduler/config/v1`, `pkg/scheduler/apis/config` at v1.37.

mod arguments;
mod extender;
mod file;
mod points;
mod profile;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use coracle_api::component_config::without_nulls;
use coracle_telemetry::metrics::MetricsRegistry;
use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;

use self::file::File;
pub(crate) use self::{
    arguments::{
        Arguments, BalancedArgs, FitArgs, InterPodAffinityArgs, NodeAffinityArgs, PreemptionArgs,
        RatioPoint, ScoringStrategy, SpreadArgs, Strategy,
    },
    extender::{ExtenderConfig, Verb},
    profile::Profile,
};

/// The `schedulerName` of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What the scheduler is told.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// One for each `schedulerName` whose pods are placed; at least one.
    pub(crate) profiles: Vec<Profile>,
    /// Who else has a say in where pods go.
    pub(crate) extenders: Vec<ExtenderConfig>,
    pub(crate) backoff_initial: Duration,
    pub(crate) backoff_max: Duration,
    /// How a process of its own reaches the API server, where nothing else says it.
    pub kubeconfig: Option<PathBuf>,
    /// Whether and by which Lease one of several leads.
    pub election: ElectionConfig,
    /// Where the scheduler counts what it does.
    pub metrics: MetricsRegistry,
}

/// How one of several schedulers leads, for those that are processes of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Whether it waits until it leads.
    pub elect: bool,
    /// Name of the Lease.
    pub lease: String,
    /// Its namespace.
    pub namespace: String,
    /// How long the Lease must stand still before another takes it.
    pub lease_duration: Duration,
    /// How long a leader tries to renew it.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry_period: Duration,
}

/// Why a configuration cannot be used: where in it, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn at(place: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self(format!("{place}: {why}"))
    }
}

impl Default for ElectionConfig {
    fn default() -> Self {
        Self {
            elect: true,
            lease: "kube-scheduler".to_owned(),
            namespace: "kube-system".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            extenders: Vec::new(),
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(10),
            kubeconfig: None,
            election: ElectionConfig::default(),
            metrics: MetricsRegistry::default(),
        }
    }
}

impl SchedulerConfig {
    /// Reads a `KubeSchedulerConfiguration`, in YAML or JSON, and the certificates that it names.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(text, &|path: &Path| fs::read(path))
    }

    /// The same, with files that `read` reads.
    pub(crate) fn parse_with(
        text: &str,
        read: extender::ReadFile<'_>,
    ) -> Result<Self, ConfigError> {
        let said = |error: &dyn std::fmt::Display| ConfigError(error.to_string());
        let mut value: Value = serde_yaml::from_str(text).map_err(|error| said(&error))?;
        without_nulls(&mut value);
        let file: File = serde_json::from_value(value).map_err(|error| said(&error))?;
        file.check()?;
        let nodes = file.percentage_of_nodes_to_score;
        let mut profiles: Vec<Profile> = Vec::new();
        let own = [file::Profile::default()];
        let written = file.profiles.as_deref().filter(|all| !all.is_empty());
        let written = written.unwrap_or(&own);
        for (index, one) in written.iter().enumerate() {
            let place = format!("profiles[{index}]");
            if one.scheduler_name.is_none() && written.len() > 1 {
                let field = format!("{place}.schedulerName");
                return Err(ConfigError::at(field, "Required value"));
            }
            let profile = Profile::of(one, nodes, &place)?;
            if profiles.iter().any(|other| other.name == profile.name) {
                let why = format!("Duplicate value: {:?}", profile.name);
                return Err(ConfigError::at(format!("{place}.schedulerName"), why));
            }
            profiles.push(profile);
        }
        let extenders = extender::all(&file.extenders, read)?;
        leave_to(&extenders, &mut profiles);
        Ok(Self {
            profiles,
            extenders,
            backoff_initial: Duration::from_secs(file.pod_initial_backoff_seconds.unwrap_or(1)),
            backoff_max: Duration::from_secs(file.pod_max_backoff_seconds.unwrap_or(10)),
            kubeconfig: file.kubeconfig(),
            election: file.election()?,
            metrics: MetricsRegistry::default(),
        })
    }

    /// The `schedulerName`s whose pods are placed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(|profile| profile.name.as_str())
    }
}

/// What extenders see to alone goes before what a profile says of it, as upstream has it.
fn leave_to(extenders: &[ExtenderConfig], profiles: &mut [Profile]) {
    let ignored = extenders.iter().flat_map(|one| &one.ignored_by_scheduler);
    let ignored: Vec<String> = ignored.cloned().collect();
    if ignored.is_empty() {
        return;
    }
    for profile in profiles {
        profile.arguments.fit.ignored_resources.clone_from(&ignored);
    }
}

/// Such as `15s`; of nothing, what is meant by that.
fn time(
    field: impl std::fmt::Display,
    said: Option<&String>,
    unsaid: Duration,
) -> Result<Duration, ConfigError> {
    let Some(said) = said else { return Ok(unsaid) };
    let parsed = said.parse::<SignedDuration>().ok();
    parsed
        .and_then(|time| time.try_into().ok())
        .map(|time: Duration| if time.is_zero() { unsaid } else { time })
        .ok_or_else(|| ConfigError::at(field, format!("{said:?} is no duration such as 15s")))
}
