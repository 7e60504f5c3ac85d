//! One agent a run directory: two of them would end each other's pods.
//!
//! The lock is the kernel's and ends with the process, however that ends; the file's text is only
//! for people.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

/// How long a dead holder may take to be gone.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Held as long as an agent, or a reset, works on the directory.
#[derive(Debug)]
pub(crate) struct NodeLock {
    _file: File,
}

/// Why a run directory cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// By an agent that runs.
    #[error("run directory {} is in use by the agent with PID {holder}: stop that one first", dir.display())]
    Held {
        /// Which.
        dir: PathBuf,
        /// What the lock file says.
        holder: String,
    },
    /// It cannot be written.
    #[error("lock run directory {}", dir.display())]
    Io {
        /// Which.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl NodeLock {
    /// As [`NodeLock::acquire`], but waits a moment for a holder that is about to end: one that was
    /// killed keeps the lock until the kernel has taken it down, and so does a child that it was
    /// just starting.
    pub(crate) async fn acquire_soon(dir: &Path) -> Result<Self, LockError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::acquire(dir) {
                Err(LockError::Held { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await
                }
                outcome => return outcome,
            }
        }
    }

    /// Takes the lock, or says who has it. `dir` exists.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join("agent.lock");
        let failed = |source| LockError::Io {
            dir: dir.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let holder = if text.trim().is_empty() {
                    "unknown".to_owned()
                } else {
                    text.trim().to_owned()
                };
                return Err(LockError::Held {
                    dir: dir.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_learns_who_the_first_is() {
        let dir = tempfile::tempdir().expect("directory");
        let first = NodeLock::acquire(dir.path()).expect("free");
        let refused = NodeLock::acquire(dir.path()).expect_err("held").to_string();
        assert!(
            refused.contains(&format!("PID {}", std::process::id())),
            "{refused}"
        );
        drop(first);
        NodeLock::acquire(dir.path()).expect("free again");
    }

    #[tokio::test]
    async fn a_holder_that_ends_is_waited_for_and_another_is_not_for_long() {
        let dir = tempfile::tempdir().expect("directory");
        let first = NodeLock::acquire(dir.path()).expect("free");
        let began = Instant::now();
        NodeLock::acquire_soon(dir.path()).await.expect_err("held");
        assert!(began.elapsed() >= PATIENCE, "{:?}", began.elapsed());
        let path = dir.path().to_owned();
        let second = coracle_telemetry::spawn("task of a test", async move {
            NodeLock::acquire_soon(&path).await
        });
        tokio::time::sleep(PATIENCE / 2).await;
        drop(first);
        second.await.expect("no panic").expect("free by then");
    }

    #[test]
    fn what_a_dead_holder_wrote_holds_nothing() {
        let dir = tempfile::tempdir().expect("directory");
        fs::write(dir.path().join("agent.lock"), "4194304\n").expect("write");
        NodeLock::acquire(dir.path()).expect("nobody holds it");
    }
}
