//! What the kernel keeps from a pod's processes.
//!
//! Source: `check_appArmorProfile.go`, `check_procMount_{baseline,restricted}.go`,
//! `check_seLinuxOptions.go` and `check_seccompProfile_{baseline,restricted}.go` in
//! `k8s.io/pod-security-admission/policy` at v1.37.

use std::collections::BTreeSet;

use coracle_api::status::quote;
use coracle_registry::value::string;
use serde_json::Value;

use super::privileges::{on_linux, without_user_namespace};
use crate::pod_security::{
    pod::Pod,
    violation::Violation,
    words::{Told, bad_containers, containers, plural, quoted, setters},
};

/// The profiles of AppArmor and seccomp that confine.
fn is_confining(profile: &Value) -> bool {
    matches!(string(&profile["type"]), "RuntimeDefault" | "Localhost")
}

/// Who names a profile in `field` that confines nothing, and which.
fn unconfined<'a>(pod: Pod<'a>, field: &str) -> (bool, Vec<&'a str>, Told<'a>) {
    let mut types = Told::new();
    let mut is_bad = |context: &'a Value| {
        let profile = &context[field];
        let is_bad = !profile.is_null() && !is_confining(profile);
        if is_bad {
            types.insert(string(&profile["type"]));
        }
        is_bad
    };
    let is_pod = is_bad(pod.security_context());
    let bad = bad_containers(pod, |container| is_bad(&container["securityContext"]));
    (is_pod, bad, types)
}

// === AppArmor ===

pub(crate) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let is_allowed = |profile: &str| {
        profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/")
    };
    let (is_pod, bad, types) = unconfined(pod, "appArmorProfile");
    let annotations: BTreeSet<String> = pod
        .annotations()
        .filter(|(key, profile)| key.starts_with(ANNOTATION) && !is_allowed(profile))
        .map(|(key, profile)| format!("{key}={}", quote(profile)))
        .collect();
    let of_annotations = (!annotations.is_empty())
        .then(|| plural(annotations.len(), "annotation", "annotations").to_owned());
    let setters: Vec<String> = setters(is_pod, &bad)
        .into_iter()
        .chain(of_annotations)
        .collect();
    let profiles: Vec<&str> = types
        .into_iter()
        .chain(annotations.iter().map(String::as_str))
        .collect();
    (!setters.is_empty()).then(|| Violation {
        reason: plural(
            profiles.len(),
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
        ),
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quoted(profiles)
        ),
    })
}

// === seccomp ===

/// As profiles were named until 1.19.
pub(crate) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    const OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let of_containers = pod
        .containers()
        .map(|container| format!("{OF_CONTAINER}{}", string(&container["name"])));
    let keys = std::iter::once(OF_POD.to_owned()).chain(of_containers);
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| {
            let profile = pod.annotation(&key)?;
            (!is_allowed(profile)).then(|| format!("{key}={}", quote(profile)))
        })
        .collect();
    (!forbidden.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "forbidden {} {}",
            plural(forbidden.len(), "annotation", "annotations"),
            forbidden.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// No profile is the runtime's.
pub(crate) fn seccomp_if_set(pod: Pod<'_>) -> Option<Violation> {
    let (is_pod, bad, types) = unconfined(pod, "seccompProfile");
    let who = setters(is_pod, &bad)?;
    let types = quoted(types);
    Some(Violation {
        reason: "seccompProfile",
        detail: format!("{who} must not set securityContext.seccompProfile.type to {types}"),
    })
}

/// No profile is none.
pub(crate) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "seccompProfile";
    if let Some(violation) = seccomp_if_set(pod) {
        return Some(violation);
    }
    let is_pod_confined = is_confining(&pod.security_context()[FIELD]);
    let silent = bad_containers(pod, |container| {
        !is_pod_confined && container["securityContext"][FIELD].is_null()
    });
    (!silent.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&silent)
        ),
    })
}

pub(crate) fn seccomp_on_linux(pod: Pod<'_>) -> Option<Violation> {
    on_linux(pod, seccomp)
}

// === /proc ===

/// Shown with what the runtime hides.
pub(crate) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut mounts = Told::new();
    let bad = bad_containers(pod, |container| {
        let mount = &container["securityContext"]["procMount"];
        let is_bad = !mount.is_null() && mount != "Default";
        if is_bad {
            mounts.insert(string(mount));
        }
        is_bad
    });
    let who = setters(false, &bad)?;
    let mounts = quoted(mounts);
    Some(Violation {
        reason: "procMount",
        detail: format!("{who} must not set securityContext.procMount to {mounts}"),
    })
}

pub(crate) fn proc_mount_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    without_user_namespace(pod, proc_mount)
}

// === SELinux ===

const SELINUX_TYPES: &[&str] = &[
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

pub(crate) fn selinux(pod: Pod<'_>) -> Option<Violation> {
    selinux_beyond(pod, &SELINUX_TYPES[..4])
}

pub(crate) fn selinux_with_engines(pod: Pod<'_>) -> Option<Violation> {
    selinux_beyond(pod, SELINUX_TYPES)
}

fn selinux_beyond(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut found = Labels::default();
    let is_pod = found.take(pod.security_context(), allowed);
    let bad = bad_containers(pod, |container| {
        found.take(&container["securityContext"], allowed)
    });
    let who = setters(is_pod, &bad)?;
    let what = found.told();
    Some(Violation {
        reason: "seLinuxOptions",
        detail: format!("{who} set forbidden securityContext.seLinuxOptions: {what}"),
    })
}

/// What nobody may label processes with.
#[derive(Default)]
struct Labels<'a> {
    types: Told<'a>,
    has_user: bool,
    has_role: bool,
}

impl<'a> Labels<'a> {
    /// Whether there is something of that.
    fn take(&mut self, context: &'a Value, allowed: &[&str]) -> bool {
        let field = |name: &str| string(&context["seLinuxOptions"][name]);
        let (user, role) = (!field("user").is_empty(), !field("role").is_empty());
        self.has_user |= user;
        self.has_role |= role;
        let kind = field("type");
        let is_other = !allowed.contains(&kind);
        if is_other {
            self.types.insert(kind);
        }
        user || role || is_other
    }

    fn told(&self) -> String {
        let mut told = Vec::new();
        if !self.types.is_empty() {
            let noun = plural(self.types.len(), "type", "types");
            told.push(format!("{noun} {}", quoted(&self.types)));
        }
        if self.has_user {
            told.push("user may not be set".to_owned());
        }
        if self.has_role {
            told.push("role may not be set".to_owned());
        }
        told.join("; ")
    }
}
