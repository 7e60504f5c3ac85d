//! What PodNodeSelector is told, and how selectors are written.

use std::collections::{BTreeMap, HashMap};

use coracle_api::name::{label_value_error, qualified_name_error};
use serde::Deserialize;
use serde_json::Value;

use crate::config::file::{self, AdmissionConfigError};

/// Labels that nodes have to have.
pub(crate) type Selector = BTreeMap<String, String>;

/// What the plugin is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodNodeSelectorConfig {
    #[serde(default)]
    pod_node_selector_plugin_config: HashMap<String, String>,
}

impl PodNodeSelectorConfig {
    /// # Errors
    /// It says something else, or selectors that are none: upstream refuses every pod then.
    pub(crate) fn of(value: Value) -> Result<Self, AdmissionConfigError> {
        let config: Self = file::read(value)?;
        for (name, text) in &config.pod_node_selector_plugin_config {
            selector(text).map_err(|why| {
                AdmissionConfigError(format!("podNodeSelectorPluginConfig.{name}: {why}"))
            })?;
        }
        Ok(config)
    }

    pub(crate) fn named(&self, name: &str) -> Result<Selector, String> {
        let text = self.pod_node_selector_plugin_config.get(name);
        selector(text.map_or("", String::as_str))
    }
}

/// Reads `key=value, ...`.
pub(crate) fn selector(text: &str) -> Result<Selector, String> {
    if text.is_empty() {
        return Ok(Selector::new());
    }
    text.split(',')
        .map(|label| {
            let parts: Vec<&str> = label.split('=').collect();
            let [key, value] = parts[..] else {
                return Err(format!("invalid selector: [{}]", parts.join(" ")));
            };
            let (key, value) = (key.trim(), value.trim());
            let wrong = qualified_name_error(key).or_else(|| label_value_error(value));
            wrong.map_or_else(|| Ok((key.to_owned(), value.to_owned())), Err)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_selector_is_told() {
        for (text, expect) in [
            ("a", "invalid selector: [a]"),
            ("a=b=c", "invalid selector: [a b c]"),
            ("a=b,", "invalid selector: []"),
        ] {
            assert_eq!(selector(text).unwrap_err(), expect);
        }
        assert!(selector("a b=c").is_err());
        assert!(selector("a=b c").is_err());
        let config = json!({"podNodeSelectorPluginConfig": {"ns": "a"}});
        let error = PodNodeSelectorConfig::of(config).unwrap_err();
        assert_eq!(
            error.to_string(),
            "podNodeSelectorPluginConfig.ns: invalid selector: [a]"
        );
    }
}
