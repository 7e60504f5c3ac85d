//! A container's security settings from the pod's, its own and the image's (pure).

use std::path::Path;

use k8s_openapi::api::core::v1::{
    Container, Pod, PodSecurityContext, SeccompProfile as ApiSeccomp,
};

use crate::{
    pod::PodExt,
    runtime::types::{SeccompProfile, SecurityContext},
};

/// A setting that cannot be satisfied: the waiting reason is `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SecurityError {
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    RunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})"
    )]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    UserUnknown {
        user: String,
        pod: String,
        container: String,
    },
    #[error(
        "procMount Unmasked needs a user namespace of the pod's own (hostUsers: false), which this node does not make (container: {container})"
    )]
    Unmasked { container: String },
    #[error(
        "seLinuxOptions cannot be applied: this node labels neither processes nor files (container: {container})"
    )]
    SeLinux { container: String },
    #[error("volumeDevices are not supported by this node (container: {container})")]
    VolumeDevices { container: String },
    #[error("{field} {value} is not a valid ID")]
    Id { field: &'static str, value: i64 },
}

/// Merges; the container's own settings win over the pod's.
pub(crate) fn merge(
    pod: &Pod,
    container: &Container,
    image_user: Option<&str>,
    profiles: &Path,
) -> Result<SecurityContext, SecurityError> {
    let of_pod = pod
        .spec_or_default()
        .security_context
        .clone()
        .unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = own.privileged.unwrap_or(false);
    let run_as_user = id("runAsUser", own.run_as_user.or(of_pod.run_as_user))?;
    let run_as_non_root = own
        .run_as_non_root
        .or(of_pod.run_as_non_root)
        .unwrap_or(false);
    if run_as_non_root {
        check_non_root(pod, container, run_as_user, image_user)?;
    }
    let strict_groups = of_pod.supplemental_groups_policy.as_deref() == Some("Strict");
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(of_pod.seccomp_profile.as_ref());
    let capabilities = own.capabilities.unwrap_or_default();
    let names = |list: Option<Vec<String>>| -> Vec<String> {
        list.into_iter()
            .flatten()
            .map(|name| name.to_uppercase().trim_start_matches("CAP_").to_owned())
            .collect()
    };
    Ok(SecurityContext {
        debug_target: None,
        privileged,
        image_user: image_user
            .filter(|user| !user.is_empty())
            .map(str::to_owned),
        run_as_user,
        run_as_group: id("runAsGroup", own.run_as_group.or(of_pod.run_as_group))?,
        run_as_non_root,
        supplemental_groups: supplemental_groups(&of_pod)?,
        strict_groups,
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        allow_privilege_escalation: own.allow_privilege_escalation,
        cap_add: names(capabilities.add),
        cap_drop: names(capabilities.drop),
        // As containerd has it: who is privileged is not confined, whatever profile is named.
        seccomp: if privileged {
            SeccompProfile::Unconfined
        } else {
            seccomp_profile(seccomp, profiles)
        },
        apparmor_profile: None,
    })
}

/// What the pod names, each once. `fsGroup` too: it owns the files of the pod's volumes.
fn supplemental_groups(of_pod: &PodSecurityContext) -> Result<Vec<u32>, SecurityError> {
    let named = of_pod.supplemental_groups.iter().flatten().copied();
    let mut groups = Vec::new();
    for group in named.chain(of_pod.fs_group) {
        if let Some(group) =
            id("supplementalGroups", Some(group))?.filter(|group| !groups.contains(group))
        {
            groups.push(group);
        }
    }
    Ok(groups)
}

/// Whether the kernel labels, so that a wish for a label means something.
pub(crate) fn selinux_enabled() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// Refuses what would otherwise be dropped without a word.
pub(crate) fn check_supported(
    pod: &Pod,
    container: &Container,
    selinux: bool,
) -> Result<(), SecurityError> {
    let own = container.security_context.as_ref();
    let name = || container.name.clone();
    let privileged = own.and_then(|own| own.privileged).unwrap_or(false);
    if own.and_then(|own| own.proc_mount.as_deref()) == Some("Unmasked") && !privileged {
        return Err(SecurityError::Unmasked { container: name() });
    }
    if selinux && wants_label(pod, container) && !privileged {
        return Err(SecurityError::SeLinux { container: name() });
    }
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|devices| !devices.is_empty())
    {
        return Err(SecurityError::VolumeDevices { container: name() });
    }
    Ok(())
}

/// Whether the container wants a label that it does not get: SELinux confines nothing that is
/// privileged, whatever label it names.
///
/// Source: `privileged` of `LinuxContainerSecurityContext` in `k8s.io/cri-api` `runtime/v1` at
/// v0.37.
pub(crate) fn drops_label(pod: &Pod, container: &Container, selinux: bool) -> bool {
    let privileged = container
        .security_context
        .as_ref()
        .and_then(|own| own.privileged)
        .unwrap_or(false);
    selinux && privileged && wants_label(pod, container)
}

fn wants_label(pod: &Pod, container: &Container) -> bool {
    let own = container
        .security_context
        .as_ref()
        .and_then(|own| own.se_linux_options.as_ref());
    let of_pod = pod.spec_or_default().security_context.as_ref();
    own.or(of_pod.and_then(|context| context.se_linux_options.as_ref()))
        .is_some()
}

fn seccomp_profile(profile: Option<&ApiSeccomp>, profiles: &Path) -> SeccompProfile {
    match profile.map(|profile| profile.type_.as_str()) {
        Some("Unconfined") => SeccompProfile::Unconfined,
        Some("Localhost") => {
            let name = profile
                .and_then(|p| p.localhost_profile.clone())
                .unwrap_or_default();
            SeccompProfile::Localhost(profiles.join(name))
        }
        _ => SeccompProfile::RuntimeDefault,
    }
}

