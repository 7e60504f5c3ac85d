//! What PodTolerationRestriction is told.

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::Value;

use crate::config::file::{self, AdmissionConfigError};

/// What the plugin is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodTolerationConfig {
    pub(crate) default: Vec<Value>,
    pub(crate) whitelist: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    default: Vec<Toleration>,
    #[serde(default)]
    whitelist: Vec<Toleration>,
}

impl PodTolerationConfig {
    /// # Errors
    /// It says something else.
    pub(crate) fn of(value: Value) -> Result<Self, AdmissionConfigError> {
        let version = "podtolerationrestriction.admission.k8s.io/v1alpha1";
        let file: File = file::read_of(&[(version, "Configuration")], value)?;
        Ok(Self {
            default: values(&file.default),
            whitelist: values(&file.whitelist),
        })
    }
}

pub(crate) fn values(tolerations: &[Toleration]) -> Vec<Value> {
    let all = tolerations.iter();
    all.map(|one| serde_json::to_value(one).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_is_of_its_kind() {
        let version = "podtolerationrestriction.admission.k8s.io/v1alpha1";
        let config = json!({"apiVersion": version, "kind": "Configuration",
            "default": [{"key": "k", "operator": "Exists"}]});
        let told = PodTolerationConfig::of(config.clone()).unwrap();
        assert_eq!(told.default, [json!({"key": "k", "operator": "Exists"})]);
        for (field, wrong) in [("kind", json!("Other")), ("defaults", json!([]))] {
            let mut config = config.clone();
            config[field] = wrong;
            assert!(PodTolerationConfig::of(config).is_err(), "{field}");
        }
    }
}
