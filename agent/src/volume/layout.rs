//! How the directories of volumes are called. A later release must still know it.
//!
//! `<pods>/<uid>/volumes/kubernetes.io~<plugin>/<volume>`: a volume of the pod by its name there, a
//! persistent one by its own.

use std::path::{Path, PathBuf};

/// Below a pod's directory.
pub(super) const VOLUMES: &str = "volumes";
pub(super) const SUB_PATHS: &str = "volume-subpaths";
/// Before a plugin's name, in the directory of its volumes.
const PLUGIN_PREFIX: &str = "kubernetes.io~";

/// The plugins that have persistent volumes.
pub(super) const LOCAL: &str = "local-volume";
pub(super) const HOST_PATH: &str = "host-path";

/// The directory of a plugin's volumes, in that of a pod's volumes.
pub(super) fn of_plugin(volumes: &Path, plugin: &str) -> PathBuf {
    volumes.join(format!("{PLUGIN_PREFIX}{plugin}"))
}
