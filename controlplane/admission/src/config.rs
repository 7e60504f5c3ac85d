//! What admission is told from outside: an `AdmissionConfiguration` of
//! `apiserver.config.k8s.io/v1`, as kube-apiserver takes it, for the plugins that take something.
//!
//! A plugin or a field that is not known is refused: what is told to nobody would be believed.
//!
//! Source: `k8s.io/apiserver/pkg/admission/config.go` at v1.37.

pub(crate) mod file;

use std::{fs, io, path::Path, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

pub use self::file::AdmissionConfigError;
use crate::{
    manifests::{
        Holds, Source,
        config::{self as manifests, WebhookConfig},
    },
    optional::{
        event_rate_limit::config::{self as event_rate_limit, Limit},
        image_policy_webhook::config::{ImagePolicy, NAME as IMAGE_POLICY_WEBHOOK},
        pod_node_selector::config::PodNodeSelectorConfig,
        pod_toleration_restriction::config::PodTolerationConfig,
    },
    pod_security::config::PodSecurityConfig,
    resource_quota::limited::Limited,
    selection::Selection,
};

/// Those that take a configuration.
const CONFIGURED: [&str; 10] = [
    "EventRateLimit",
    IMAGE_POLICY_WEBHOOK,
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// What plugins are told.
#[derive(Debug, Clone, Default)]
pub struct AdmissionConfig {
    pub(crate) selection: Selection,
    pub(crate) pod_security: PodSecurityConfig,
    pub(crate) event_rate_limits: Vec<Limit>,
    pub(crate) pod_node_selector: PodNodeSelectorConfig,
    pub(crate) pod_tolerations: PodTolerationConfig,
    pub(crate) limited: Limited,
    pub(crate) image_policy: Option<Arc<ImagePolicy>>,
    pub(crate) mutating_webhooks: WebhookConfig,
    pub(crate) validating_webhooks: WebhookConfig,
    pub(crate) mutating_policies: Option<Arc<Source>>,
    pub(crate) validating_policies: Option<Arc<Source>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    plugins: Vec<PluginEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginEntry {
    name: String,
    #[serde(default)]
    path: String,
    configuration: Option<Value>,
}

impl AdmissionConfig {
    /// Reads the file at `path`, and those that it names, from its directory on.
    ///
    /// # Errors
    /// [`AdmissionConfigError`].
    pub fn read(path: &Path) -> Result<Self, AdmissionConfigError> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let text = fs::read_to_string(path).map_err(said)?;
        Self::parse(&text, &|name| fs::read_to_string(directory.join(name)))
    }

    /// The same of what the file says, in YAML or JSON.
    fn parse(
        text: &str,
        read: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<Self, AdmissionConfigError> {
        let known = [
            ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
            ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
        ];
        let file: File = file::read_of(&known, serde_yaml::from_str(text).map_err(said)?)?;
        let mut config = Self::default();
        for (index, entry) in file.plugins.iter().enumerate() {
            let at = format!("plugins[{index}]");
            let first = file.plugins.iter().position(|one| one.name == entry.name);
            let is_known = CONFIGURED.contains(&&*entry.name);
            if !is_known || first != Some(index) {
                let why = if is_known {
                    "Duplicate value"
                } else {
                    "Unsupported value"
                };
                let (name, known) = (&entry.name, CONFIGURED.join(", "));
                return Err(AdmissionConfigError(format!(
                    "{at}.name: {why}: {name:?}: {known} take a configuration, each once"
                )));
            }
            if let Some(value) = entry
                .configuration(read)
                .map_err(|error| at_place(&at, error))?
            {
                config
                    .tell(&entry.name, value)
                    .map_err(|error| at_place(&at, error.0))?;
            }
        }
        Ok(config)
    }

    fn tell(&mut self, plugin: &str, value: Value) -> Result<(), AdmissionConfigError> {
        use Holds::{MutatingPolicies, MutatingWebhooks, ValidatingPolicies, ValidatingWebhooks};
        match plugin {
            "MutatingAdmissionPolicy" => {
                self.mutating_policies = manifests::of_policies(value, MutatingPolicies)?;
            }
            "ValidatingAdmissionPolicy" => {
                self.validating_policies = manifests::of_policies(value, ValidatingPolicies)?;
            }
            "MutatingAdmissionWebhook" => {
                self.mutating_webhooks = WebhookConfig::of(value, MutatingWebhooks)?;
            }
            "ValidatingAdmissionWebhook" => {
                self.validating_webhooks = WebhookConfig::of(value, ValidatingWebhooks)?;
            }
            "EventRateLimit" => self.event_rate_limits = event_rate_limit::limits(value)?,
            "PodNodeSelector" => self.pod_node_selector = PodNodeSelectorConfig::of(value)?,
            IMAGE_POLICY_WEBHOOK => {
                self.image_policy = Some(Arc::new(ImagePolicy::of(value)?));
            }
            "ResourceQuota" => self.limited = Limited::of(value)?,
            "PodTolerationRestriction" => self.pod_tolerations = PodTolerationConfig::of(value)?,
            _ => self.pod_security = PodSecurityConfig::of(value)?,
        }
        Ok(())
    }

    /// What is read from files as long as the server runs.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &Arc<Source>> {
        let webhooks = [&self.mutating_webhooks, &self.validating_webhooks];
        let policies = [&self.mutating_policies, &self.validating_policies];
        let sources = webhooks
            .map(|told| &told.manifests)
            .into_iter()
            .chain(policies);
        sources.flatten()
    }

    /// Which plugins the server has, as its flags say.
    ///
    /// # Errors
    /// Names that are unknown or in both; EventRateLimit without the limits that it is to hold,
    /// ImagePolicyWebhook without the webhook that it is to ask.
    pub fn select(
        &mut self,
        enabled: &[String],
        disabled: &[String],
    ) -> Result<(), AdmissionConfigError> {
        self.selection = Selection::new(enabled, disabled)?;
        if self.selection.has("EventRateLimit") && self.event_rate_limits.is_empty() {
            return Err(AdmissionConfigError(
                "EventRateLimit: limits: Invalid value: []: must not be empty".to_owned(),
            ));
        }
        if self.selection.has(IMAGE_POLICY_WEBHOOK) && self.image_policy.is_none() {
            return Err(AdmissionConfigError(format!(
                "{}: no config specified",
                IMAGE_POLICY_WEBHOOK
            )));
        }
        Ok(())
    }
}

impl PluginEntry {
    /// What stands here, or in the file that is named here.
    fn configuration(
        &self,
        read: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<Option<Value>, String> {
        if let Some(value) = &self.configuration {
            return Ok(Some(value.clone()));
        }
        if self.path.is_empty() {
            return Ok(None);
        }
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path);
        let text = read(&self.path).map_err(|error| named(&error))?;
        serde_yaml::from_str(&text).map_err(|error| named(&error))
    }
}

fn said(error: impl std::fmt::Display) -> AdmissionConfigError {
    AdmissionConfigError(error.to_string())
}

fn at_place(place: &str, error: impl std::fmt::Display) -> AdmissionConfigError {
    AdmissionConfigError(format!("{place}: {error}"))
}

#[cfg(test)]
mod tests;
