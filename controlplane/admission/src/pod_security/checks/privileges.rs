//! What a pod's processes may do.
//!
//! Source: `check_privileged.go`, `check_capabilities_{baseline,restricted}.go`,
//! `check_allowPrivilegeEscalation.go`, `check_runAsNonRoot.go`, `check_runAsUser.go` and
//! `check_sysctls.go` in `k8s.io/pod-security-admission/policy` at v1.37.

use coracle_registry::value::{items, string};
use serde_json::Value;

use crate::pod_security::{
    pod::Pod,
    violation::Violation,
    words::{Told, bad_containers, containers, quoted, setters},
};

/// What containers have anyway.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(crate) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let bad = bad_containers(pod, |container| {
        container["securityContext"]["privileged"] == true
    });
    let who = setters(false, &bad)?;
    Some(Violation {
        reason: "privileged",
        detail: format!("{who} must not set securityContext.privileged=true"),
    })
}

// === capabilities ===

pub(crate) fn capabilities_beyond_default(pod: Pod<'_>) -> Option<Violation> {
    let mut added = Told::new();
    let bad = adding(pod, DEFAULT_CAPABILITIES, &mut added);
    let detail = must_not_add(&bad, &added)?;
    Some(Violation {
        reason: "non-default capabilities",
        detail,
    })
}

/// All are given up; the one for low ports may be taken back.
pub(crate) fn capabilities_kept(pod: Pod<'_>) -> Option<Violation> {
    let keeping = bad_containers(pod, |container| {
        let dropped = items(&container["securityContext"]["capabilities"]["drop"]);
        !dropped.iter().any(|one| one == "ALL")
    });
    let keeping = setters(false, &keeping)
        .map(|who| format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    let mut added = Told::new();
    let bad = adding(pod, &["NET_BIND_SERVICE"], &mut added);
    let details: Vec<String> = keeping
        .into_iter()
        .chain(must_not_add(&bad, &added))
        .collect();
    (!details.is_empty()).then(|| Violation {
        reason: "unrestricted capabilities",
        detail: details.join("; "),
    })
}

pub(crate) fn capabilities_kept_on_linux(pod: Pod<'_>) -> Option<Violation> {
    on_linux(pod, capabilities_kept)
}

fn adding<'a>(pod: Pod<'a>, allowed: &[&str], added: &mut Told<'a>) -> Vec<&'a str> {
    bad_containers(pod, |container| {
        let all = items(&container["securityContext"]["capabilities"]["add"]);
        let beyond = all.iter().map(string).filter(|one| !allowed.contains(one));
        let beyond: Vec<&str> = beyond.collect();
        added.extend(&beyond);
        !beyond.is_empty()
    })
}

fn must_not_add(bad: &[&str], added: &Told<'_>) -> Option<String> {
    let who = setters(false, bad)?;
    let added = quoted(added);
    Some(format!(
        "{who} must not include {added} in securityContext.capabilities.add"
    ))
}

// === root ===

pub(crate) fn escalation(pod: Pod<'_>) -> Option<Violation> {
    let bad = bad_containers(pod, |container| {
        container["securityContext"]["allowPrivilegeEscalation"] != false
    });
    let who = setters(false, &bad)?;
    Some(Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    })
}

pub(crate) fn escalation_on_linux(pod: Pod<'_>) -> Option<Violation> {
    on_linux(pod, escalation)
}

/// Whoever may turn out to be root.
pub(crate) fn maybe_root(pod: Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "runAsNonRoot";
    let of_pod = &pod.security_context()[FIELD];
    let violation = |detail| Violation {
        reason: "runAsNonRoot != true",
        detail,
    };
    let saying_so = bad_containers(pod, |container| {
        container["securityContext"][FIELD] == false
    });
    if let Some(who) = setters(*of_pod == false, &saying_so) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Some(violation(detail));
    }
    let silent = bad_containers(pod, |container| {
        *of_pod != true && container["securityContext"][FIELD].is_null()
    });
    (!silent.is_empty()).then(|| {
        let who = containers(&silent);
        violation(format!(
            "pod or {who} must set securityContext.runAsNonRoot=true"
        ))
    })
}

pub(crate) fn maybe_root_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    without_user_namespace(pod, maybe_root)
}

/// Whoever is root.
pub(crate) fn root(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let bad = bad_containers(pod, |container| is_root(&container["securityContext"]));
    let who = setters(is_root(pod.security_context()), &bad)?;
    Some(Violation {
        reason: "runAsUser=0",
        detail: format!("{who} must not set runAsUser=0"),
    })
}

pub(crate) fn root_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    without_user_namespace(pod, root)
}

/// Where the fields may be set at all.
pub(super) fn on_linux(pod: Pod<'_>, look: fn(Pod<'_>) -> Option<Violation>) -> Option<Violation> {
    if pod.is_windows() { None } else { look(pod) }
}

/// Where root is root.
pub(super) fn without_user_namespace(
    pod: Pod<'_>,
    look: fn(Pod<'_>) -> Option<Violation>,
) -> Option<Violation> {
    if pod.has_user_namespace() {
        None
    } else {
        look(pod)
    }
}

// === the kernel's settings ===

/// Each release's, the oldest first.
const SYSCTLS: [&[&str]; 5] = [
    &[
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    ],
    &["net.ipv4.ip_local_reserved_ports"],
    &[
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    ],
    &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"],
    &[
        "net.ipv4.tcp_slow_start_after_idle",
        "net.ipv4.tcp_notsent_lowat",
    ],
];

pub(crate) fn sysctls(pod: Pod<'_>) -> Option<Violation> {
    beyond(pod, &SYSCTLS[..1])
}

pub(crate) fn sysctls_of_27(pod: Pod<'_>) -> Option<Violation> {
    beyond(pod, &SYSCTLS[..2])
}

pub(crate) fn sysctls_of_29(pod: Pod<'_>) -> Option<Violation> {
    beyond(pod, &SYSCTLS[..3])
}

pub(crate) fn sysctls_of_32(pod: Pod<'_>) -> Option<Violation> {
    beyond(pod, &SYSCTLS[..4])
}

pub(crate) fn sysctls_of_37(pod: Pod<'_>) -> Option<Violation> {
    beyond(pod, &SYSCTLS)
}

fn beyond(pod: Pod<'_>, allowed: &[&[&str]]) -> Option<Violation> {
    let set = items(&pod.security_context()["sysctls"]).iter();
    let beyond: Vec<&str> = set
        .map(|sysctl| string(&sysctl["name"]))
        .filter(|name| !allowed.iter().any(|some| some.contains(name)))
        .collect();
    (!beyond.is_empty()).then(|| Violation {
        reason: "forbidden sysctls",
        detail: beyond.join(", "),
    })
}