fn check_non_root(
    pod: &Pod,
    container: &Container,
    run_as_user: Option<u32>,
    image_user: Option<&str>,
) -> Result<(), SecurityError> {
    let (pod, container) = (pod.display(), container.name.clone());
    match run_as_user {
        Some(0) => return Err(SecurityError::RunsAsRoot { pod, container }),
        Some(_) => return Ok(()),
        None => {}
    }
    let user = image_user
        .unwrap_or_default()
        .split(':')
        .next()
        .unwrap_or_default();
    match user.parse::<u32>() {
        _ if user.is_empty() => Err(SecurityError::ImageRunsAsRoot { pod, container }),
        Ok(0) => Err(SecurityError::ImageRunsAsRoot { pod, container }),
        Ok(_) => Ok(()),
        Err(_) => Err(SecurityError::UserUnknown {
            user: user.to_owned(),
            pod,
            container,
        }),
    }
}

fn id(field: &'static str, value: Option<i64>) -> Result<Option<u32>, SecurityError> {
    value
        .map(|value| u32::try_from(value).map_err(|_| SecurityError::Id { field, value }))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(
        pod: serde_json::Value,
        container: serde_json::Value,
        image_user: Option<&str>,
    ) -> Result<SecurityContext, SecurityError> {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]}}))
            .expect("pod");
        merge(
            &pod,
            &pod.containers()[0],
            image_user,
            Path::new("/profiles"),
        )
    }

    #[test]
    fn container_settings_win() {
        let got = merged(
            serde_json::json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4, 3], "seccompProfile": {"type": "Unconfined"}}),
            serde_json::json!({"runAsUser": 10, "capabilities": {"add": ["net_admin"], "drop": ["CAP_CHOWN"]}, "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}),
            Some("5"),
        )
        .expect("valid");
        assert_eq!((got.run_as_user, got.run_as_group), (Some(10), Some(2)));
        assert_eq!(got.supplemental_groups, [4, 3]);
        assert_eq!(
            (got.cap_add, got.cap_drop),
            (vec!["NET_ADMIN".to_owned()], vec!["CHOWN".to_owned()])
        );
        assert_eq!(
            got.seccomp,
            SeccompProfile::Localhost("/profiles/a.json".into())
        );
    }

    #[test]
    fn what_the_node_cannot_do_is_refused() {
        let check = |pod: serde_json::Value, container: serde_json::Value, selinux| {
            let pod: Pod = serde_json::from_value(serde_json::json!(
                {"spec": {"securityContext": pod, "containers": [container]}}))
            .expect("pod");
            check_supported(&pod, &pod.containers()[0], selinux).is_ok()
        };
        let (none, label) = (
            serde_json::json!({}),
            serde_json::json!({"seLinuxOptions": {"type": "t"}}),
        );
        let with = |context: &serde_json::Value| serde_json::json!({"name": "c", "securityContext": context});
        assert!(check(none.clone(), with(&none), true));
        assert!(
            check(label.clone(), with(&none), false),
            "without SELinux a label means nothing"
        );
        assert!(!check(label.clone(), with(&none), true));
        assert!(!check(none.clone(), with(&label), true));
        let privileged = serde_json::json!({"privileged": true, "seLinuxOptions": {"type": "t"}});
        assert!(
            check(none.clone(), with(&privileged), true),
            "SELinux does not confine it"
        );
        assert!(check(
            label.clone(),
            with(&serde_json::json!({"privileged": true})),
            true
        ));
        assert!(!check(
            none.clone(),
            with(&serde_json::json!({"procMount": "Unmasked"})),
            false
        ));
        assert!(check(
            none.clone(),
            with(&serde_json::json!({"procMount": "Default"})),
            false
        ));
        let device = serde_json::json!({"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]});
        assert!(!check(none, device, false));
    }

    #[test]
    fn a_label_that_a_privileged_container_does_not_get_is_told() {
        let dropped = |pod: serde_json::Value, container: serde_json::Value, selinux| {
            let pod: Pod = serde_json::from_value(serde_json::json!(
                {"spec": {"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]}}))
            .expect("pod");
            drops_label(&pod, &pod.containers()[0], selinux)
        };
        let (none, label) = (
            serde_json::json!({}),
            serde_json::json!({"seLinuxOptions": {"type": "t"}}),
        );
        let privileged = serde_json::json!({"privileged": true});
        assert!(dropped(label.clone(), privileged.clone(), true));
        assert!(
            !dropped(label.clone(), privileged.clone(), false),
            "without SELinux a label means nothing"
        );
        assert!(!dropped(none, privileged, true) && !dropped(label.clone(), label, true));
    }

    #[test]
    fn non_root_is_enforced() {
        let cases = [
            (serde_json::json!({"runAsUser": 0}), Some("5"), false),
            (serde_json::json!({"runAsUser": 7}), None, true),
            (serde_json::json!({}), None, false),
            (serde_json::json!({}), Some("0:0"), false),
            (serde_json::json!({}), Some("1000:0"), true),
            (serde_json::json!({}), Some("www-data"), false),
            (serde_json::json!({}), Some("4294967296"), false),
            (serde_json::json!({}), Some("-1"), false),
        ];
        for (container, user, ok) in cases {
            let got = merged(
                serde_json::json!({"runAsNonRoot": true}),
                container.clone(),
                user,
            );
            assert_eq!(got.is_ok(), ok, "{container} {user:?}");
        }
    }
}
