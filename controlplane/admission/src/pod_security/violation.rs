//! What a check has against a pod.

use super::pod::Pod;

/// One reason not to let a pod in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// Such as `hostPort`.
    pub(super) reason: &'static str,
    /// Such as `container "a" uses hostPort 80`.
    pub(super) detail: String,
}

/// A check: looks at a pod.
pub(super) type Look = fn(Pod<'_>) -> Option<Violation>;

/// Such as `host namespaces, privileged`; empty of nothing.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let all = violations.iter().map(|violation| violation.reason);
    all.collect::<Vec<_>>().join(", ")
}

/// Such as `host namespaces (hostPID=true), privileged (...)`; empty of nothing.
pub(super) fn details(violations: &[Violation]) -> String {
    let one = |violation: &Violation| format!("{} ({})", violation.reason, violation.detail);
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}
