//! The Pod Security Standards: which check belongs to which level, since which release in which
//! form.
//!
//! Source: `k8s.io/pod-security-admission/policy/registry.go` at v1.37, and `Check...` of each
//! `check_*.go` there.

use super::{
    checks::{confinement, host, privileges, volumes},
    level::{Level, LevelVersion, Version},
    pod::Pod,
    violation::{Look, Violation},
};

/// A check as it has been since a release.
struct Form {
    since: u64,
    look: Look,
}

/// One rule of a level.
struct Check {
    /// Upstream's name, by which the checks of a level are ordered.
    id: &'static str,
    /// The oldest first.
    forms: &'static [Form],
    /// A check of `baseline` that it makes needless where it is.
    overrides: &'static str,
}

const fn since(minor: u64, look: Look) -> Form {
    Form { since: minor, look }
}

const fn check(id: &'static str, forms: &'static [Form]) -> Check {
    Check {
        id,
        forms,
        overrides: "",
    }
}

const fn instead_of(overrides: &'static str, id: &'static str, forms: &'static [Form]) -> Check {
    Check {
        id,
        forms,
        overrides,
    }
}

const BASELINE: &[Check] = &[
    check("appArmorProfile", &[since(0, confinement::app_armor)]),
    check(
        "capabilities_baseline",
        &[since(0, privileges::capabilities_beyond_default)],
    ),
    check("hostNamespaces", &[since(0, host::namespaces)]),
    check("hostPathVolumes", &[since(0, volumes::host_paths)]),
    check("hostPorts", &[since(0, host::ports)]),
    check("hostProbesAndHostLifecycle", &[since(34, host::handlers)]),
    check("privileged", &[since(0, privileges::privileged)]),
    check(
        "procMount",
        &[
            since(0, confinement::proc_mount),
            since(35, confinement::proc_mount_without_user_namespace),
        ],
    ),
    check(
        "seLinuxOptions",
        &[
            since(0, confinement::selinux),
            since(31, confinement::selinux_with_engines),
        ],
    ),
    check(
        "seccompProfile_baseline",
        &[
            since(0, confinement::seccomp_annotations),
            since(19, confinement::seccomp_if_set),
        ],
    ),
    check(
        "sysctls",
        &[
            since(0, privileges::sysctls),
            since(27, privileges::sysctls_of_27),
            since(29, privileges::sysctls_of_29),
            since(32, privileges::sysctls_of_32),
            since(37, privileges::sysctls_of_37),
        ],
    ),
    check("windowsHostProcess", &[since(0, host::processes)]),
];

const RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[
            since(8, privileges::escalation),
            since(25, privileges::escalation_on_linux),
        ],
    ),
    instead_of(
        "capabilities_baseline",
        "capabilities_restricted",
        &[
            since(22, privileges::capabilities_kept),
            since(25, privileges::capabilities_kept_on_linux),
        ],
    ),
    instead_of(
        "procMount",
        "procMount_restricted",
        &[since(35, confinement::proc_mount)],
    ),
    instead_of(
        "hostPathVolumes",
        "restrictedVolumes",
        &[since(0, volumes::types)],
    ),
    check(
        "runAsNonRoot",
        &[
            since(0, privileges::maybe_root),
            since(35, privileges::maybe_root_without_user_namespace),
        ],
    ),
    check(
        "runAsUser",
        &[
            since(23, privileges::root),
            since(35, privileges::root_without_user_namespace),
        ],
    ),
    instead_of(
        "seccompProfile_baseline",
        "seccompProfile_restricted",
        &[
            since(19, confinement::seccomp),
            since(25, confinement::seccomp_on_linux),
        ],
    ),
];

/// All that a level has against a pod: what is everybody's first, each by its check's name.
pub(super) fn violations(asked: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    in_force(asked).filter_map(|(_, look)| look(pod)).collect()
}

/// The names of the checks that a pod comes through, and how they look.
pub(super) fn in_force(asked: LevelVersion) -> impl Iterator<Item = (&'static str, Look)> {
    let minor = match asked.version {
        Version::Minor(minor) => minor,
        Version::Latest => u64::MAX,
    };
    let present = move |check: &&'static Check| {
        let look = check.forms.iter().rfind(|form| form.since <= minor)?.look;
        Some((check.id, look, check.overrides))
    };
    let of = |level: Level, checks: &'static [Check]| {
        let is_asked = asked.level >= level;
        checks.iter().filter(move |_| is_asked)
    };
    let restricted: Vec<_> = of(Level::Restricted, RESTRICTED)
        .filter_map(|check| present(&check))
        .collect();
    let overridden: Vec<&str> = restricted
        .iter()
        .map(|(_, _, overrides)| *overrides)
        .collect();
    of(Level::Baseline, BASELINE)
        .filter_map(move |check| present(&check))
        .filter(move |(id, ..)| !overridden.contains(id))
        .chain(restricted)
        .map(|(id, look, _)| (id, look))
}
