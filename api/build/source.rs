//! Finds the sources of a crate that this package depends on.
//!
//! First in the registry's source directory, by the version in `Cargo.lock`, which costs nothing;
//! else (vendored sources, another registry layout) by asking `cargo metadata`.
//!
//! `Cargo.lock` is not watched, as it changes often: another version of either crate is another
//! dependency of this package, and cargo runs the build script again for that.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The directory of a crate's sources.
pub(crate) fn crate_dir(name: &str) -> PathBuf {
    let version = locked_version(name).unwrap_or_else(|| panic!("Cargo.lock does not list {name}"));
    let folder = format!("{name}-{version}");
    in_registry(&folder)
        .or_else(|| by_metadata(name, &version))
        .unwrap_or_else(|| {
            panic!("the sources of {folder} are not on this machine; `cargo fetch` brings them")
        })
}

fn locked_version(name: &str) -> Option<String> {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let lock = here
        .ancestors()
        .map(|dir| dir.join("Cargo.lock"))
        .find(|file| file.is_file())?;
    let text = std::fs::read_to_string(lock).ok()?;
    let (_, after) = text.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(after.split('"').next()?.to_owned())
}

fn in_registry(folder: &str) -> Option<PathBuf> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cargo"),
    };
    let registries = std::fs::read_dir(home.join("registry/src")).ok()?;
    registries
        .flatten()
        .map(|registry| registry.path().join(folder))
        .find(|dir| dir.join("src").is_dir())
}

fn by_metadata(name: &str, version: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO")?;
    let target = std::env::var("TARGET").ok()?;
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--filter-platform",
            &target,
        ])
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR")?)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let package = format!("{{\"name\":\"{name}\",\"version\":\"{version}\"");
    let (_, after) = text.split_once(&package)?;
    let (_, after) = after.split_once("\"manifest_path\":\"")?;
    Some(Path::new(after.split('"').next()?).parent()?.to_owned())
}
