//! Garbage collection: images by disk use, logs and directories of what is gone.
//!
//! Dead containers are kept one a name and removed by their pod's worker; here is what belongs to no worker.

use std::path::{Path, PathBuf};

/// Removes directory trees; failures are logged, never fatal.
pub(crate) async fn remove_dirs<const N: usize>(dirs: [PathBuf; N]) {
    let work = move || {
        for dir in dirs {
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(dir = %dir.display(), %error, "remove a pod's directory");
                }
            }
        }
    };
    // A panic in there has been printed; nothing depends on the result.
    let _ = tokio::task::spawn_blocking(work).await;
}

/// Removes the log of one container instance, rotated parts included.
pub(crate) async fn remove_container_logs(log: &Path) {
    let log = log.to_owned();
    let work = move || {
        let Some((dir, name)) = log.parent().zip(log.file_name().and_then(|name| name.to_str())) else { return };
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|found| found == name || found.starts_with(&format!("{name}."))) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    };
    let _ = tokio::task::spawn_blocking(work).await;
}
