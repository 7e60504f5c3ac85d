//! Blocking work on a path: one at a time, however many wait for it.
//!
//! What is mounted at a path may be another machine's, and that machine gone. Work that hangs there
//! keeps its thread; whoever comes after it waits for a while, and starts no other.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::blocking::blocking;

/// Until another's work on the same path is over.
const SHARED_PAUSE: Duration = Duration::from_millis(10);

/// The paths that are worked on right now.
#[derive(Default)]
pub(super) struct Jobs(Arc<Mutex<HashSet<PathBuf>>>);

/// A path, for as long as the work on it takes.
struct Job {
    path: PathBuf,
    running: Arc<Mutex<HashSet<PathBuf>>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.running.lock().remove(&self.path);
    }
}

impl Jobs {
    /// Runs `work` after whatever is under way there. `None` if it is not over after `limit`: what
    /// has begun goes on by itself.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Option<T> {
        let until = Instant::now() + limit;
        // Pods that start together may share a path.
        while !self.0.lock().insert(path.to_owned()) {
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(SHARED_PAUSE).await;
        }
        let job = Job {
            path: path.to_owned(),
            running: Arc::clone(&self.0),
        };
        let work = blocking(move || {
            let done = work(&job.path);
            drop(job);
            done
        });
        tokio::time::timeout_at(until, work).await.ok()
    }
}
