//! Where a volume is to be attached, and what becomes of what is attached. Pure.
//!
//! Source: `pkg/controller/volume/attachdetach/reconciler/reconciler.go` and
//! `pkg/volume/csi/csi_attacher.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coracle_api::volume::annotation;
use k8s_openapi::api::{
    core::v1::{CSIPersistentVolumeSource, Node, PersistentVolume},
    storage::v1::{CSIDriver, VolumeAttachment},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{node_state, pod::Pod, pod_state::is_finished};

/// On a Node whose agent leaves attaching to this controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// How long a node that is down is waited for before it loses a volume that it was using.
const MOST_PATIENCE: Duration = Duration::from_secs(6 * 60);

/// The pods that use a volume, by their nodes.
pub(super) type Users = BTreeMap<String, Vec<Arc<Pod>>>;

/// What becomes of something that is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Pods on the node use the volume, or somebody else sees to it.
    Keep,
    /// It is on its way: who has attached it takes it off.
    Going,
    /// The node still has it mounted: until it says otherwise, or for so long.
    Wait(Option<Duration>),
    /// Nobody needs it. Whether the node has not been heard, and may still have it mounted.
    Detach { is_forced: bool },
}

/// `waited` says for how long nobody has needed it.
pub(super) fn fate(
    attachment: &VolumeAttachment,
    name: &str,
    node: Option<&Node>,
    is_wanted: bool,
    waited: Duration,
) -> Fate {
    let has_mounted = node.is_none_or(|node| is_in_use(node, name));
    let is_ready = node.is_some_and(node_state::is_ready);
    let is_out_of_service = node.is_some_and(node_state::is_said_to_be_out_of_service);
    // Who attaches volumes to other nodes takes them off, too.
    let is_ours = node.is_none_or(is_managed);
    if attachment.metadata.deletion_timestamp.is_some() {
        Fate::Going
    } else if is_wanted || !is_ours {
        Fate::Keep
    } else if is_out_of_service {
        Fate::Detach { is_forced: true }
    } else if !has_mounted {
        Fate::Detach { is_forced: false }
    } else if is_ready {
        Fate::Wait(None)
    } else if waited < MOST_PATIENCE {
        Fate::Wait(Some(MOST_PATIENCE - waited))
    } else {
        Fate::Detach { is_forced: true }
    }
}

/// A node that a volume cannot be attached to, because another has it.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    pub(super) node: String,
    pub(super) message: String,
}

/// Where the volume is to be attached, and where it cannot be. `present` are its attachments.
pub(super) fn attach(
    volume: &PersistentVolume,
    users: &Users,
    present: &[Arc<VolumeAttachment>],
) -> (Vec<String>, Vec<Refused>) {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let mut has: Vec<&str> = present.iter().map(|one| &*one.spec.node_name).collect();
    let (mut attach, mut refused) = (Vec::new(), Vec::new());
    for node in users.keys() {
        if has.contains(&node.as_str()) {
            continue;
        }
        if has.is_empty() || may_be_shared(volume) {
            attach.push(node.clone());
            has.push(node);
            continue;
        }
        let others = has.iter().filter_map(|other| users.get(*other)).flatten();
        let others: Vec<&str> = others
            .filter_map(|pod| pod.metadata.name.as_deref())
            .collect();
        let why = match others.as_slice() {
            [] => "Volume is already exclusively attached to one node and can't be attached to another".to_owned(),
            pods => format!("Volume is already used by pod(s) {}", pods.join(", ")),
        };
        refused.push(Refused {
            node: node.clone(),
            message: format!("Multi-Attach error for volume {name:?} {why}"),
        });
    }
    (attach, refused)
}

/// Whether several nodes can have the volume at once. One that says nothing may.
fn may_be_shared(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|it| it.access_modes.as_ref());
    modes.is_none_or(|modes| {
        let shares = |mode: &String| matches!(mode.as_str(), "ReadWriteMany" | "ReadOnlyMany");
        modes.is_empty() || modes.iter().any(shares)
    })
}

