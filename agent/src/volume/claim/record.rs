//! What pods have of persistent volumes on this node: a file each, in the directory of the volume.
//!
//! `<pods>/<uid>/volumes/kubernetes.io~<plugin>/<volume>/vol_data.json` is written before anything
//! is done for the volume, and goes with the rest of the pod's volumes. So another run of the agent
//! finds again what a pod has, though its claim may be gone by then; and whether a volume is in use
//! here is a question to the disk. Blocking.
//!
//! Source: `vol_data.json` of `pkg/volume/csi/csi_mounter.go` at v1.37, which upstream writes for
//! drivers alone.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use coracle_trust::private_file;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use serde::{Deserialize, Serialize};

use crate::{
    runtime::types::PodUid,
    volume::layout::{self, HOST_PATH, LOCAL, VOLUMES},
};

const FILE: &str = "vol_data.json";
/// What has persistent volumes.
const PLUGINS: [&str; 2] = [LOCAL, HOST_PATH];
/// On a volume: a group whose members may use it.
const GROUP: &str = "pv.beta.kubernetes.io/gid";
const ONE_POD: &str = "ReadWriteOncePod";

/// A persistent volume of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claimed {
    /// The claim, of the pod's namespace.
    pub(crate) claim: String,
    pub(crate) volume: PersistentVolume,
    /// All is done for it, ownership of its files included: it is the pod's until that goes.
    pub(crate) ready: bool,
}

impl Claimed {
    pub(crate) fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.volume.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn spec(&self) -> Option<&PersistentVolumeSpec> {
        self.volume.spec.as_ref()
    }

    /// A group that the pod's processes are to be in, to use the volume.
    pub(crate) fn group(&self) -> Option<u32> {
        let annotations = self.volume.metadata.annotations.as_ref()?;
        annotations.get(GROUP)?.parse().ok()
    }

    /// Whether one pod alone may use it. With several access modes nobody knows which is meant.
    pub(crate) fn is_for_one_pod(&self) -> bool {
        let modes = self.spec().and_then(|spec| spec.access_modes.as_deref());
        modes.is_some_and(|modes| modes == [ONE_POD])
    }
}

/// Where a pod has a volume.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// The directory of the volume in the pod's.
    pub(crate) dir: PathBuf,
    pub(crate) claimed: Claimed,
}

impl Record {
    /// Makes it the newest that is known of the volume in this pod.
    pub(crate) fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        self.put()
    }

    fn put(&self) -> io::Result<()> {
        let json = serde_json::to_vec(&self.claimed)?;
        private_file::write(&self.dir.join(FILE), &json)
    }

    /// Nothing is left to do. For who works on the volume longer than its pod waits, or lives: of
    /// a volume that has been taken away from it meanwhile nothing is written.
    pub(crate) fn set_ready(&self) -> io::Result<()> {
        if self.written().is_none() {
            return Ok(());
        }
        let mut done = self.clone();
        done.claimed.ready = true;
        match done.put() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Whether an earlier try has done everything.
    pub(crate) fn is_ready_by_now(&self) -> bool {
        self.written().is_some_and(|written| written.ready)
    }

    /// What an earlier try has left of the same volume.
    pub(crate) fn written(&self) -> Option<Claimed> {
        let written = read(&self.dir).ok().flatten();
        written.filter(|written| written.uid() == self.claimed.uid())
    }
}

/// The records of all pods.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) pods_dir: PathBuf,
}

impl Records {
    /// What a pod has by a claim. What cannot be read is none: it is looked up and written anew.
    pub(crate) fn find(&self, pod: &PodUid, claim: &str) -> Option<Record> {
        let of_pod = self.of_pod(pod).into_iter().flatten();
        of_pod
            .filter(|record| record.claimed.claim == claim)
            .max_by_key(|record| record.claimed.ready)
    }

    /// All that a pod has.
    pub(crate) fn of_pod(&self, pod: &PodUid) -> io::Result<Vec<Record>> {
        let mut found = Vec::new();
        for plugin in PLUGINS {
            let volumes = self.volumes(&pod.0, plugin);
            for name in names(&volumes)? {
                let dir = volumes.join(name);
                // One that cannot be read keeps no other.
                if let Ok(Some(claimed)) = read(&dir) {
                    found.push(Record { dir, claimed });
                }
            }
        }
        Ok(found)
    }

