//! The harness of the end-to-end tests: clusters in network namespaces without an uplink.
//!
//! | module | makes |
//! |---|---|
//! | [`site`] | a directory, a set of namespaces joined by a bridge, a cgroup: one test's own ground |
//! | [`process`] | child processes inside a namespace, ended by PID |
//! | [`cluster`] | a server and nodes, or one `coracle up` |
//! | [`several`] | several servers on one etcd, and a node |
//! | [`machines`] | several servers, each with a member of etcd |
//! | [`faults`] | what fails when, and whether what clients saw of it may be |
//! | [`kubectl`] | the real kubectl on such a cluster |
//! | [`session`], [`matrix`] | what users of a client type and see, played; the table of it |
//! | [`registry`] | Debian's docker-registry with the test images |
//! | [`spans`] | what a process told of its spans |
//! | [`wait`] | conditions with deadlines |
//! | [`workload`] | what runs of `examples/nginx.yaml` |
//! | [`residue`] | what a node may have left behind |
//!
//! Everything made here goes away when its owner is dropped, also when a test fails; what a test in
//! between is killed with, `coracle-ground` takes away.

pub mod cluster;
pub mod faults;
pub mod kubectl;
pub mod machines;
pub mod matrix;
pub mod process;
pub mod registry;
pub mod residue;
pub mod session;
pub mod several;
pub mod site;
pub mod spans;
pub mod wait;
pub mod workload;

use std::path::PathBuf;

pub use coracle_ground::is_root_or_skip;

/// The workspace's root.
pub fn workspace() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// A binary of the workspace; `CORACLE_BIN_DIR` names another build.
pub fn binary(name: &str) -> PathBuf {
    let dir = std::env::var_os("CORACLE_BIN_DIR")
        .map_or_else(|| target_dir().join("debug"), PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is missing: `make test` builds it",
        path.display()
    );
    path
}

/// A tool that `make deps` installs, such as kubectl.
pub fn tool(name: &str) -> PathBuf {
    let dir =
        std::env::var_os("CORACLE_TOOLS").map_or_else(|| target_dir().join("tools"), PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is missing: `make deps` installs it",
        path.display()
    );
    path
}

/// An image archive that `make images` builds: `nginx` or `busybox`.
pub fn image_archive(name: &str) -> PathBuf {
    let dir = std::env::var_os("CORACLE_IMAGES")
        .map_or_else(|| target_dir().join("images"), PathBuf::from);
    let path = dir.join(format!("{name}.tar"));
    assert!(
        path.exists(),
        "{} is missing: `make images` builds it",
        path.display()
    );
    path
}
