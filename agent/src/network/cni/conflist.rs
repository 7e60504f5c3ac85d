//! Network configurations as files: choosing one, and making each plugin's part of it. Pure but for
//! [`load`].

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::capabilities::{self, Capabilities};

/// A network: plugins called one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NetworkList {
    pub(super) name: String,
    #[serde(rename = "cniVersion", default = "oldest_version")]
    pub(super) cni_version: String,
    #[serde(rename = "disableCheck", default)]
    pub(super) disable_check: bool,
    /// The verb GC is not for this network: it has other owners than this node's agent.
    #[serde(rename = "disableGC", default)]
    pub(super) disable_gc: bool,
    pub(super) plugins: Vec<Map<String, Value>>,
}

/// Of a configuration.
const MOST_BYTES: u64 = 1 << 20;
/// The newest version of the specification that is spoken here.
const NEWEST_VERSION: [u32; 3] = [1, 1, 0];

/// The first configuration in `dir`, by file name. One that cannot be read has no other in its
/// place: it may be being written, and pods would stay in the wrong network for their life.
///
/// Source: `loadFromConfDir` in containerd/go-cni `opts.go`.
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
    let Some(first) = files.first() else {
        return Err(format!(
            "no usable CNI configuration in {}: no *.conflist or *.conf there",
            dir.display()
        ));
    };
    read(first).map_err(|why| {
        format!(
            "no usable CNI configuration in {}: {}: {why}; files after it are not looked at",
            dir.display(),
            first.display()
        )
    })
}

/// A configuration with the plugins that lie beside it, in the folder of the network's name: others
/// add theirs there without writing to the list (CNI 1.1). `loadOnlyInlinedPlugins` forbids it.
///
/// Source: `NetworkConfFromFile` in containernetworking/cni `libcni/conf.go`.
pub(super) fn read(file: &Path) -> Result<NetworkList, String> {
    let bytes = bytes(file).map_err(|e| e.to_string())?;
    let mut value: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let alone = match value.get("loadOnlyInlinedPlugins") {
        Some(given) => switch("loadOnlyInlinedPlugins", given)?,
        None => false,
    };
    let name = value.get("name").and_then(Value::as_str);
    // One plugin's configuration is no list that could be added to.
    let is_list = value.get("type").is_none();
    if let (false, true, Some(name), Some(dir)) = (alone, is_list, name, file.parent())
        && is_file_name(name)
    {
        let more = beside(&dir.join(name))?;
        if !more.is_empty() {
            let plugins = value["plugins"].take();
            let listed = match plugins {
                Value::Array(listed) => listed,
                Value::Null => Vec::new(),
                other => return Err(format!("plugins must be a list, not {other}")),
            };
            value["plugins"] = listed.into_iter().chain(more).collect();
        }
    }
    from_value(value)
}

/// Of a file, and not of what never ends or never begins.
fn bytes(file: &Path) -> io::Result<Vec<u8>> {
    let about = fs::metadata(file)?;
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    if !about.is_file() {
        return Err(refused("it is no regular file".to_owned()));
    }
    if about.len() > MOST_BYTES {
        return Err(refused(format!("it has more than {MOST_BYTES} bytes")));
    }
    fs::read(file)
}

/// Every `*.conf` in `dir`, by name; none without the folder.
fn beside(dir: &Path) -> Result<Vec<Value>, String> {
    let told = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(told(dir, &error)),
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf") && path.is_file())
        .collect();
    files.sort();
    let read = |file: &PathBuf| {
        let bytes = bytes(file).map_err(|error| told(file, &error))?;
        serde_json::from_slice::<Value>(&bytes).map_err(|error| told(file, &error))
    };
    files.iter().map(read).collect()
}

/// Reads a list, or one plugin's configuration as a list of one.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn parse(bytes: &[u8]) -> Result<NetworkList, String> {
    from_value(serde_json::from_slice(bytes).map_err(|e| e.to_string())?)
}

fn from_value(mut value: Value) -> Result<NetworkList, String> {
    if value.get("plugins").is_none() {
        let object = value.as_object().ok_or("not a JSON object")?.clone();
        value = json!({"name": object.get("name"), "plugins": [object]});
        for key in ["cniVersion", "disableCheck", "disableGC"] {
            if let Some(inherited) = value["plugins"][0].get(key).cloned() {
                value[key] = inherited;
            }
        }
    }
    for key in ["disableCheck", "disableGC"] {
        if let Some(given) = value.get(key) {
            value[key] = switch(key, given)?.into();
        }
    }
    if let Some(versions) = value.get("cniVersions").cloned() {
        let chosen = choose_version(&versions, value.get("cniVersion"))?;
        if let Some(chosen) = chosen {
            value["cniVersion"] = chosen.into();
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
    capabilities: &Capabilities,
) -> Value {
    let mut conf = list.plugins[index].clone();
    conf.insert("name".into(), list.name.clone().into());
    conf.insert("cniVersion".into(), list.cni_version.clone().into());
    if let Some(previous) = previous {
        conf.insert("prevResult".into(), previous.clone());
    }
    let asked_for = capabilities::asked_for(&conf, capabilities);
    if !asked_for.is_empty() {
        conf.insert("runtimeConfig".into(), asked_for.into());
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

/// Whether in this version (since 0.4.0) `CHECK` exists, and `DEL` hears what `ADD` said.
pub(super) fn knows_check(cni_version: &str) -> bool {
    !matches!(cni_version, "" | "0.1.0" | "0.2.0" | "0.3.0" | "0.3.1")
}

/// Whether `GC` and `STATUS` exist in this version (since 1.1.0).
pub(super) fn knows_gc_and_status(cni_version: &str) -> bool {
    version(cni_version).is_some_and(|version| version >= [1, 1, 0])
}

/// The highest of `versions` and `alone` that is spoken here; `None` if all are newer.
///
/// Source: `NetworkConfFromBytes` in containernetworking/cni `libcni/conf.go`.
fn choose_version(versions: &Value, alone: Option<&Value>) -> Result<Option<String>, String> {
    let listed = versions.as_array().ok_or("cniVersions must be a list")?;
    let mut best: Option<([u32; 3], String)> = None;
    let alone = alone.filter(|alone| alone.as_str() != Some(""));
    for given in listed.iter().chain(alone) {
        let parsed = given.as_str().and_then(|text| Some((version(text)?, text)));
        let (number, text) = parsed.ok_or_else(|| format!("{given} is no CNI version"))?;
        let higher = best.as_ref().is_none_or(|(have, _)| number > *have);
        if number <= NEWEST_VERSION && higher {
            best = Some((number, text.to_owned()));
        }
    }
    Ok(best.map(|(_, text)| text))
}

/// `1.1.0`, or with fewer parts `1.1`.
pub(super) fn version(text: &str) -> Option<[u32; 3]> {
    let mut numbers = [0; 3];
    for (index, part) in text.split('.').enumerate() {
        *numbers.get_mut(index)? = part.parse().ok()?;
    }
    Some(numbers)
}

/// A boolean, which may be written as text.
fn switch(key: &str, value: &Value) -> Result<bool, String> {
    let text = value.as_str().map(str::to_ascii_lowercase);
    match (value, text.as_deref()) {
        (Value::Bool(is), _) => Ok(*is),
        (_, Some("true")) => Ok(true),
        (_, Some("false")) => Ok(false),
        _ => Err(format!("{key} must be true or false, not {value}")),
    }
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
mod tests;
