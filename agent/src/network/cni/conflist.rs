//! Network configurations as files: choosing one, and making each plugin's part of it. Pure but for
//! [`load`].

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::runtime::types::PortMapping;

/// A network: plugins called one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NetworkList {
    pub(super) name: String,
    #[serde(rename = "cniVersion", default = "oldest_version")]
    pub(super) cni_version: String,
    #[serde(rename = "disableCheck", default)]
    pub(super) disable_check: bool,
    pub(super) plugins: Vec<Map<String, Value>>,
}

/// The first usable configuration in `dir`, by file name.
pub(super) fn load(dir: &Path) -> Result<NetworkList, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("read {}: {error}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .and_then(|e| e.to_str())
                .is_some_and(|e| matches!(e, "conflist" | "conf" | "json"))
        })
        .collect();
    files.sort();
    let mut broken = Vec::new();
    for file in files {
        let parsed = fs::read(&file)
            .map_err(|e| e.to_string())
            .and_then(|bytes| parse(&bytes));
        match parsed {
            Ok(list) => return Ok(list),
            Err(why) => broken.push(format!("{}: {why}", file.display())),
        }
    }
    let why = if broken.is_empty() {
        "no *.conflist or *.conf there".to_owned()
    } else {
        broken.join("; ")
    };
    Err(format!(
        "no usable CNI configuration in {}: {why}",
        dir.display()
    ))
}

/// Reads a list, or one plugin's configuration as a list of one.
pub(super) fn parse(bytes: &[u8]) -> Result<NetworkList, String> {
    let mut value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if value.get("plugins").is_none() {
        let object = value.as_object().ok_or("not a JSON object")?.clone();
        value = json!({"name": object.get("name"), "plugins": [object]});
        for key in ["cniVersion", "disableCheck"] {
            if let Some(inherited) = value["plugins"][0].get(key).cloned() {
                value[key] = inherited;
            }
        }
    }
    let list: NetworkList = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if list.name.is_empty() || list.plugins.is_empty() {
        return Err("a network needs a name and at least one plugin".into());
    }
    for plugin in &list.plugins {
        match plugin.get("type").and_then(Value::as_str) {
            Some(kind) if is_file_name(kind) => {}
            other => return Err(format!("plugin type {other:?} must be a file name")),
        }
    }
    Ok(list)
}

/// What goes to the stdin of plugin `index`.
pub(super) fn plugin_conf(
    list: &NetworkList,
    index: usize,
    previous: Option<&Value>,
    ports: &[PortMapping],
) -> Value {
    let mut conf = list.plugins[index].clone();
    conf.insert("name".into(), list.name.clone().into());
    conf.insert("cniVersion".into(), list.cni_version.clone().into());
    if let Some(previous) = previous {
        conf.insert("prevResult".into(), previous.clone());
    }
    let wants_ports =
        conf.get("capabilities").and_then(|c| c.get("portMappings")) == Some(&Value::Bool(true));
    if wants_ports && !ports.is_empty() {
        let mappings: Vec<Value> = ports
            .iter()
            .map(|port| {
                json!({
                    "hostPort": port.host_port, "containerPort": port.container_port,
                    "protocol": port.protocol.to_ascii_lowercase(), "hostIP": port.host_ip,
                })
            })
            .collect();
        conf.insert("runtimeConfig".into(), json!({"portMappings": mappings}));
    }
    Value::Object(conf)
}

/// Plugin name at `index`.
pub(super) fn plugin_type(list: &NetworkList, index: usize) -> &str {
    list.plugins[index]
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether `CHECK` exists in this version (since 0.4.0).
pub(super) fn knows_check(cni_version: &str) -> bool {
    !matches!(cni_version, "" | "0.1.0" | "0.2.0" | "0.3.0" | "0.3.1")
}

fn oldest_version() -> String {
    "0.1.0".into()
}

/// As a part of a path it leads nowhere else.
pub(super) fn is_file_name(text: &str) -> bool {
    Path::new(text)
        .components()
        .eq([Component::Normal(text.as_ref())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_plugin_is_a_list_of_one() {
        let list =
            parse(br#"{"cniVersion":"0.4.0","name":"n","type":"bridge","bridge":"b"}"#).unwrap();
        assert_eq!(
            (
                list.name.as_str(),
                list.cni_version.as_str(),
                plugin_type(&list, 0)
            ),
            ("n", "0.4.0", "bridge")
        );
    }

    #[test]
    fn unusable_configurations_are_refused() {
        for text in ["{", "[]", r#"{"name":"n","plugins":[]}"#] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        for kind in ["", "/", ".", "..", "../x", "x/", "/x"] {
            let text = json!({"name": "n", "plugins": [{"type": kind}]}).to_string();
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_plugin_gets_name_version_result_and_the_capabilities_it_declares() {
        let list = parse(
            br#"{"cniVersion":"1.0.0","name":"n","plugins":[
                {"type":"a"}, {"type":"b","capabilities":{"portMappings":true}}]}"#,
        )
        .unwrap();
        let ports = [PortMapping {
            host_port: 1,
            container_port: 2,
            protocol: "UDP".into(),
            host_ip: String::new(),
        }];
        let first = plugin_conf(&list, 0, None, &ports);
        assert_eq!(
            first,
            json!({"type": "a", "name": "n", "cniVersion": "1.0.0"})
        );
        let second = plugin_conf(&list, 1, Some(&json!({"ips": []})), &ports);
        assert_eq!(second["prevResult"], json!({"ips": []}));
        assert_eq!(
            second["runtimeConfig"]["portMappings"][0]["protocol"],
            "udp"
        );
    }
}
