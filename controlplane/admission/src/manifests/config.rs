//! What the plugins of webhooks and policies are told: where their static manifests are, and who
//! the server is to webhooks.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: WebhookAdmissionConfiguration       # or ValidatingAdmissionPolicyConfiguration, Mutating...
//! kubeConfigFile: /etc/coracle/webhooks.kubeconfig
//! staticManifestsDir: /etc/coracle/webhooks
//! ```
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/config`,
//! `.../plugin/policy/config` at v1.37.

use std::{path::Path, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Holds, Source};
use crate::{
    config::file::{self, AdmissionConfigError},
    kubeconfig::Authentication,
};

const V1: &str = "apiserver.config.k8s.io/v1";

/// What a plugin of webhooks is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct WebhookConfig {
    pub(crate) authentication: Arc<Authentication>,
    pub(crate) manifests: Option<Arc<Source>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookFile {
    #[serde(default)]
    kube_config_file: String,
    #[serde(default)]
    static_manifests_dir: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    static_manifests_dir: String,
}

impl WebhookConfig {
    /// # Errors
    /// What is wrong with which field, or with the files that it names.
    pub(crate) fn of(value: Value, holds: Holds) -> Result<Self, AdmissionConfigError> {
        let known = [
            (V1, "WebhookAdmissionConfiguration"),
            ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"),
        ];
        let file: WebhookFile = file::read_of(&known, value)?;
        let path = Path::new(&file.kube_config_file);
        let is_said = !file.kube_config_file.is_empty() || file.static_manifests_dir.is_empty();
        if is_said && !path.is_absolute() {
            return Err(AdmissionConfigError(format!(
                "kubeConfigFile: Invalid value: {}: must be an absolute file path",
                json!(file.kube_config_file)
            )));
        }
        let authentication = match is_said {
            true => Authentication::read(path)?,
            false => Authentication::default(),
        };
        Ok(Self {
            authentication: Arc::new(authentication),
            manifests: open(holds, &file.static_manifests_dir)?,
        })
    }
}

/// The same of a plugin of policies.
///
/// # Errors
/// As [`WebhookConfig::of`].
pub(crate) fn of_policies(
    value: Value,
    holds: Holds,
) -> Result<Option<Arc<Source>>, AdmissionConfigError> {
    let kind = match holds {
        Holds::MutatingPolicies => "MutatingAdmissionPolicyConfiguration",
        _ => "ValidatingAdmissionPolicyConfiguration",
    };
    let file: PolicyFile = file::read_of(&[(V1, kind)], value)?;
    open(holds, &file.static_manifests_dir)
}

fn open(holds: Holds, directory: &str) -> Result<Option<Arc<Source>>, AdmissionConfigError> {
    match directory {
        "" => Ok(None),
        directory => Source::open(holds, directory).map(|source| Some(Arc::new(source))),
    }
}