/// What a CSI driver keeps of the volume.
pub(super) fn source(volume: &PersistentVolume) -> Option<&CSIPersistentVolumeSource> {
    volume.spec.as_ref()?.csi.as_ref()
}

/// Whether volumes of the driver are attached at all: they are unless it says otherwise.
pub(super) fn attaches(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

/// What a Node's status calls a volume.
pub(super) fn unique_name(source: &CSIPersistentVolumeSource) -> String {
    format!(
        "kubernetes.io/csi/{}^{}",
        source.driver, source.volume_handle
    )
}

/// Said by whom its agent is.
pub(super) fn is_managed(node: &Node) -> bool {
    annotation(&node.metadata, MANAGED).is_some()
}

/// What the node has mounted, or is about to.
pub(super) fn is_in_use(node: &Node, name: &str) -> bool {
    let status = node.status.as_ref();
    let names = status.and_then(|status| status.volumes_in_use.as_ref());
    names.into_iter().flatten().any(|one| one == name)
}

/// What the node may mount.
pub(super) fn reported(node: &Node) -> impl Iterator<Item = &str> {
    let status = node.status.as_ref();
    let volumes = status.and_then(|status| status.volumes_attached.as_ref());
    volumes.into_iter().flatten().map(|one| one.name.as_str())
}

/// Whether a pod does not need its volumes any more: nothing of it runs, or will.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    let mut states = statuses.into_iter().flatten().map(|one| one.state.as_ref());
    let runs = states.any(|state| state.is_some_and(|state| state.is_running));
    is_finished(pod) || pod.metadata.deletion_timestamp.is_some() && !runs
}

