//! Takes away what a pod has of volumes, whoever made it: everything is tried, and what stays is
//! found by its directory the next time.

use std::{path::Path, sync::Arc};

use coracle_telemetry::ErrorChain;

use super::{
    VolumeManager,
    error::VolumePluginError,
    layout::{self, SUB_PATHS, VOLUMES},
    plugin::VolumePlugin,
    remove_tree,
};
use crate::{blocking::blocking, runtime::types::PodUid};

impl VolumeManager {
    /// Unmounts and removes everything of the pod. Succeeds if there is nothing.
    ///
    /// # Errors
    /// The first volume that stays; all others are taken away nevertheless.
    pub(crate) async fn teardown(&self, uid: &PodUid) -> Result<(), VolumePluginError> {
        self.plugins.iter().for_each(|plugin| plugin.forget(uid));
        let dir = self.pod_dir(uid);
        let (mounter, plugins) = (Arc::clone(&self.mounter), Arc::clone(&self.plugins));
        blocking(move || {
            if !dir.exists() {
                return Ok(());
            }
            let sub_paths = dir.join(SUB_PATHS);
            if sub_paths.exists() {
                // They hold the volumes that they are paths of.
                mounter
                    .unmount_below(&sub_paths)
                    .map_err(VolumePluginError::io("unmount below", &sub_paths))?;
            }
            let volumes = dir.join(VOLUMES);
            let mut failures = Failures::default();
            for plugin in plugins.iter() {
                tear_down(plugin.as_ref(), &volumes, &mut failures);
            }
            failures.note(
                mounter
                    .unmount_below(&dir)
                    .map_err(VolumePluginError::io("unmount below", &dir)),
            );
            // What is not undone is found by its directory the next time.
            failures.first()?;
            failures = Failures::default();
            failures.note(remove_tree(&sub_paths));
            failures.note(remove_tree(&volumes));
            failures.first()
        })
        .await
    }
}

/// What went wrong while everything was tried: the first failure is for the caller, all others are
/// logged as they come.
#[derive(Default)]
pub(super) struct Failures(Option<VolumePluginError>);

impl Failures {
    pub(super) fn note(&mut self, outcome: Result<(), VolumePluginError>) {
        match outcome {
            Err(error) if self.0.is_some() => {
                tracing::warn!(error = %ErrorChain(&error), "cannot take a volume away");
            }
            Err(error) => self.0 = Some(error),
            Ok(()) => {}
        }
    }

    pub(super) fn first(self) -> Result<(), VolumePluginError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Has a plugin take away what of its volumes is not below `volumes`. An earlier agent may have
/// made them.
pub(super) fn tear_down(plugin: &dyn VolumePlugin, volumes: &Path, failures: &mut Failures) {
    let dir = layout::of_plugin(volumes, plugin.name());
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return failures.note(Err(VolumePluginError::io("read", &dir)(error))),
        Ok(entries) => entries,
    };
    for entry in entries {
        let torn_down = entry
            .map_err(VolumePluginError::io("read", &dir))
            .and_then(|entry| plugin.tear_down(&entry.path()));
        failures.note(torn_down);
    }
}