    /// Where pods other than `but` have a volume.
    ///
    /// # Errors
    /// What cannot be read may be one.
    pub(crate) fn holders(
        &self,
        volume: &PersistentVolume,
        but: Option<&PodUid>,
    ) -> io::Result<Vec<Record>> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        for pod in names(&self.pods_dir)? {
            if but.is_some_and(|but| pod == *but.0) {
                continue;
            }
            for plugin in PLUGINS {
                let dir = self.volumes(&pod, plugin).join(name);
                if let Some(claimed) = read(&dir)?
                    && claimed.volume.metadata.uid == volume.metadata.uid
                {
                    found.push(Record { dir, claimed });
                }
            }
        }
        Ok(found)
    }

    fn volumes(&self, pod: &str, plugin: &str) -> PathBuf {
        layout::of_plugin(&self.pods_dir.join(pod).join(VOLUMES), plugin)
    }
}

/// Names of what is in a directory; none if there is no such directory.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().into_string().unwrap_or_default())
    };
    entries.map(name).collect()
}

fn read(dir: &Path) -> io::Result<Option<Claimed>> {
    let path = dir.join(FILE);
    let json = match fs::read(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other?,
    };
    let parsed = serde_json::from_slice(&json);
    parsed.map(Some).map_err(|error| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("{}: {error}", path.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claimed(claim: &str, name: &str, uid: &str) -> Claimed {
        let volume =
            json!({"metadata": {"name": name, "uid": uid}, "spec": {"local": {"path": "/srv"}}});
        Claimed {
            claim: claim.to_owned(),
            volume: serde_json::from_value(volume).expect("a volume"),
            ready: false,
        }
    }

    fn records() -> (tempfile::TempDir, Records) {
        let dir = tempfile::tempdir().expect("directory");
        let pods_dir = dir.path().join("pods");
        (dir, Records { pods_dir })
    }

    fn record(records: &Records, pod: &str, claimed: Claimed) -> Record {
        let dir = records.volumes(pod, LOCAL).join(claimed.name());
        let record = Record { dir, claimed };
        record.write().expect("write");
        record
    }

    #[test]
    fn another_run_of_the_agent_finds_what_a_pod_has() {
        let (_dir, records) = records();
        let pod = PodUid("p".to_owned());
        assert!(records.find(&pod, "data").is_none());
        let written = record(&records, "p", claimed("data", "v", "1"));
        let found = records.find(&pod, "data").expect("found");
        assert_eq!(
            (&found.dir, &found.claimed),
            (&written.dir, &written.claimed)
        );
        assert!(!found.is_ready_by_now());
        found.set_ready().expect("write");
        assert!(found.is_ready_by_now());
        assert!(records.find(&pod, "data").expect("found").claimed.ready);
        assert!(records.find(&pod, "other").is_none());
        assert!(records.find(&PodUid("q".to_owned()), "data").is_none());
    }

    #[test]
    fn whoever_holds_a_volume_is_found_and_nobody_who_holds_another_of_its_name() {
        let (_dir, records) = records();
        let held = claimed("data", "v", "1");
        let count = |but: Option<&str>| {
            let but = but.map(|uid| PodUid(uid.to_owned()));
            records
                .holders(&held.volume, but.as_ref())
                .map(|found| found.len())
        };
        assert_eq!(count(None).expect("read"), 0);
        record(&records, "p", held.clone());
        record(&records, "q", claimed("data", "v", "2"));
        record(&records, "r", claimed("data", "w", "3"));
        assert_eq!(count(None).expect("read"), 1);
        assert_eq!(count(Some("p")).expect("read"), 0);
        // What cannot be read may be that volume.
        let torn = records.volumes("s", LOCAL).join("v");
        fs::create_dir_all(&torn).expect("directory");
        fs::write(torn.join(FILE), "{").expect("file");
        count(None).expect_err("nobody knows");
    }

    #[test]
    fn one_access_mode_for_one_pod_says_so() {
        let mut one = claimed("data", "v", "1");
        for (modes, expect) in [
            (json!(["ReadWriteOncePod"]), true),
            (json!(["ReadWriteOnce"]), false),
            (json!(["ReadWriteOnce", "ReadWriteOncePod"]), false),
        ] {
            let modes: Vec<String> = serde_json::from_value(modes).expect("modes");
            one.volume.spec.as_mut().expect("spec").access_modes = Some(modes.clone());
            assert_eq!(one.is_for_one_pod(), expect, "{modes:?}");
        }
    }
}
