//! Checks of security contexts.
//!
//! Source: `ValidateSecurityContext`, `ValidatePodSecurityContext` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::BTreeSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::app_armor;
use crate::{
    check,
    value::{items, string},
};

const MAX_ID: i64 = i32::MAX as i64;

/// Longest name of a sysctl.
const MAX_SYSCTL_LEN: usize = 253;

/// Of a container, in a pod that has the node's users or its own.
pub(super) fn container(errors: &mut FieldErrors, path: &str, context: &Value, host_users: bool) {
    if !context.is_object() {
        return;
    }
    for id in ["runAsUser", "runAsGroup"] {
        check::in_range(errors, &format!("{path}.{id}"), &context[id], 0, MAX_ID);
    }
    let proc_path = format!("{path}.procMount");
    check::optional_one_of(
        errors,
        &proc_path,
        &context["procMount"],
        &["Default", "Unmasked"],
    );
    if host_users && context["procMount"] == "Unmasked" {
        errors.invalid(
            proc_path,
            &context["procMount"],
            "`hostUsers` must be false to use `Unmasked`",
        );
    }
    seccomp(errors, path, context);
    if context["allowPrivilegeEscalation"] == false {
        if context["privileged"] == true {
            let message = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path, context, message);
        }
        if items(&context["capabilities"]["add"])
            .iter()
            .any(|capability| capability == "CAP_SYS_ADMIN")
        {
            let message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path, context, message);
        }
    }
}

/// Of a pod.
pub(super) fn pod(errors: &mut FieldErrors, path: &str, spec: &Value, is_pod: bool) {
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            host_ports_match(errors, &format!("{path}.{list}"), &spec[list], is_pod);
        }
    }
    if spec["hostUsers"] == false {
        own_users(errors, path, spec);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let message = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(
            format!("{path}.shareProcessNamespace"),
            &spec["shareProcessNamespace"],
            message,
        );
    }
    let context = &spec["securityContext"];
    if !context.is_object() {
        return;
    }
    let path = format!("{path}.securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        check::in_range(errors, &format!("{path}.{id}"), &context[id], 0, MAX_ID);
    }
    for (index, group) in items(&context["supplementalGroups"]).iter().enumerate() {
        check::in_range(
            errors,
            &format!("{path}.supplementalGroups[{index}]"),
            group,
            0,
            MAX_ID,
        );
    }
    sysctls(
        errors,
        &format!("{path}.sysctls"),
        &context["sysctls"],
        spec,
    );
    let policy_path = format!("{path}.fsGroupChangePolicy");
    check::optional_one_of(
        errors,
        &policy_path,
        &context["fsGroupChangePolicy"],
        &["Always", "OnRootMismatch"],
    );
    let policy_path = format!("{path}.supplementalGroupsPolicy");
    check::optional_one_of(
        errors,
        &policy_path,
        &context["supplementalGroupsPolicy"],
        &["Merge", "Strict"],
    );
    seccomp(errors, &path, context);
}

/// In the node's network a container cannot listen elsewhere than it says.
fn host_ports_match(errors: &mut FieldErrors, path: &str, containers: &Value, is_pod: bool) {
    for (index, container) in items(containers).iter().enumerate() {
        for (port_index, port) in items(&container["ports"]).iter().enumerate() {
            let host_port = port["hostPort"].as_i64().unwrap_or(0);
            if (is_pod || host_port != 0) && Some(host_port) != port["containerPort"].as_i64() {
                let path = format!("{path}[{index}].ports[{port_index}].hostPort");
                errors.invalid(
                    path,
                    &host_port.into(),
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn sysctls(errors: &mut FieldErrors, path: &str, sysctls: &Value, spec: &Value) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in items(sysctls).iter().enumerate() {
        let path = format!("{path}[{index}].name");
        let name = with_dots(string(&sysctl["name"]));
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl_name(&name) {
            let message = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&path, &sysctl["name"], message);
        } else if !names.insert(name.clone()) {
            errors.duplicate(&path, &sysctl["name"]);
        }
        if spec["hostNetwork"] == true && name.starts_with("net.") {
            errors.invalid(
                &path,
                &sysctl["name"],
                "may not be specified when 'hostNetwork' is true",
            );
        }
        if spec["hostIPC"] == true
            && (name.starts_with("fs.mqueue.")
                || name.starts_with("kernel.shm")
                || name.starts_with("kernel.msg")
                || name == "kernel.sem")
        {
            errors.invalid(
                &path,
                &sysctl["name"],
                "may not be specified when 'hostIPC' is true",
            );
        }
    }
}

/// Dots separate. In a name whose first separator is a slash, slashes and dots have each other's
/// meaning.
fn with_dots(name: &str) -> String {
    let slashes_separate = name
        .find(['.', '/'])
        .is_some_and(|at| name.as_bytes()[at] == b'/');
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    if slashes_separate {
        name.chars().map(swap).collect()
    } else {
        name.to_owned()
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = |segment: &str| match segment.as_bytes() {
        [] => false,
        [only] => edge(*only),
        [first, middle @ .., last] => {
            edge(*first)
                && edge(*last)
                && middle
                    .iter()
                    .all(|byte| edge(*byte) || b"-_".contains(byte))
        }
    };
    name.len() <= MAX_SYSCTL_LEN && name.split(['.', '/']).all(good)
}

/// Users of its own go with namespaces of its own only.
fn own_users(errors: &mut FieldErrors, path: &str, spec: &Value) {
    // Upstream's paths, letter by letter.
    for (field, path_field) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec[field] == true {
            errors.forbidden(format!("{path}.{path_field}"), "when `hostUsers` is false");
        }
    }
}

/// `seccompProfile` and, of the same shape, `appArmorProfile`.
fn seccomp(errors: &mut FieldErrors, path: &str, context: &Value) {
    for (field, what) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let profile = &context[field];
        if !profile.is_object() {
            continue;
        }
        let path = format!("{path}.{field}");
        let local = &profile["localhostProfile"];
        let local_path = format!("{path}.localhostProfile");
        match string(&profile["type"]) {
            "Localhost" if !local.is_string() => {
                errors.required(
                    local_path,
                    format!("must be set when {what} type is Localhost"),
                );
            }
            "Localhost" if field == "seccompProfile" => {
                check::descending_path(errors, &local_path, local)
            }
            "Localhost" => app_armor::local_profile(errors, &local_path, local),
            "RuntimeDefault" | "Unconfined" if local.is_string() => {
                errors.invalid(
                    local_path,
                    local,
                    format!("can only be set when {what} type is Localhost"),
                );
            }
            "RuntimeDefault" | "Unconfined" => {}
            "" => errors.required(
                format!("{path}.type"),
                format!("type is required when {field} is set"),
            ),
            _ => errors.not_supported(
                format!("{path}.type"),
                &profile["type"],
                &["Localhost", "RuntimeDefault", "Unconfined"],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_names_follow_the_pattern_of_their_message() {
        for (name, good) in [
            ("a.b", true),
            ("kernel.shm_rmid_forced", true),
            ("net.ipv4.conf.eth0/1.forwarding", true),
            ("a", true),
            ("foo-", false),
            ("bar..", false),
            ("-a.b", false),
            ("a..b", false),
            ("a._b", false),
            ("Kernel.sem", false),
            (".", false),
            ("a b", false),
        ] {
            assert_eq!(is_sysctl_name(name), good, "{name:?}");
        }
        assert!(!is_sysctl_name(&"a".repeat(254)));
        assert_eq!(
            with_dots("net/ipv4/conf/eth0.1/forwarding"),
            "net.ipv4.conf.eth0/1.forwarding"
        );
    }
}
