//! Pods that run here without a record: the run directory was lost under them, removed or hidden by
//! another file system.
//!
//! Nobody would look after them, and each would soon run a second time beside what is left. So what
//! runs of them is ended before the first pod is looked at. Their shims end by themselves, some
//! seconds after the last agent: that they can no longer be found is how they know (`home` in
//! `coracle-shim`). What they held of the network is released with all that belongs to no sandbox.
//!
//! Only cgroups of pods that this node has had are touched, however many others there are: a
//! kubelet or another agent may have its own in the same place.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use coracle_telemetry::ErrorChain;
use futures::future::join_all;

use super::{PodUid, cgroup::Hierarchies, checkpoint, local::Inner, past};
use crate::blocking::blocking;

/// Where pods' cgroups are, below the root of all of them. Source: `container_config::resources`.
const CLASSES: [&str; 3] = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
/// Before the UID in the name of a pod's cgroup.
const PREFIX: &str = "pod";

/// Where to look for pods without a record, and which of those found there are the node's own.
#[derive(Debug, Clone, Default)]
pub struct OwnPods {
    /// The cgroup that has `kubepods` in it.
    pub cgroup_root: String,
    /// Pods that this node has had.
    pub uids: BTreeSet<PodUid>,
}

/// Ends what runs of the node's own pods without a sandbox that knows it, and removes their
/// cgroups. Which pods ran.
pub(super) async fn end(inner: &Arc<Inner>, own: OwnPods) -> Vec<PodUid> {
    let known = known_cgroups(inner);
    let looking = Arc::clone(inner);
    let lost = blocking(move || lost(find(&looking.hierarchies, &own.cgroup_root), &known, &own));
    let endings = lost.await.into_iter().map(|(cgroup, uid)| {
        let inner = Arc::clone(inner);
        blocking(move || end_one(&inner, &cgroup, &uid).then_some(uid))
    });
    join_all(endings).await.into_iter().flatten().collect()
}

/// Whether something ran there. Blocks.
fn end_one(inner: &Inner, cgroup: &str, uid: &PodUid) -> bool {
    let ran = !inner.hierarchies.processes(cgroup).is_empty();
    if ran {
        tracing::warn!(%uid, cgroup, "a pod runs without a record of it: ending it");
    }
    if let Err(error) = inner.destroy_cgroup(cgroup) {
        // What still runs is found again by the next start.
        tracing::warn!(%uid, error = %ErrorChain(&error), "cannot end a pod without a record");
    }
    ran
}

/// Those of pods whose sandboxes were found.
fn known_cgroups(inner: &Inner) -> BTreeSet<String> {
    let sandboxes = inner.sandboxes();
    let known = sandboxes.iter().filter(|sandbox| !past::is_past(sandbox));
    known
        .map(|sandbox| {
            let parent = sandbox.checkpoint.lock().config.cgroup_parent.clone();
            parent.trim_matches('/').to_owned()
        })
        .collect()
}

/// cgroups named as those of pods are, in any hierarchy, with the UID in the name.
fn find(hierarchies: &Hierarchies, root: &str) -> BTreeMap<String, PodUid> {
    let root = root.trim_matches('/');
    let mut found = BTreeMap::new();
    for point in hierarchies.points() {
        for class in CLASSES {
            let parent = Path::new(root).join(class);
            let children = checkpoint::subdirectories(&point.join(&parent));
            let pods = children.into_iter().filter_map(|(name, _)| {
                let uid = PodUid(name.strip_prefix(PREFIX)?.to_owned());
                Some((parent.join(&name).to_str()?.to_owned(), uid))
            });
            found.extend(pods);
        }
    }
    found
}

/// Those of the node's own pods that no sandbox is known of.
fn lost(
    mut found: BTreeMap<String, PodUid>,
    known: &BTreeSet<String>,
    own: &OwnPods,
) -> BTreeMap<String, PodUid> {
    found.retain(|cgroup, uid| own.uids.contains(uid) && !known.contains(cgroup));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_others_and_those_with_a_record_are_left_alone() {
        let uid = |name: &str| PodUid(name.to_owned());
        let cgroup = |class: &str, name: &str| (format!("{class}/pod{name}"), uid(name));
        let found = BTreeMap::from([
            cgroup("kubepods", "recorded"),
            cgroup("kubepods/burstable", "lost"),
            cgroup("kubepods/besteffort", "foreign"),
        ]);
        let known = BTreeSet::from(["kubepods/podrecorded".to_owned()]);
        let own = OwnPods {
            cgroup_root: "/".to_owned(),
            uids: ["recorded", "lost", "gone"].map(uid).into(),
        };
        let expected = BTreeMap::from([cgroup("kubepods/burstable", "lost")]);
        assert_eq!(lost(found, &known, &own), expected);
    }
}
