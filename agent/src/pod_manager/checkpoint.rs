//! Copies of the desired pods: `<pods>/<uid>/pod.json`, written whole and renamed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::{pod::PodExt, runtime::types::PodUid};

const FILE: &str = "pod.json";
/// As many as a full node has pods, twice.
const QUEUE: usize = 256;

enum Command {
    Save(Arc<Pod>),
    Forget(PodUid),
}

/// Accepts pods to be written. Never waits: a copy that does not fit is left out.
#[derive(Clone)]
pub(crate) struct Checkpoints {
    queue: mpsc::Sender<Command>,
}

impl Checkpoints {
    /// The handle and the task that writes.
    pub(crate) fn new(pods_dir: PathBuf) -> (Self, impl Future<Output = ()>) {
        let (queue, mut commands) = mpsc::channel(QUEUE);
        let writer = async move {
            while let Some(command) = commands.recv().await {
                let dir = pods_dir.clone();
                let work = move || match command {
                    Command::Save(pod) => write(&dir, &pod),
                    Command::Forget(uid) => forget(&dir, &uid),
                };
                let written = tokio::task::spawn_blocking(work).await;
                if let Ok(Err(error)) = written {
                    tracing::warn!(error = %ErrorChain(&error), "write a pod's checkpoint");
                }
            }
        };
        (Self { queue }, writer)
    }

    /// Hands a pod over.
    pub(crate) fn save(&self, pod: &Arc<Pod>) {
        let _ = self.queue.try_send(Command::Save(Arc::clone(pod)));
    }

    /// The pod has ended: removes what an earlier copy may have left after its directory was
    /// removed.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let _ = self.queue.try_send(Command::Forget(uid.clone()));
    }
}

fn write(pods_dir: &Path, pod: &Pod) -> io::Result<()> {
    let PodUid(uid) = pod.uid();
    let dir = pods_dir.join(uid);
    let text = serde_json::to_vec(pod)?;
    fs::create_dir_all(&dir)?;
    let temporary = dir.join("pod.json.new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, dir.join(FILE))
}

/// Only what was written here: anything else in the directory is not ours to remove.
fn forget(pods_dir: &Path, uid: &PodUid) -> io::Result<()> {
    let dir = pods_dir.join(&uid.0);
    let missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    missing(fs::remove_file(dir.join(FILE)))?;
    missing(fs::remove_dir(dir))
}

/// All copies; directories without a usable one are skipped.
pub(crate) fn load(pods_dir: &Path) -> Vec<Arc<Pod>> {
    let Ok(entries) = fs::read_dir(pods_dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read(entry.path().join(FILE)).ok()?;
            let pod: Pod = serde_json::from_slice(&text).ok()?;
            (pod.uid().0 == entry.file_name().to_str()?).then(|| Arc::new(pod))
        })
        .collect()
}

/// UIDs of all pods that left a directory.
pub(crate) fn directories(pods_dir: &Path) -> Vec<PodUid> {
    let Ok(entries) = fs::read_dir(pods_dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Some(PodUid(entry.file_name().to_str()?.to_owned())))
        .collect()
}

/// Log directories, `<namespace>_<name>_<uid>`, with the UID.
pub(crate) fn log_directories(logs_dir: &Path) -> Vec<(PathBuf, PodUid)> {
    let Ok(entries) = fs::read_dir(logs_dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.path(),
                PodUid(entry.file_name().to_str()?.rsplit_once('_')?.1.to_owned()),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_loaded() {
        let dir = tempfile::tempdir().expect("directory");
        let pod: Pod = serde_json::from_value(
            serde_json::json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}),
        )
        .expect("pod");
        write(dir.path(), &pod).expect("write");
        fs::create_dir(dir.path().join("broken")).expect("directory");
        fs::write(dir.path().join("broken").join(FILE), "{").expect("write");
        let loaded = load(dir.path());
        assert_eq!(
            loaded.iter().map(|pod| (**pod).clone()).collect::<Vec<_>>(),
            [pod]
        );
    }
}
