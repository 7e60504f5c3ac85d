//! Paths of the node, checked or made as their type says. Never removed, never chowned.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::{
    error::VolumePluginError,
    jobs::Jobs,
    layout,
    plugin::{SetUp, Source, VolumePlugin},
};

/// For the look at a path.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// The plugin. Nothing has to be taken away of its volumes; the directory of one in a pod holds the
/// record of a persistent volume, and of others there is none.
#[derive(Default)]
pub(super) struct HostPath {
    looks: Jobs,
}

impl HostPath {
    /// Runs `check` on the path, unless an earlier one still hangs there.
    async fn look(
        &self,
        path: PathBuf,
        check: impl FnOnce(&Path) -> Result<(), VolumePluginError> + Send + 'static,
    ) -> Result<PathBuf, VolumePluginError> {
        let looked = self.looks.run(&path, LOOK_LIMIT, check).await;
        looked.unwrap_or_else(|| {
            Err(VolumePluginError::HostPathHangs {
                path: path.display().to_string(),
            })
        })?;
        Ok(path)
    }
}

/// The path that is asked for, whoever asks for it.
fn asked_for(source: Source<'_>) -> Option<&HostPathVolumeSource> {
    match source {
        Source::Inline(volume) => volume.host_path.as_ref(),
        Source::Persistent(claimed) => claimed.spec()?.host_path.as_ref(),
    }
}

#[async_trait]
impl VolumePlugin for HostPath {
    fn name(&self) -> &'static str {
        layout::HOST_PATH
    }

    fn supports(&self, source: Source<'_>) -> bool {
        asked_for(source).is_some()
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        let source = asked_for(wanted.source).ok_or(VolumePluginError::Unsupported)?;
        let path = PathBuf::from(&source.path);
        let kind = source.type_.clone().unwrap_or_default();
        self.look(path, move |path| check(path, &kind)).await
    }
}

pub(super) fn check(path: &Path, kind: &str) -> Result<(), VolumePluginError> {
    let wrong = |problem| {
        Err(VolumePluginError::HostPath {
            path: path.display().to_string(),
            problem,
        })
    };
    let found = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(VolumePluginError::io("look at", path)(error)),
    };
    match (kind, found) {
        // Without a type upstream's runtimes make a missing directory.
        ("" | "DirectoryOrCreate", None) => make_dir(path),
        ("FileOrCreate", None) => make_file(path),
        ("", Some(_)) => Ok(()),
        ("DirectoryOrCreate" | "Directory", Some(kind)) if kind.is_dir() => Ok(()),
        ("FileOrCreate" | "File", Some(kind)) if kind.is_file() => Ok(()),
        ("Socket", Some(kind)) if kind.is_socket() => Ok(()),
        ("CharDevice", Some(kind)) if kind.is_char_device() => Ok(()),
        ("BlockDevice", Some(kind)) if kind.is_block_device() => Ok(()),
        ("DirectoryOrCreate" | "Directory", _) => wrong("is not a directory"),
        ("FileOrCreate" | "File", _) => wrong("is not a file"),
        ("Socket", _) => wrong("is not a socket file"),
        ("CharDevice", _) => wrong("is not a character device"),
        ("BlockDevice", _) => wrong("is not a block device"),
        _ => wrong("has an unknown type"),
    }
}

fn make_dir(path: &Path) -> Result<(), VolumePluginError> {
    fs::create_dir_all(path).map_err(VolumePluginError::io("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(VolumePluginError::io("set the mode of", path))
}

fn make_file(path: &Path) -> Result<(), VolumePluginError> {
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(VolumePluginError::io("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        .map_err(VolumePluginError::io("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_path_that_hangs_costs_its_pods_a_wait_and_the_node_one_thread() {
        let (plugin, path) = (HostPath::default(), PathBuf::from("/srv/gone"));
        let (release, hung) = mpsc::channel::<()>();
        let others = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let first = plugin.look(path.clone(), move |_| {
            let _ = hung.recv();
            Ok(())
        });
        // The paused clock stands still while a blocking thread works: it is moved by hand.
        let clock = async {
            while begin.elapsed() <= 3 * LOOK_LIMIT {
                tokio::time::advance(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        let both = async {
            let error = first.await.expect_err("it hangs");
            let text = "hostPath type check failed: /srv/gone does not answer";
            assert_eq!(error.to_string(), text);
            let counted = Arc::clone(&others);
            let again = plugin.look(path.clone(), move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            again.await.expect_err("it still hangs");
        };
        tokio::select! {
            () = both => {}
            () = clock => unreachable!("it never ends"),
        }
        assert_eq!(others.load(Ordering::Relaxed), 0);
        drop(release);
        let after = plugin.look(path, |_| Ok(()));
        tokio::time::resume();
        after.await.expect("it answers again");
    }
}
