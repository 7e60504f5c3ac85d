//! Ports that a pod takes on its node.
//!
//! Source: `pkg/scheduler/framework/plugins/nodeports/node_ports.go` at v1.37.

use k8s_openapi::api::core::v1::PodSpec;

use super::is_sidecar;

/// A port that a pod takes on its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The node's address that it is taken on; empty for all of them.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Never 0.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be taken on one node: a wildcard address takes the port on all of them.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let wildcard = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || wildcard(&self.ip) || wildcard(&other.ip))
    }
}

/// The host ports of the containers and of the sidecars, which run beside them.
pub fn host_ports(spec: &PodSpec) -> impl Iterator<Item = HostPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| is_sidecar(container));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| {
        Some(HostPort {
            ip: port.host_ip.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sidecars_take_their_ports_and_other_init_containers_do_not() {
        let port = |number: i32| json!([{"containerPort": number, "hostPort": number}, {"containerPort": 9}]);
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                {"name": "once", "ports": port(1)},
                {"name": "side", "restartPolicy": "Always", "ports": port(2)},
            ],
            "containers": [{"name": "c", "ports": port(3)}],
        }))
        .expect("spec");
        assert_eq!(
            host_ports(&spec).map(|port| port.port).collect::<Vec<_>>(),
            [3, 2]
        );
    }

    #[test]
    fn host_ports_conflict_by_port_protocol_and_address() {
        let port = |ip: &str, protocol: &str, port| HostPort {
            ip: ip.to_owned(),
            protocol: protocol.to_owned(),
            port,
        };
        for (a, b, expect) in [
            (port("", "TCP", 80), port("", "TCP", 80), true),
            (port("", "TCP", 80), port("10.0.0.1", "TCP", 80), true),
            (port("0.0.0.0", "TCP", 80), port("::", "TCP", 80), true),
            (
                port("10.0.0.2", "TCP", 80),
                port("10.0.0.1", "TCP", 80),
                false,
            ),
            (port("", "TCP", 80), port("", "UDP", 80), false),
            (port("", "TCP", 80), port("", "TCP", 81), false),
        ] {
            assert_eq!(a.conflicts(&b), expect, "{a:?} {b:?}");
        }
    }
}
