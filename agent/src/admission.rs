//! Whether the node takes a pod that is bound to it, whoever bound it there (pure).
//!
//! Not every pod comes from the scheduler, what that saw may have changed, and the API server may
//! be of another opinion, or another version: the node has the last word. Each handler is a
//! function of the pod, the node and the other pods that the node has taken; they are asked in one
//! order, and the first rejection stands. A pod that is rejected fails with upstream's reason and
//! message, takes nothing, and whoever made it makes another.
//!
//! The sync loop asks once for each pod, before a worker cares for it. What the node itself has
//! records of goes on running, whatever the node has become. A status that tells of a start, which
//! others may have written, keeps the pod's place and lets it do nothing more.
//!
//! What has to wait (volumes, images, a runtime handler, a user namespace) is no matter of
//! admission: that pod waits, as under the kubelet. Not here: preemption for critical pods,
//! devices.
//!
//! Source: `canAdmitPod` in `pkg/kubelet/allocation/allocation_manager.go`,
//! `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/sysctl` at v1.37.

pub(crate) mod listening;
pub(crate) mod predicates;
pub(crate) mod sysctl;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Taint};

use crate::{container_config::apparmor, pod::PodExt, status_reason::StatusReason};
use listening::Listeners;
use predicates::Amounts;

/// The node, as far as it matters here.
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Amounts,
    /// Sysctls that pods may set.
    pub(crate) sysctls: sysctl::AllowList,
    /// Names of the loaded AppArmor profiles; `None` without AppArmor. Asked only if a pod wants
    /// one.
    pub(crate) apparmor: fn() -> Option<Vec<String>>,
    /// Ports of the node that are listened on. Asked only if a pod publishes one.
    pub(crate) listeners: Listeners,
}

/// Says why the node does not take a pod beside the others that it has taken; `None` if it may.
type Handler = fn(&Pod, &NodeInfo, &[&Pod]) -> Option<StatusReason>;

/// Says which pods show in the API what a node runs from files.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What the node cannot keep to; then whether it is the right one, and has room. In upstream's
/// order.
const HANDLERS: [(Handler, AppliesTo); 10] = [
    (mirror_pods, AppliesTo::EveryPod),
    (sysctls, AppliesTo::EveryPod),
    (resource_claims, AppliesTo::EveryPod),
    (predicates::operating_system_label, AppliesTo::EveryPod),
    (operating_system, AppliesTo::EveryPod),
    (predicates::resources, AppliesTo::UnstartedPods),
    (predicates::node_affinity, AppliesTo::UnstartedPods),
    (predicates::host_ports, AppliesTo::UnstartedPods),
    (predicates::taints, AppliesTo::UnstartedPods),
    (apparmor_profiles, AppliesTo::EveryPod),
];

/// Which pods a handler is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AppliesTo {
    EveryPod,
    /// Not those whose status tells of a start: they were taken once and have their place, whatever
    /// came after them.
    UnstartedPods,
}

/// Takes `pod` beside the `others` that the node has taken, or tells why not.
pub(crate) fn admit(pod: &Pod, node: &NodeInfo, others: &[&Pod]) -> Result<(), StatusReason> {
    let is_placed = tells_of_a_start(pod);
    let asked = HANDLERS
        .iter()
        .filter(|(_, applies_to)| *applies_to == AppliesTo::EveryPod || !is_placed);
    asked
        .into_iter()
        .find_map(|(handler, _)| handler(pod, node, others))
        .map_or(Ok(()), Err)
}

fn tells_of_a_start(pod: &Pod) -> bool {
    let status = pod.status_or_default();
    let mut containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    status.start_time.is_some() || containers.any(|container| container.container_id.is_some())
}

/// This node runs no pods from files, so that nothing is behind such a pod. The kubelet never runs
/// one of the API either: it deletes it, as the mirror of a static pod that is gone
/// (`deleteOrphanedMirrorPods`). Here it fails, so that whoever made it sees why.
fn mirror_pods(pod: &Pod, _: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let is_mirror = pod
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(MIRROR));
    let message =
        format!("annotation {MIRROR}: this node runs no static pod that it could be the mirror of");
    is_mirror.then(|| StatusReason::new("UnexpectedAdmissionError", message))
}

fn operating_system(pod: &Pod, _: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let asked = pod.spec_or_default().os.as_ref().map(|os| os.name.as_str());
    let is_ours = matches!(asked, None | Some("linux" | ""));
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    (!is_ours).then(|| StatusReason::new("PodOSNotSupported", message))
}

fn sysctls(pod: &Pod, node: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let spec = pod.spec_or_default();
    let mut wanted = spec
        .security_context
        .iter()
        .filter_map(|context| context.sysctls.as_ref())
        .flatten();
    let hosts = sysctl::HostNamespaces {
        network: spec.host_network == Some(true),
        ipc: spec.host_ipc == Some(true),
    };
    let why = wanted.find_map(|one| node.sysctls.check(&one.name, hosts).err())?;
    Some(StatusReason::new(
        "SysctlForbidden",
        format!("forbidden sysctl: {why}"),
    ))
}

