//! The AppArmor profile of a container, from the pod's settings and its own. Which profiles the
//! kernel has is asked by [`kernel`]; [`resolve`] decides, purely. Loads no profile: that is the
//! machine's administrator's work.

use std::fs;

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use crate::pod::PodExt;

const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";
/// What container runtimes call their default profile, if one of them has loaded it here.
const DEFAULTS: [&str; 3] = [
    "cri-containerd.apparmor.d",
    "crio-default",
    "docker-default",
];

/// A profile that cannot be enforced: the waiting reason is `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum AppArmorError {
    #[error(
        "cannot enforce AppArmor: AppArmor is not enabled on the host (container: {container})"
    )]
    NotEnabled { container: String },
    #[error(
        "cannot enforce AppArmor: profile \"{profile}\" is not loaded (container: {container})"
    )]
    NotLoaded { profile: String, container: String },
}

/// Names of the profiles that the kernel has; `None` without AppArmor.
pub(crate) fn kernel() -> Option<Vec<String>> {
    fs::read_to_string(ENABLED)
        .ok()
        .filter(|text| text.starts_with('Y'))?;
    Some(parse(&fs::read_to_string(PROFILES).unwrap_or_default()))
}

/// `name (mode)` a line.
fn parse(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| Some(line.rsplit_once(" (")?.0.to_owned()))
        .collect()
}

/// What a container starts under.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The profile, if any.
    pub(crate) profile: Option<String>,
    /// `RuntimeDefault` was asked for by name, the kernel has AppArmor, and there is no such
    /// profile.
    pub(crate) lacks_default: bool,
}

/// The profile to start the container under. The kernel is asked only if one is wanted.
/// `RuntimeDefault` is that of another runtime of this machine: Coracle brings no profile of its
/// own.
pub(crate) fn resolve(
    pod: &Pod,
    container: &Container,
    kernel: impl FnOnce() -> Option<Vec<String>>,
) -> Result<Resolved, AppArmorError> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.as_ref());
    let of_pod = pod
        .spec_or_default()
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.as_ref());
    let Some(AppArmorProfile {
        type_,
        localhost_profile,
    }) = own.or(of_pod)
    else {
        return Ok(Resolved::default());
    };
    let name = || container.name.clone();
    let under = |profile: &str| Resolved {
        profile: Some(profile.to_owned()),
        lacks_default: false,
    };
    match (type_.as_str(), localhost_profile) {
        ("Localhost", Some(profile)) => match kernel() {
            None => Err(AppArmorError::NotEnabled { container: name() }),
            Some(loaded) if loaded.contains(profile) => Ok(under(profile)),
            Some(_) => Err(AppArmorError::NotLoaded {
                profile: profile.clone(),
                container: name(),
            }),
        },
        ("RuntimeDefault", _) => Ok(match kernel() {
            // Upstream's default profile, too, is none without AppArmor.
            None => Resolved::default(),
            Some(loaded) => match DEFAULTS
                .iter()
                .find(|default| loaded.iter().any(|profile| profile == *default))
            {
                Some(default) => under(default),
                None => Resolved {
                    profile: None,
                    lacks_default: true,
                },
            },
        }),
        _ => Ok(Resolved::default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(
        pod: &Value,
        own: &Value,
        kernel: Option<&[&str]>,
    ) -> Result<Option<String>, AppArmorError> {
        all(pod, own, kernel).map(|resolved| resolved.profile)
    }

    fn all(pod: &Value, own: &Value, kernel: Option<&[&str]>) -> Result<Resolved, AppArmorError> {
        let pod =
            serde_json::from_value(json!({"spec": {"containers": [], "securityContext": pod}}))
                .unwrap();
        let container =
            serde_json::from_value(json!({"name": "app", "securityContext": own})).unwrap();
        resolve(&pod, &container, || {
            kernel.map(|names| names.iter().map(|name| (*name).to_owned()).collect())
        })
    }

    fn localhost(name: &str) -> Value {
        json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}})
    }

    #[test]
    fn the_containers_own_profile_wins_and_must_be_loaded() {
        let (none, default) = (
            json!({}),
            json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
        );
        assert_eq!(resolved(&none, &none, None), Ok(None));
        assert_eq!(resolved(&localhost("a"), &default, None), Ok(None));
        assert_eq!(
            resolved(&localhost("a"), &localhost("b"), Some(&["b"])),
            Ok(Some("b".to_owned()))
        );
        assert_eq!(
            resolved(&localhost("a"), &none, Some(&["a"])),
            Ok(Some("a".to_owned()))
        );
        let container = || "app".to_owned();
        assert_eq!(
            resolved(&localhost("a"), &none, Some(&["b"])),
            Err(AppArmorError::NotLoaded {
                profile: "a".to_owned(),
                container: container()
            })
        );
        assert_eq!(
            resolved(&none, &localhost("a"), None),
            Err(AppArmorError::NotEnabled {
                container: container()
            })
        );
    }

    #[test]
    fn the_runtimes_default_is_used_or_missed() {
        let (none, default) = (
            json!({}),
            json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
        );
        for (kernel, profile, lacks_default) in [
            (None, None, false),
            (Some(&["x"][..]), None, true),
            (
                Some(&["x", "docker-default"][..]),
                Some("docker-default"),
                false,
            ),
        ] {
            let expected = Resolved {
                profile: profile.map(str::to_owned),
                lacks_default,
            };
            assert_eq!(all(&none, &default, kernel), Ok(expected), "{kernel:?}");
        }
        assert_eq!(
            all(&none, &none, Some(&["x"])),
            Ok(Resolved::default()),
            "nobody has asked"
        );
    }

    #[test]
    fn the_kernels_list_is_understood() {
        assert_eq!(
            parse("/usr/bin/man (enforce)\nlsb release (x) (complain)\n"),
            ["/usr/bin/man", "lsb release (x)"]
        );
    }
}
