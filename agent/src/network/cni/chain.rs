//! The own network as a configuration that others chain onto.
//!
//! The agent writes one file with one plugin, whose work it does itself. What others put after it
//! there, or into the folder beside the file that has the network's name, is executed after it for
//! each pod: so service meshes and `tuning` come to a network that is not theirs. Everything but
//! the own plugin's part is theirs to write. Not here: who executes them ([`super::exec`]).

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use coracle_cni::{NetConf, conf::DEFAULT_VERSION};
use serde_json::{Map, Value, json};

use super::{
    PLUGIN,
    conflist::{self, NetworkList},
};

const FILE: &str = "10-coracle.conflist";
/// In the state's directory: leads to the file, wherever it was written.
const RECORD: &str = "conflist";

/// Where in `dir` it is.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// What is to be executed after the own plugin; perhaps nothing.
pub(super) fn after_own(file: &Path) -> Result<NetworkList, String> {
    let told = |why: String| format!("{}: {why}", file.display());
    let mut list = conflist::read(file).map_err(told)?;
    if conflist::plugin_type(&list, 0) != PLUGIN {
        return Err(told(format!("its first plugin is not {PLUGIN}")));
    }
    list.plugins.remove(0);
    Ok(list)
}

/// Brings the own plugin's part of the file in `dir` to `conf`. Changes nothing that is right.
///
/// # Errors
/// `InvalidData` for a file that cannot be read: somebody may be writing it.
pub(super) fn write(dir: &Path, state_dir: &Path, conf: &NetConf) -> io::Result<()> {
    let file = path(dir);
    if fs::read_link(state_dir.join(RECORD)).is_ok_and(|known| known != file) {
        withdraw(state_dir)?;
    }
    let present = match fs::read(&file) {
        Ok(bytes) if bytes.is_empty() => None,
        Ok(bytes) => Some(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let wanted = merged(present.as_ref(), part(conf)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no list of plugins"))?;
    if present.as_ref() == Some(&wanted) {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    match symlink(&file, state_dir.join(RECORD)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Of a name that nobody takes for a configuration.
    let unfinished = dir.join(format!(".{FILE}.tmp"));
    fs::write(&unfinished, serde_json::to_vec_pretty(&wanted)?)?;
    fs::rename(&unfinished, &file)
}

/// The directory that an earlier run has written it to, if one has.
pub(crate) fn recorded(state_dir: &Path) -> Option<PathBuf> {
    let file = fs::read_link(state_dir.join(RECORD)).ok()?;
    file.parent().map(Path::to_owned)
}

/// Removes what an earlier run has written, if one has.
///
/// # Errors
/// It is still there.
pub(crate) fn withdraw(state_dir: &Path) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let record = state_dir.join(RECORD);
    let Ok(file) = fs::read_link(&record) else {
        return Ok(());
    };
    gone(fs::remove_file(file))?;
    gone(fs::remove_file(record))
}

/// The own plugin, without what is the list's and what changes with every node.
fn part(conf: &NetConf) -> io::Result<Map<String, Value>> {
    let Value::Object(mut own) = serde_json::to_value(conf)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    own.retain(|key, _| !matches!(key.as_str(), "name" | "cniVersion" | "noMasquerade"));
    own.insert(
        "capabilities".to_owned(),
        json!({"bandwidth": true, "ips": true, "mac": true}),
    );
    Ok(own)
}

/// `present` with the own plugin as it should be. `None` if it is no list.
fn merged(present: Option<&Value>, own: Map<String, Value>) -> Option<Value> {
    let mut list = present.cloned().unwrap_or_else(|| json!({"plugins": []}));
    let object = list.as_object_mut()?;
    object.entry("cniVersion").or_insert(DEFAULT_VERSION.into());
    object.insert("name".to_owned(), super::NETWORK.into());
    let plugins = object.get_mut("plugins")?.as_array_mut()?;
    let is_own = |plugin: &Value| plugin["type"] == PLUGIN;
    match plugins.iter_mut().find(|plugin| is_own(plugin)) {
        Some(found) => *found = own.into(),
        None => plugins.insert(0, own.into()),
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(subnet: &str) -> NetConf {
        let conf = json!({"cniVersion": "1.0.0", "name": "coracle", "type": PLUGIN, "ipMasq": true,
            "noMasquerade": ["192.0.2.1/32"], "ipam": {"subnet": subnet}});
        NetConf::parse(conf.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn others_parts_stay_when_the_own_one_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (nets, state) = (dir.path().join("net.d"), dir.path());
        let read = || -> Value { serde_json::from_slice(&fs::read(path(&nets)).unwrap()).unwrap() };
        write(&nets, state, &conf("10.1.0.0/24")).unwrap();
        let mut list = read();
        assert_eq!(list["plugins"][0]["ipam"]["subnet"], "10.1.0.0/24");
        assert_eq!(list["plugins"][0].get("noMasquerade"), None);
        assert!(after_own(&path(&nets)).unwrap().plugins.is_empty());
        let mesh = json!({"type": "mesh", "x": 1});
        list["plugins"].as_array_mut().unwrap().push(mesh.clone());
        list["cniVersion"] = "1.1.0".into();
        fs::write(path(&nets), list.to_string()).unwrap();
        let written = || fs::metadata(path(&nets)).unwrap().modified().unwrap();
        let before = written();
        write(&nets, state, &conf("10.1.0.0/24")).unwrap();
        assert_eq!(written(), before, "what is right is left alone");
        write(&nets, state, &conf("10.2.0.0/24")).unwrap();
        let list = read();
        assert_eq!(list["plugins"][0]["ipam"]["subnet"], "10.2.0.0/24");
        assert_eq!(
            (&list["plugins"][1], &list["cniVersion"]),
            (&mesh, &json!("1.1.0"))
        );
        let after = after_own(&path(&nets)).unwrap();
        assert_eq!(Value::Object(after.plugins[0].clone()), mesh);
    }

    #[test]
    fn the_file_goes_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let (nets, state) = (dir.path().join("net.d"), dir.path());
        let conf = conf("10.1.0.0/24");
        write(&nets, state, &conf).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        write(&elsewhere, state, &conf).unwrap();
        assert!(!path(&nets).exists() && path(&elsewhere).exists());
        withdraw(state).unwrap();
        withdraw(state).unwrap();
        assert!(!path(&elsewhere).exists());
        // Whoever is writing is not written over; what a full disk has left is.
        fs::write(path(&nets), r#"{"plugins": ["#).unwrap();
        write(&nets, state, &conf).unwrap_err();
        fs::write(path(&nets), "[]").unwrap();
        write(&nets, state, &conf).unwrap_err();
        fs::write(path(&nets), "").unwrap();
        write(&nets, state, &conf).unwrap();
    }

    #[test]
    fn a_list_that_begins_with_anything_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        let list = json!({"name": "coracle", "plugins": [{"type": "mesh"}, {"type": PLUGIN}]});
        fs::write(&file, list.to_string()).unwrap();
        let why = after_own(&file).unwrap_err();
        assert!(why.contains("its first plugin is not coracle-cni"), "{why}");
    }
}
