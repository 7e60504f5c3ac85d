//! The sysctls of a pod's namespaces. Pure.
//!
//! Those that its author asks for, and two that let containers of any user listen on every port of
//! the pod's own and ask for echoes: a pod's ports are nobody else's. Source:
//! `sandboxContainerSpec` in containerd `internal/cri/server/podsandbox/sandbox_run_linux.go`;
//! `enable_unprivileged_ports` and `enable_unprivileged_icmp` are on by default since 2.0.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::{admission::sysctl::normalize, pod::PodExt};

const ANY_PORT: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");
/// Every group.
const ANY_PING: (&str, &str) = ("net.ipv4.ping_group_range", "0 2147483647");

/// `groups` is `/proc/self/gid_map` of the agent.
pub(super) fn of(pod: &Pod, groups: &str) -> BTreeMap<String, String> {
    let spec = pod.spec_or_default();
    let security = spec.security_context.as_ref();
    let asked = security.and_then(|s| s.sysctls.as_ref());
    let asked = asked.into_iter().flatten();
    let mut sysctls: BTreeMap<String, String> =
        asked.map(|s| (s.name.clone(), s.value.clone())).collect();
    if pod.host_network() {
        return sysctls;
    }
    // The kernel takes no range with groups that the namespace does not have.
    let knows_all_groups = knows_all(groups) && spec.host_users != Some(false);
    let wanted = [Some(ANY_PORT), Some(ANY_PING).filter(|_| knows_all_groups)];
    for (name, value) in wanted.into_iter().flatten() {
        if !sysctls.keys().any(|own| normalize(own) == name) {
            sysctls.insert(name.to_owned(), value.to_owned());
        }
    }
    sysctls
}

/// Whether it is the map of the first user namespace.
fn knows_all(groups: &str) -> bool {
    groups.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: &str = "         0          0 4294967295\n";

    fn check(spec: serde_json::Value, groups: &str, expected: &[(&str, &str)]) {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let pod = serde_json::from_value(pod).unwrap();
        let expected = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(of(&pod, groups), expected.collect(), "{spec}");
    }

    fn asks(name: &str, value: &str) -> serde_json::Value {
        json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": value}]}})
    }

    #[test]
    fn any_user_of_a_pod_has_its_ports_and_pings_unless_its_author_says_otherwise() {
        let plain = json!({"containers": []});
        check(plain, ALL, &[ANY_PORT, ANY_PING]);
        let other = ("net.ipv4.tcp_syncookies", "0");
        check(asks(other.0, other.1), ALL, &[other, ANY_PORT, ANY_PING]);
        let own = ("net.ipv4.ip_unprivileged_port_start", "1024");
        check(asks(own.0, own.1), ALL, &[own, ANY_PING]);
        let own = ("net/ipv4/ping_group_range", "1 0");
        check(asks(own.0, own.1), ALL, &[own, ANY_PORT]);
    }

    #[test]
    fn the_nodes_namespace_stays_as_it_is_and_a_range_holds_known_groups() {
        check(json!({"containers": [], "hostNetwork": true}), ALL, &[]);
        let own_users = json!({"containers": [], "hostUsers": false});
        check(own_users, ALL, &[ANY_PORT]);
        check(json!({"containers": []}), "0 100000 65536\n", &[ANY_PORT]);
    }
}
