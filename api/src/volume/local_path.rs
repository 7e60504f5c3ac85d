//! Directories of nodes as volumes: what the server that provisions them, and the nodes that make
//! and remove them, call things.
//!
//! ```text
//! node:   annotates its Node with the directory below which volumes go
//! server: a PersistentVolume for a claim and the node that the scheduler has selected, with FINALIZER
//! node:   makes the directory as a pod mounts it first; once the volume goes, does what `due` says, and takes FINALIZER off
//! ```
//! FINALIZER is why no directory outlives its volume unnoticed, and why a volume without a node
//! goes only when the server says so.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::VOLUME_PROTECTION;

/// The StorageClass that the server makes.
pub const CLASS: &str = "local-path";
/// Who makes the volumes of that class.
pub const PROVISIONER: &str = "coracle.dev/local-path";
/// On a Node: the absolute path below which it keeps volumes.
pub const DIRECTORY: &str = "local-path.coracle.dev/directory";
/// A label of a volume: the name of its node.
pub const NODE: &str = "local-path.coracle.dev/node";
/// On a volume, from before its directory is made: a node that does not know of it has lost it.
pub const MADE: &str = "local-path.coracle.dev/made";
/// On a volume: its directory may be there.
pub const FINALIZER: &str = "local-path.coracle.dev/directory";

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// The name of the directory of a volume for a claim: as much of both as file systems allow.
///
/// Two volumes have two names, so what is cut off is the claim's.
#[must_use]
pub fn directory_name(volume: &str, namespace: &str, claim: &str) -> String {
    let mut name = format!("{volume}_{namespace}_{claim}");
    let end = (0..=NAME_MAX.min(name.len()))
        .rev()
        .find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or_default());
    name
}

/// What its node does about a volume, by [`due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing: it is there to be used.
    Keep,
    /// Takes [`FINALIZER`] off; the directory stays for whoever wants what is in it.
    Forget,
    /// Removes the directory, and takes [`FINALIZER`] off once that is done.
    Remove,
}

/// What its node does about a volume.
///
/// One that a user has deleted while it is bound waits, as its [`VOLUME_PROTECTION`] says: a pod
/// may write to it. What is to be retained stays, also when the object of the volume goes.
#[must_use]
pub fn due(volume: &PersistentVolume) -> Due {
    let meta = &volume.metadata;
    let has = |finalizer: &str| {
        let mut all = meta.finalizers.iter().flatten();
        all.any(|one| one == finalizer)
    };
    if meta.deletion_timestamp.is_none() || has(VOLUME_PROTECTION) || !has(FINALIZER) {
        return Due::Keep;
    }
    let spec = volume.spec.as_ref();
    match spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) {
        Some("Delete") => Due::Remove,
        _ => Due::Forget,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_directory_has_no_longer_name_than_file_systems_allow() {
        assert_eq!(directory_name("pvc-1", "ns", "data"), "pvc-1_ns_data");
        let long = directory_name("pvc-1", &"s".repeat(63), &"n".repeat(253));
        assert_eq!(long.len(), NAME_MAX);
        let odd = directory_name("v", "s", &"\u{e4}".repeat(200));
        assert!(odd.len() <= NAME_MAX && odd.ends_with('\u{e4}'), "{odd}");
    }

    #[test]
    fn a_directory_goes_once_nothing_uses_it_and_nobody_wants_to_retain_it() {
        for (is_deleted, finalizers, policy, expect) in [
            (false, vec![FINALIZER], "Delete", Due::Keep),
            (
                true,
                vec![VOLUME_PROTECTION, FINALIZER],
                "Delete",
                Due::Keep,
            ),
            (
                true,
                vec![VOLUME_PROTECTION, FINALIZER],
                "Retain",
                Due::Keep,
            ),
            (true, vec![FINALIZER], "Delete", Due::Remove),
            (true, vec![FINALIZER], "Retain", Due::Forget),
            (true, vec!["example.com/other"], "Delete", Due::Keep),
        ] {
            let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
            let volume = json!({
                "metadata": {"deletionTimestamp": deleted, "finalizers": finalizers},
                "spec": {"persistentVolumeReclaimPolicy": policy},
            });
            let volume = serde_json::from_value(volume).expect("a volume");
            assert_eq!(due(&volume), expect, "{is_deleted} {finalizers:?} {policy}");
        }
    }
}
