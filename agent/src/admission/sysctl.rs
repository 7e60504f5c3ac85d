//! Which sysctls a pod may have. Pure.
//!
//! Only those of a pod's own namespaces may be set at all, and of these without being asked only
//! those that cannot harm another pod. Source: `pkg/kubelet/sysctl/{allowlist,safe_sysctls}.go`,
//! `k8s.io/component-helpers/node/util/sysctl` at v1.37.

use std::{collections::BTreeSet, fmt};

/// Kubernetes' safe set.
const SAFE: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Of which namespace a sysctl is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "ipc",
            Self::Net => "net",
        })
    }
}

fn namespace(name: &str) -> Option<Namespace> {
    let ipc = name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|p| name.starts_with(p));
    if ipc {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

/// The form with dots. Whichever of `.` and `/` comes first separates; the other one is the other
/// one's literal.
pub(crate) fn normalize(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

/// A pattern of `--allowed-unsafe-sysctls` that cannot be meant.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the sysctls {0:?} are not known to be namespaced")]
pub(crate) struct NotNamespaced(pub(crate) String);

/// Which namespaces of the host a pod uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostNamespaces {
    pub(crate) network: bool,
    pub(crate) ipc: bool,
}

/// The safe set and what the node's administrator allows beyond it: names, or prefixes that end in
/// `*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowList {
    names: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl AllowList {
    /// # Errors
    /// [`NotNamespaced`] for the first pattern that would reach beyond a pod's own namespaces.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, NotNamespaced> {
        let mut list = Self::default();
        for pattern in patterns {
            let normal = normalize(pattern.trim());
            let name = normal.strip_suffix('*').unwrap_or(&normal);
            if namespace(name).is_none() || name.contains('*') {
                return Err(NotNamespaced(pattern.clone()));
            }
            if normal.ends_with('*') {
                list.prefixes.push(name.to_owned());
            } else {
                list.names.insert(normal);
            }
        }
        Ok(list)
    }

    /// Whether a pod may set it.
    ///
    /// # Errors
    /// Upstream's words on why not.
    pub(crate) fn check(&self, name: &str, hosts: HostNamespaces) -> Result<(), String> {
        let name = normalize(name);
        let listed = SAFE.contains(&name.as_str())
            || self.names.contains(&name)
            || self
                .prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix.as_str()));
        let Some(namespace) = namespace(&name).filter(|_| listed) else {
            return Err(format!("{name:?} not allowlisted"));
        };
        let is_hosts = match namespace {
            Namespace::Ipc => hosts.ipc,
            Namespace::Net => hosts.network,
        };
        if is_hosts {
            Err(format!(
                "{name:?} not allowed with host {namespace} enabled"
            ))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Result<AllowList, NotNamespaced> {
        AllowList::new(
            &patterns
                .iter()
                .map(|pattern| (*pattern).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn only_safe_or_allowed_sysctls_of_own_namespaces_pass() {
        let allowed = list(&["kernel.msg*", "net/core/somaxconn"]).expect("patterns");
        const NONE: HostNamespaces = HostNamespaces {
            network: false,
            ipc: false,
        };
        const NETWORK: HostNamespaces = HostNamespaces {
            network: true,
            ..NONE
        };
        const IPC: HostNamespaces = HostNamespaces { ipc: true, ..NONE };
        for (name, hosts, expected) in [
            ("net.ipv4.tcp_syncookies", NONE, Ok(())),
            ("net/ipv4/tcp_syncookies", NONE, Ok(())),
            ("kernel.shm_rmid_forced", NETWORK, Ok(())),
            ("kernel.msgmax", NONE, Ok(())),
            ("net.core.somaxconn", IPC, Ok(())),
            (
                "net.core.somaxconn",
                NETWORK,
                Err("\"net.core.somaxconn\" not allowed with host net enabled"),
            ),
            (
                "kernel.msgmax",
                IPC,
                Err("\"kernel.msgmax\" not allowed with host ipc enabled"),
            ),
            (
                "kernel.core_pattern",
                NONE,
                Err("\"kernel.core_pattern\" not allowlisted"),
            ),
            (
                "kernel/core_pattern",
                NONE,
                Err("\"kernel.core_pattern\" not allowlisted"),
            ),
            (
                "kernel.shmmax",
                NONE,
                Err("\"kernel.shmmax\" not allowlisted"),
            ),
            (
                "net.ipv4.ip_forward",
                NONE,
                Err("\"net.ipv4.ip_forward\" not allowlisted"),
            ),
            (
                "vm.overcommit_memory",
                NONE,
                Err("\"vm.overcommit_memory\" not allowlisted"),
            ),
            ("", NONE, Err("\"\" not allowlisted")),
        ] {
            let got = allowed.check(name, hosts);
            assert_eq!(got, expected.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn the_nodes_own_sysctls_cannot_be_allowed() {
        for pattern in [
            "kernel.*",
            "*",
            "vm.overcommit_memory",
            "kernel.core_pattern",
            "",
            "net*",
            "fs.*",
            "net.*.x*",
        ] {
            assert!(list(&[pattern]).is_err(), "{pattern:?}");
        }
        for pattern in [
            "net.*",
            "kernel.shm*",
            "kernel.sem",
            "fs.mqueue.*",
            "net.ipv4.conf.eth0/1.forwarding",
        ] {
            assert!(list(&[pattern]).is_ok(), "{pattern:?}");
        }
    }

    #[test]
    fn slashes_and_dots_change_places() {
        for (name, expected) in [
            (
                "net.ipv4.conf.eth0/1.forwarding",
                "net.ipv4.conf.eth0/1.forwarding",
            ),
            (
                "net/ipv4/conf/eth0.1/forwarding",
                "net.ipv4.conf.eth0/1.forwarding",
            ),
            ("kernel", "kernel"),
        ] {
            assert_eq!(normalize(name), expected);
        }
    }
}
