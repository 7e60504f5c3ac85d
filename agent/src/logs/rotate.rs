//! Rotates container logs: 10 MiB each, five files a container, the current one included.
//!
//! The file is renamed with its time as suffix, then the shim is told to reopen; what it writes
//! between the two still goes into the renamed file, so no line is lost.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::runtime::{RuntimeService, types::ContainerState};

const INTERVAL: Duration = Duration::from_secs(10);
const MAX_BYTES: u64 = 10 * 1024 * 1024;
const MAX_FILES: usize = 5;

/// Rotates until `shutdown`.
pub(crate) async fn run(runtime: Arc<dyn RuntimeService>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let Ok(mut containers) = runtime.list_containers().await else {
            continue;
        };
        containers.retain(|container| matches!(container.state, ContainerState::Running { .. }));
        // One blocking task for all: mostly it only looks at sizes.
        let work = move || {
            containers
                .into_iter()
                .map(|c| (rotate(&c.log_path, MAX_BYTES, MAX_FILES), c))
                .collect()
        };
        let rotated: Vec<_> = tokio::task::spawn_blocking(work).await.unwrap_or_default();
        for (outcome, container) in rotated {
            match outcome {
                Ok(Some(old)) => {
                    if let Err(error) = runtime.reopen_container_log(&container.id).await {
                        tracing::warn!(container = %container.name, error = %ErrorChain(&error), "cannot reopen a log");
                        // Undone, so that the next round tries again with the file that is written
                        // to.
                        let _ = fs::rename(old, &container.log_path);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(path = %container.log_path.display(), error = %ErrorChain(&error), "cannot rotate a log")
                }
            }
        }
    }
}

/// Renames the log if it is too big and removes what is too many; returns the new name.
fn rotate(path: &Path, max_bytes: u64, max_files: usize) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() >= max_bytes => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut old = older(path)?;
    // The current file and the one it becomes count too.
    while old.len() + 2 > max_files {
        fs::remove_file(old.remove(0))?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(Timestamp::now().strftime(".%Y%m%d-%H%M%S%.6f").to_string());
    let name = PathBuf::from(name);
    fs::rename(path, &name)?;
    Ok(Some(name))
}

/// Rotated files of this log, oldest first.
fn older(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.");
    let mut found: Vec<PathBuf> = fs::read_dir(dir)?
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|found| found.starts_with(&prefix))
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_big_logs_rotate_and_the_oldest_go() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        fs::write(&path, "small").expect("write");
        assert_eq!(rotate(&path, 10, 3).expect("rotate"), None);
        for round in 0..5 {
            fs::write(&path, format!("big enough {round}")).expect("write");
            let name = rotate(&path, 10, 3).expect("rotate").expect("rotated");
            assert_eq!(
                fs::read_to_string(name).expect("read"),
                format!("big enough {round}")
            );
        }
        let left: Vec<String> = older(&path)
            .expect("list")
            .iter()
            .map(|path| fs::read_to_string(path).expect("read"))
            .collect();
        assert_eq!(left, ["big enough 3", "big enough 4"]);
    }
}
