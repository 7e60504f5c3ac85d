//! What ImagePolicyWebhook is told.
//!
//! Source: `plugin/pkg/admission/imagepolicy/config.go` at v1.37.

use std::{path::Path, time::Duration};

use coracle_webhook::ClientConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    config::file::{self, AdmissionConfigError},
    kubeconfig,
};

/// Upstream's name of the plugin.
pub(crate) const NAME: &str = "ImagePolicyWebhook";

/// What the plugin is told.
#[derive(Debug)]
pub(crate) struct ImagePolicy {
    pub(crate) client: ClientConfig,
    /// How long a yes holds; zero if it is asked for again each time.
    pub(crate) allow_ttl: Duration,
    /// The same of a no.
    pub(crate) deny_ttl: Duration,
    /// Before the second try.
    pub(crate) retry_backoff: Duration,
    /// Whether pods come in where the webhook fails.
    pub(crate) default_allow: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    image_policy: Said,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Said {
    #[serde(rename = "kubeConfigFile")]
    kube_config_file: String,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    #[serde(rename = "retryBackoff")]
    retry_backoff: i64,
    #[serde(rename = "defaultAllow")]
    default_allow: bool,
}

/// One of the durations: how much one of it is, and what may be said.
struct Allowed {
    field: &'static str,
    unit: Duration,
    /// More than this.
    above: Duration,
    most: Duration,
    unsaid: Duration,
}

const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);
const ALLOW_TTL: Allowed = Allowed {
    field: "allowTTL",
    unit: Duration::from_secs(1),
    above: Duration::from_secs(1),
    most: HALF_AN_HOUR,
    unsaid: Duration::from_secs(5 * 60),
};
const DENY_TTL: Allowed = Allowed {
    field: "denyTTL",
    unsaid: Duration::from_secs(30),
    ..ALLOW_TTL
};
const RETRY_BACKOFF: Allowed = Allowed {
    field: "retryBackoff",
    unit: Duration::from_millis(1),
    above: Duration::from_nanos(1),
    most: Duration::from_secs(5 * 60),
    unsaid: Duration::from_millis(500),
};

impl ImagePolicy {
    /// Reads what is said, and the kubeconfig that it names.
    ///
    /// # Errors
    /// What is wrong with which field.
    pub(crate) fn of(value: Value) -> Result<Self, AdmissionConfigError> {
        let version = "imagepolicy.admission.k8s.io/v1alpha1";
        // The form without version and kind is the older one.
        let known = [(version, "ImagePolicyWebhookConfiguration"), ("", "")];
        let file: File = file::read_of(&known, value)?;
        let said = file.image_policy;
        Ok(Self {
            allow_ttl: ALLOW_TTL.read(said.allow_ttl)?,
            deny_ttl: DENY_TTL.read(said.deny_ttl)?,
            retry_backoff: RETRY_BACKOFF.read(said.retry_backoff)?,
            default_allow: said.default_allow,
            client: kubeconfig::client(Path::new(&said.kube_config_file))?,
        })
    }
}

impl Allowed {
    /// Nothing is the usual, and -1 is none.
    fn read(&self, said: i64) -> Result<Duration, AdmissionConfigError> {
        match said {
            0 => return Ok(self.unsaid),
            -1 => return Ok(Duration::ZERO),
            _ => {}
        }
        let count = u32::try_from(said).ok();
        let value = count.and_then(|count| self.unit.checked_mul(count));
        let value = value.filter(|value| *value > self.above && *value <= self.most);
        value.ok_or_else(|| {
            AdmissionConfigError(format!(
                "imagePolicy.{}: Invalid value: {said}: valid value is between {:?} and {:?}",
                self.field, self.above, self.most
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(said: Value) -> Result<ImagePolicy, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let kubeconfig =
            "{clusters: [{name: a, cluster: {server: 'https://a'}}], current-context: c,
            contexts: [{name: c, context: {cluster: a}}]}";
        std::fs::write(&path, kubeconfig).unwrap();
        let mut file = json!({"imagePolicy": {"kubeConfigFile": path}});
        for (field, value) in said.as_object().unwrap() {
            match field.as_str() {
                "apiVersion" | "kind" => file[field] = value.clone(),
                _ => file["imagePolicy"][field] = value.clone(),
            }
        }
        ImagePolicy::of(file).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_have_their_units() {
        let usual = of(json!({})).unwrap();
        let times =
            |policy: &ImagePolicy| (policy.allow_ttl, policy.deny_ttl, policy.retry_backoff);
        let (secs, millis) = (Duration::from_secs, Duration::from_millis);
        assert_eq!(times(&usual), (secs(300), secs(30), millis(500)));
        assert!(!usual.default_allow);
        let said = json!({"allowTTL": 60, "denyTTL": -1, "retryBackoff": 20, "defaultAllow": true,
            "apiVersion": "imagepolicy.admission.k8s.io/v1alpha1", "kind": "ImagePolicyWebhookConfiguration"});
        let said = of(said).unwrap();
        assert_eq!(times(&said), (secs(60), Duration::ZERO, millis(20)));
        assert!(said.default_allow);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (said, expect) in [
            (
                json!({"allowTTL": 1}),
                "imagePolicy.allowTTL: Invalid value: 1: valid value is between 1s and 1800s",
            ),
            (
                json!({"denyTTL": 1801}),
                "imagePolicy.denyTTL: Invalid value: 1801",
            ),
            (
                json!({"retryBackoff": -2}),
                "imagePolicy.retryBackoff: Invalid value: -2",
            ),
            (json!({"allowTtl": 3}), "unknown field `allowTtl`"),
            (
                json!({"kind": "Pod"}),
                "no apiVersion: expected ImagePolicyWebhookConfiguration of imagepolicy.",
            ),
            (json!({"kubeConfigFile": "/none"}), "kubeConfigFile /none: "),
        ] {
            let error = of(said).unwrap_err();
            assert!(error.contains(expect), "{error}\n{expect}");
        }
    }
}
