//! Copies of the desired pods: `<agent>/checkpoints/<uid>.json`, written whole and renamed.
//!
//! One writer, and a directory of its own: what else a pod has on the disk comes and goes without
//! it. What is to be written is kept by UID, only the newest of each, so that nothing is ever left
//! out: a copy that stayed would start an ended pod again where no API server says otherwise.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::{Backoff, ErrorChain};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{blocking::blocking, pod::PodExt, runtime::types::PodUid};

/// After the name of a copy.
const SUFFIX: &str = ".json";
/// After that of one that is being written.
const UNFINISHED: &str = ".new";
/// Where earlier releases had the copy: in the pod's own directory.
const EARLIER: &str = "pod.json";
/// After a write that failed, such as on a full disk.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Takes pods to be written. Never waits.
#[derive(Clone, Default)]
pub(crate) struct Checkpoints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// What the disk does not have yet: a pod, or that there is none any more.
    dirty: Mutex<HashMap<PodUid, Option<Arc<Pod>>>>,
    changed: Notify,
}

impl Checkpoints {
    /// Hands a pod over.
    pub(crate) fn save(&self, pod: &Arc<Pod>) {
        self.change(pod.uid(), Some(Arc::clone(pod)));
    }

    /// The pod has ended, or the API has let go of it.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.change(uid.clone(), None);
    }

    fn change(&self, uid: PodUid, pod: Option<Arc<Pod>>) {
        self.0.dirty.lock().insert(uid, pod);
        self.0.changed.notify_one();
    }

    /// Writes into `dir` until `shutdown`, and then what is left.
    pub(crate) async fn write(self, dir: PathBuf, shutdown: CancellationToken) {
        let mut retry = Backoff::new(RETRY_MIN, RETRY_MAX);
        loop {
            let failed = self.write_dirty(&dir).await;
            if shutdown.is_cancelled() {
                return;
            }
            if failed {
                let pause = tokio::time::sleep(retry.pause());
                let _ = shutdown.run_until_cancelled(pause).await;
            } else {
                retry.reset();
                let changed = self.0.changed.notified();
                let _ = shutdown.run_until_cancelled(changed).await;
            }
        }
    }

    /// Whether something could not be written: it is dirty again, unless there is something newer.
    async fn write_dirty(&self, dir: &Path) -> bool {
        let dirty = std::mem::take(&mut *self.0.dirty.lock());
        let mut failed = false;
        for (uid, pod) in dirty {
            let (dir, id, copy) = (dir.to_owned(), uid.clone(), pod.clone());
            let written = blocking(move || match copy {
                Some(pod) => write(&dir, &pod),
                None => forget(&dir, &id),
            });
            if let Err(error) = written.await {
                tracing::warn!(%uid, error = %ErrorChain(&error), "cannot write a pod's checkpoint; trying again");
                self.0.dirty.lock().entry(uid).or_insert(pod);
                failed = true;
            }
        }
        failed
    }
}

fn file(dir: &Path, PodUid(uid): &PodUid) -> PathBuf {
    dir.join(format!("{uid}{SUFFIX}"))
}

fn write(dir: &Path, pod: &Pod) -> io::Result<()> {
    let PodUid(uid) = pod.uid();
    let unfinished = dir.join(format!("{uid}{UNFINISHED}"));
    fs::write(&unfinished, serde_json::to_vec(pod)?)?;
    fs::rename(unfinished, file(dir, &pod.uid()))
}

