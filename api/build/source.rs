//! Finds the sources of a crate that this package depends on.
//!
//! First in the registry's source directory, by the version in `Cargo.lock`, which costs nothing;
//! else (vendored sources, not unpacked, another registry layout) by asking `cargo metadata`; else
//! `cargo fetch` brings them.
//!
//! `Cargo.lock` is not watched, as it changes often. Another version of a dependency that is built
//! runs the build script again by itself; of one that is only read, `Cargo.toml` names the version.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The platform that crates are for that are read and never built: nothing is built on it, and
/// cargo knows it without anything installed.
pub(crate) const NOWHERE: &str = "x86_64-unknown-none";

/// How long a download may take.
const FETCH_DEADLINE: Duration = Duration::from_secs(300);

/// The directory of a crate's sources, which is a dependency on this platform.
pub(crate) fn crate_dir(name: &str, platform: &str) -> PathBuf {
    let version = locked_version(name).unwrap_or_else(|| panic!("Cargo.lock does not list {name}"));
    let folder = format!("{name}-{version}");
    in_registry(&folder)
        .or_else(|| by_metadata(name, &version, platform))
        .or_else(|| fetch(platform).and_then(|()| in_registry(&folder)))
        .unwrap_or_else(|| {
            panic!("the sources of {folder} are not on this machine: `cargo fetch --locked` brings them")
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

fn by_metadata(name: &str, version: &str, platform: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO")?;
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--filter-platform",
            platform,
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

/// Whether this platform's crates came. Cargo lets other commands at its registry while it builds.
#[allow(
    clippy::disallowed_methods,
    reason = "a build step has one thread, and nothing else to do"
)]
fn fetch(platform: &str) -> Option<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO")?)
        .args(["fetch", "--locked", "--quiet", "--target", platform])
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR")?)
        .stdin(Stdio::null())
        .spawn()
        .ok()?;
    let start = Instant::now();
    while start.elapsed() < FETCH_DEADLINE {
        if let Some(status) = cargo.try_wait().ok()? {
            return status.success().then_some(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    cargo.kill().and_then(|()| cargo.wait()).ok();
    None
}