fn apparmor_profiles(pod: &Pod, node: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let error = pod
        .all_containers()
        .find_map(|container| apparmor::resolve(pod, container, node.apparmor).err())?;
    let text = error.to_string();
    let why = text.trim_start_matches("cannot enforce AppArmor: ");
    Some(StatusReason::new(
        "AppArmor",
        format!("Cannot enforce AppArmor: {why}"),
    ))
}

/// Devices of claims are allocated by drivers, which this node does not speak to: a container that
/// was started without its device would look well and be wrong.
fn resource_claims(pod: &Pod, _: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let name = &pod
        .spec_or_default()
        .resource_claims
        .iter()
        .flatten()
        .next()?
        .name;
    let message =
        format!("resource claim \"{name}\": this node has no driver of dynamic resources");
    Some(StatusReason::new("UnexpectedAdmissionError", message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(apparmor: fn() -> Option<Vec<String>>) -> NodeInfo {
        let sysctls = sysctl::AllowList::new(&["net.core.somaxconn".to_owned()]).expect("patterns");
        let allocatable = [("cpu".to_owned(), 1000), ("pods".to_owned(), 10)].into();
        NodeInfo {
            name: "n1".to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable,
            sysctls,
            apparmor,
            listeners: Listeners::new(Vec::new),
        }
    }

    fn refused(pod: Value, kernel: fn() -> Option<Vec<String>>) -> Option<(String, String)> {
        let pod = serde_json::from_value(pod).expect("pod");
        admit(&pod, &node(kernel), &[])
            .err()
            .map(|why| (why.reason, why.message))
    }

    #[test]
    fn what_the_node_cannot_keep_to_it_refuses() {
        let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, "containers": []});
        let profile = json!({"containers": [{"name": "c", "securityContext":
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}]});
        let judge = |spec: &Value, kernel| {
            refused(json!({"metadata": {"name": "p"}, "spec": spec}), kernel)
        };
        let reason = |spec: &Value, kernel| judge(spec, kernel).map(|(reason, _)| reason);
        assert_eq!(
            judge(&json!({"containers": [], "os": {"name": "linux"}}), || None),
            None
        );
        let windows = json!({"containers": [], "os": {"name": "windows"}});
        assert_eq!(
            reason(&windows, || None).as_deref(),
            Some("PodOSNotSupported")
        );
        let (forbidden, why) = (
            "SysctlForbidden",
            "forbidden sysctl: \"kernel.core_pattern\" not allowlisted",
        );
        assert_eq!(
            judge(&sysctl("kernel.core_pattern"), || None),
            Some((forbidden.to_owned(), why.to_owned()))
        );
        assert_eq!(judge(&sysctl("net.core.somaxconn"), || None), None);
        assert_eq!(reason(&profile, || None).as_deref(), Some("AppArmor"));
        assert_eq!(
            reason(&profile, || Some(vec!["y".to_owned()])).as_deref(),
            Some("AppArmor")
        );
        assert_eq!(judge(&profile, || Some(vec!["x".to_owned()])), None);
        let claims = json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]});
        assert_eq!(
            reason(&claims, || None).as_deref(),
            Some("UnexpectedAdmissionError")
        );
    }

    #[test]
    fn the_mirror_of_a_static_pod_is_not_run() {
        let started = json!({"startTime": "2026-01-01T00:00:00Z"});
        for (annotation, expected) in [
            ("kubernetes.io/config.mirror", true),
            ("kubernetes.io/config.hash", false),
        ] {
            for status in [json!({}), started.clone()] {
                let metadata = json!({"name": "p", "annotations": {annotation: ""}});
                let pod =
                    json!({"metadata": metadata, "spec": {"containers": []}, "status": status});
                assert_eq!(refused(pod.clone(), || None).is_some(), expected, "{pod}");
            }
        }
    }

    #[test]
    fn who_has_started_keeps_its_place_but_may_not_do_more() {
        let greedy =
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
        let wild = json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}});
        let time = json!({"startTime": "2026-01-01T00:00:00Z"});
        let container = json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "ready": true,
            "restartCount": 0, "containerID": "coracle://1"}]});
        for (spec, status, expected) in [
            (&greedy, json!({}), Some("OutOfcpu")),
            (&greedy, time.clone(), None),
            (&greedy, container.clone(), None),
            (&wild, json!({}), Some("SysctlForbidden")),
            (&wild, time, Some("SysctlForbidden")),
            (&wild, container, Some("SysctlForbidden")),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
            let found = refused(pod.clone(), || None).map(|(reason, _)| reason);
            assert_eq!(found.as_deref(), expected, "{pod}");
        }
    }
}