/// What asks the driver to attach the volume. Its name is that of the pair.
pub(super) fn attachment(
    volume: &str,
    source: &CSIPersistentVolumeSource,
    node: &str,
) -> serde_json::Result<VolumeAttachment> {
    let CSIPersistentVolumeSource {
        driver,
        volume_handle,
        ..
    } = source;
    let hash = Sha256::digest(format!("{volume_handle}{driver}{node}"));
    serde_json::from_value(json!({
        "metadata": {"name": format!("csi-{}", hex::encode(hash))},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}},
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use serde_json::Value;

    use super::*;

    const NAME: &str = "kubernetes.io/csi/disk.example.com^v-1";

    fn volume(modes: &Value) -> PersistentVolume {
        let csi = json!({"driver": "disk.example.com", "volumeHandle": "v-1"});
        let object = json!({"metadata": {"name": "v"}, "spec": {"accessModes": modes, "csi": csi}});
        serde_json::from_value(object).unwrap()
    }

    fn on(node: &str) -> VolumeAttachment {
        attachment("v", source(&volume(&json!([]))).unwrap(), node).unwrap()
    }

    fn node(ready: &str, in_use: &[&str], taint: &str) -> Node {
        let managed = json!({MANAGED: "true"});
        let object = json!({"metadata": {"name": "n", "annotations": managed}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}], "volumesInUse": in_use}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_node_keeps_what_it_uses_until_it_is_given_up() {
        let out = node_state::OUT_OF_SERVICE;
        let (minute, patience) = (Duration::from_secs(60), MOST_PATIENCE);
        for (of_node, is_wanted, waited, expect) in [
            (Some(node("True", &[NAME], "")), true, patience, Fate::Keep),
            (
                Some(node("True", &[], "")),
                false,
                Duration::ZERO,
                Fate::Detach { is_forced: false },
            ),
            (
                Some(node("True", &[NAME], "")),
                false,
                patience,
                Fate::Wait(None),
            ),
            (
                Some(node("Unknown", &[NAME], "")),
                false,
                minute,
                Fate::Wait(Some(patience - minute)),
            ),
            (
                Some(node("Unknown", &[NAME], "")),
                false,
                patience,
                Fate::Detach { is_forced: true },
            ),
            (
                Some(node("Unknown", &[NAME], out)),
                false,
                Duration::ZERO,
                Fate::Detach { is_forced: true },
            ),
            (
                Some(node("Unknown", &[NAME], out)),
                true,
                Duration::ZERO,
                Fate::Keep,
            ),
            (None, false, minute, Fate::Wait(Some(patience - minute))),
            (None, false, patience, Fate::Detach { is_forced: true }),
        ] {
            let found = fate(&on("n"), NAME, of_node.as_ref(), is_wanted, waited);
            assert_eq!(found, expect, "{of_node:?} {is_wanted} {waited:?}");
        }
        let mut others = node("True", &[], "");
        others.metadata.annotations = None;
        let found = fate(&on("n"), NAME, Some(&others), false, patience);
        assert_eq!(found, Fate::Keep, "its agent does it itself");
        let mut going = on("n");
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let of_node = node("True", &[], "");
        let found = fate(&going, NAME, Some(&of_node), true, patience);
        assert_eq!(
            found,
            Fate::Going,
            "a pod that comes back waits for the end"
        );
    }

    #[test]
    fn a_volume_of_one_node_is_attached_to_one() {
        let pod = |name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "ns"}});
            Arc::new(serde_json::from_value::<Pod>(object).unwrap())
        };
        let users: Users = [("a", "p"), ("b", "q")]
            .map(|(node, name)| (node.to_owned(), vec![pod(name)]))
            .into();
        let (once, many) = (
            json!(["ReadWriteOnce"]),
            json!(["ReadWriteOnce", "ReadOnlyMany"]),
        );
        let told =
            |why: &str| format!("Multi-Attach error for volume \"v\" Volume is already {why}");
        for (modes, present, to, expect) in [
            (
                &once,
                vec![],
                vec!["a"],
                vec![("b", told("used by pod(s) p"))],
            ),
            (
                &once,
                vec!["b"],
                vec![],
                vec![("a", told("used by pod(s) q"))],
            ),
            (
                &once,
                vec!["c"],
                vec![],
                ["a", "b"]
                    .map(|node| {
                        let why =
                            "exclusively attached to one node and can't be attached to another";
                        (node, told(why))
                    })
                    .to_vec(),
            ),
            (&many, vec!["c"], vec!["a", "b"], vec![]),
            (&json!([]), vec!["a"], vec!["b"], vec![]),
            (&once, vec!["a", "b"], vec![], vec![]),
        ] {
            let present: Vec<_> = present.into_iter().map(|node| Arc::new(on(node))).collect();
            let (attach, refused) = attach(&volume(modes), &users, &present);
            let refused: Vec<_> = refused
                .iter()
                .map(|one| (&*one.node, one.message.clone()))
                .collect();
            assert_eq!(
                (attach, refused),
                (to.into_iter().map(str::to_owned).collect(), expect),
                "{modes} {present:?}"
            );
        }
    }

    /// Upstream's `getAttachmentName`: sha256 of "v-1disk.example.comn".
    #[test]
    fn an_attachment_has_upstreams_name() {
        let made = on("n");
        let hash = hex::encode(Sha256::digest("v-1disk.example.comn"));
        assert_eq!(made.metadata.name, Some(format!("csi-{hash}")));
        assert_eq!(unique_name(source(&volume(&json!([]))).unwrap()), NAME);
    }

    #[test]
    fn a_pod_that_has_ended_needs_no_volume() {
        let running = json!([{"name": "c", "state": {"running": {}}}]);
        let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
        let waiting = json!([{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        for (phase, is_deleted, statuses, expect) in [
            ("Running", false, &running, false),
            ("Running", true, &running, false),
            ("Running", true, &ended, true),
            ("Running", false, &ended, false),
            ("Running", true, &json!([]), true),
            ("Pending", true, &waiting, true),
            ("Pending", false, &waiting, false),
            ("Succeeded", false, &ended, true),
            ("Failed", false, &json!([]), true),
        ] {
            let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
            let object = json!({"metadata": {"name": "p", "deletionTimestamp": deleted},
                "status": {"phase": phase, "containerStatuses": statuses}});
            let pod = serde_json::from_value(object).unwrap();
            assert_eq!(has_ended(&pod), expect, "{phase} {is_deleted} {statuses}");
        }
    }
}