fn forget(dir: &Path, uid: &PodUid) -> io::Result<()> {
    match fs::remove_file(file(dir, uid)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// All copies in `dir`. What is none is removed: nobody would ever take it away. Those that an
/// earlier release has left below `pods_dir` are moved there first.
pub(crate) fn load(dir: &Path, pods_dir: &Path) -> Vec<Arc<Pod>> {
    for uid in directories(pods_dir) {
        let earlier = pods_dir.join(&uid.0).join(EARLIER);
        if let Err(error) = fs::rename(&earlier, file(dir, &uid))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %earlier.display(), error = %ErrorChain(&error), "cannot take over a pod's checkpoint");
        }
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let load = |entry: fs::DirEntry| {
        let path = entry.path();
        let pod = read(&path);
        if pod.is_none() {
            tracing::warn!(path = %path.display(), "remove what is no checkpoint of a pod");
            // What stays is found again by the next start.
            let _ = fs::remove_file(path);
        }
        pod
    };
    entries.filter_map(load).collect()
}

fn read(path: &Path) -> Option<Arc<Pod>> {
    let uid = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    let pod: Pod = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    (pod.uid().0 == uid).then(|| Arc::new(pod))
}

/// UIDs of all pods that left a directory.
pub(crate) fn directories(pods_dir: &Path) -> Vec<PodUid> {
    let entries = fs::read_dir(pods_dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(PodUid(entry.file_name().to_str()?.to_owned())))
        .collect()
}

/// Where the containers of one pod log to.
pub(crate) struct LogDirectory {
    pub(crate) dir: PathBuf,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: PodUid,
}

/// Log directories, `<namespace>_<name>_<uid>`: none of the three has a `_` in it.
pub(crate) fn log_directories(logs_dir: &Path) -> Vec<LogDirectory> {
    let entries = fs::read_dir(logs_dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let file_name = entry.file_name();
            let (names, uid) = file_name.to_str()?.rsplit_once('_')?;
            let (namespace, name) = names.split_once('_').unwrap_or_default();
            Some(LogDirectory {
                dir: entry.path(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: PodUid(uid.to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Arc<Pod> {
        let pod =
            serde_json::json!({"metadata": {"name": "p", "uid": uid}, "spec": {"containers": []}});
        Arc::new(serde_json::from_value(pod).expect("pod"))
    }

    fn uids(pods: &[Arc<Pod>]) -> Vec<String> {
        let mut uids: Vec<_> = pods.iter().map(|pod| pod.uid().0).collect();
        uids.sort();
        uids
    }

    #[tokio::test]
    async fn however_much_is_handed_over_the_disk_has_the_newest_of_each() {
        let root = tempfile::tempdir().expect("directory");
        let (dir, pods) = (root.path().join("checkpoints"), root.path().join("pods"));
        fs::create_dir(&dir).expect("directory");
        let (checkpoints, stopped) = (Checkpoints::default(), CancellationToken::new());
        for number in 0..1000 {
            checkpoints.save(&pod(&number.to_string()));
        }
        for number in 2..1000 {
            checkpoints.forget(&PodUid(number.to_string()));
        }
        stopped.cancel();
        checkpoints.write(dir.clone(), stopped).await;
        fs::write(dir.join("broken.json"), "{").expect("write");
        fs::write(dir.join("torn.new"), "{").expect("write");
        assert_eq!(uids(&load(&dir, &pods)), ["0", "1"]);
        assert_eq!(fs::read_dir(&dir).expect("directory").count(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_written_stays_to_be_written() {
        let root = tempfile::tempdir().expect("directory");
        let (dir, pods) = (root.path().join("checkpoints"), root.path().join("pods"));
        let checkpoints = Checkpoints::default();
        checkpoints.save(&pod("u"));
        assert!(checkpoints.write_dirty(&dir).await, "there is no directory");
        fs::create_dir(&dir).expect("directory");
        assert!(!checkpoints.write_dirty(&dir).await);
        assert_eq!(uids(&load(&dir, &pods)), ["u"]);
    }

    #[test]
    fn copies_of_an_earlier_release_are_taken_over() {
        let root = tempfile::tempdir().expect("directory");
        let (dir, pods) = (root.path().join("checkpoints"), root.path().join("pods"));
        for path in [&dir, &pods.join("u"), &pods.join("without")] {
            fs::create_dir_all(path).expect("directory");
        }
        let earlier = pods.join("u").join(EARLIER);
        fs::write(&earlier, serde_json::to_vec(&*pod("u")).expect("JSON")).expect("write");
        for _ in 0..2 {
            assert_eq!(uids(&load(&dir, &pods)), ["u"]);
            assert!(!earlier.exists() && pods.join("u").is_dir());
        }
    }
}
