//! What the node refuses to run, whoever bound it here: the API server and its admission may be of another opinion, or
//! another version. Pure; the pod's worker asks once, before it makes anything, and fails the pod with the answer.
//!
//! What the node cannot do but may learn (a runtime handler, a user namespace) is no matter of admission: that pod waits
//! with `FailedCreatePodSandBox`, as under the kubelet.

pub(crate) mod sysctl;

use k8s_openapi::api::core::v1::Pod;

use crate::{container_config::apparmor, pod::PodExt};

/// What the decision depends on, besides the pod.
pub(crate) struct NodeView<'a> {
    /// Sysctls beyond the safe ones.
    pub(crate) unsafe_sysctls: &'a sysctl::AllowList,
    /// Names of the loaded AppArmor profiles; `None` without AppArmor. Asked only if a pod wants one.
    pub(crate) apparmor: fn() -> Option<Vec<String>>,
}

/// Why a pod is refused: `status.reason` and the text behind "Pod was rejected: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Whether the node takes the pod.
///
/// # Errors
/// The first rule that is against it, in the kubelet's words (`pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/sysctl`
/// at v1.37).
pub(crate) fn admit(pod: &Pod, node: &NodeView<'_>) -> Result<(), Rejection> {
    operating_system(pod)?;
    sysctls(pod, node.unsafe_sysctls)?;
    apparmor_profiles(pod, node.apparmor)?;
    resource_claims(pod)
}

fn operating_system(pod: &Pod) -> Result<(), Rejection> {
    match pod.spec_or_default().os.as_ref().map(|os| os.name.as_str()) {
        None | Some("linux" | "") => Ok(()),
        Some(_) => Err(Rejection {
            reason: "PodOSNotSupported",
            message: "Failed to admit pod as the OS field doesn't match node OS".to_owned(),
        }),
    }
}

fn sysctls(pod: &Pod, allowed: &sysctl::AllowList) -> Result<(), Rejection> {
    let spec = pod.spec_or_default();
    let wanted = spec.security_context.iter().filter_map(|context| context.sysctls.as_ref()).flatten();
    for one in wanted {
        allowed
            .check(&one.name, spec.host_network == Some(true), spec.host_ipc == Some(true))
            .map_err(|why| Rejection { reason: "SysctlForbidden", message: format!("forbidden sysctl: {why}") })?;
    }
    Ok(())
}

fn apparmor_profiles(pod: &Pod, kernel: fn() -> Option<Vec<String>>) -> Result<(), Rejection> {
    for container in pod.all_containers() {
        apparmor::resolve(pod, container, kernel).map_err(|error| {
            let text = error.to_string();
            let message = format!("Cannot enforce AppArmor: {}", text.trim_start_matches("cannot enforce AppArmor: "));
            Rejection { reason: "AppArmor", message }
        })?;
    }
    Ok(())
}

/// Devices of claims are allocated by drivers, which this node does not speak to: a container that was started without
/// its device would look well and be wrong.
fn resource_claims(pod: &Pod) -> Result<(), Rejection> {
    let claims = pod.spec_or_default().resource_claims.iter().flatten();
    match claims.map(|claim| &claim.name).next() {
        None => Ok(()),
        Some(name) => Err(Rejection {
            reason: "UnexpectedAdmissionError",
            message: format!("resource claim \"{name}\": this node has no driver of dynamic resources"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn admitted(spec: Value, kernel: fn() -> Option<Vec<String>>) -> Result<(), (&'static str, String)> {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("pod");
        let allowed = sysctl::AllowList::new(&["net.core.somaxconn".to_owned()]).expect("patterns");
        admit(&pod, &NodeView { unsafe_sysctls: &allowed, apparmor: kernel })
            .map_err(|rejection| (rejection.reason, rejection.message))
    }

    #[test]
    fn what_the_node_cannot_keep_to_it_refuses() {
        let sysctl =
            |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, "containers": []});
        let profile = json!({"containers": [{"name": "c", "securityContext":
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}]});
        let reason = |spec: Value, kernel| admitted(spec, kernel).expect_err("refused").0;
        assert_eq!(admitted(json!({"containers": [], "os": {"name": "linux"}}), || None), Ok(()));
        assert_eq!(reason(json!({"containers": [], "os": {"name": "windows"}}), || None), "PodOSNotSupported");
        assert_eq!(
            admitted(sysctl("kernel.core_pattern"), || None),
            Err(("SysctlForbidden", "forbidden sysctl: \"kernel.core_pattern\" not allowlisted".to_owned()))
        );
        assert_eq!(admitted(sysctl("net.core.somaxconn"), || None), Ok(()));
        assert_eq!(reason(profile.clone(), || None), "AppArmor");
        assert_eq!(reason(profile.clone(), || Some(vec!["y".to_owned()])), "AppArmor");
        assert_eq!(admitted(profile, || Some(vec!["x".to_owned()])), Ok(()));
        let claims = json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]});
        assert_eq!(reason(claims, || None), "UnexpectedAdmissionError");
    }
}
