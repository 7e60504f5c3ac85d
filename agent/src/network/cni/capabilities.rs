//! What a plugin is told of a pod, if its configuration says that it wants to know. Pure.
//!
//! `ips` and `mac` are not among it: nothing of a pod names them. Source: `cniNamespaceOpts` in
//! containerd `internal/cri/server/sandbox_run.go` (2.x), `CONVENTIONS.md` of
//! containernetworking/cni.

use coracle_cni::conf::Bandwidth;
use serde_json::{Map, Value, json};

use crate::{
    network::{NetworkError, PodNetworkRequest, bandwidth},
    runtime::types::{PodDns, PortMapping},
};

const PORT_MAPPINGS: &str = "portMappings";
const BANDWIDTH: &str = "bandwidth";
/// Bits, as many as the runtimes of others ask for: what a plugin makes of it is its own affair.
const BURST: u64 = u32::MAX as u64;

/// Capabilities by name.
pub(super) type Capabilities = Map<String, Value>;

/// All that is known of a pod.
///
/// # Errors
/// [`NetworkError::Bandwidth`]: an annotation cannot be followed.
pub(super) fn of(request: &PodNetworkRequest) -> Result<Capabilities, NetworkError> {
    let mut all = without_bandwidth(request);
    let limits = bandwidth::of(&request.annotations)?;
    if limits != Bandwidth::default() {
        let burst = |rate: u64| if rate == 0 { 0 } else { BURST };
        let told = Bandwidth {
            ingress_burst: burst(limits.ingress_rate),
            egress_burst: burst(limits.egress_rate),
            ..limits
        };
        all.insert(BANDWIDTH.to_owned(), json!(told));
    }
    Ok(all)
}

/// For a pod that is to be detached, whatever its annotations say.
pub(super) fn at_most(request: &PodNetworkRequest) -> Capabilities {
    of(request).unwrap_or_else(|_| without_bandwidth(request))
}

/// Of an attachment from before anything else was told.
pub(super) fn of_ports(ports: &[PortMapping]) -> Capabilities {
    let mut all = Capabilities::new();
    if !ports.is_empty() {
        all.insert(
            PORT_MAPPINGS.to_owned(),
            ports.iter().map(mapping).collect(),
        );
    }
    all
}

/// The part of `all` that `plugin` asks for.
pub(super) fn asked_for(plugin: &Map<String, Value>, all: &Capabilities) -> Capabilities {
    let Some(Value::Object(asked)) = plugin.get("capabilities") else {
        return Capabilities::new();
    };
    let asked = asked.iter().filter(|(_, is)| **is == Value::Bool(true));
    asked
        .filter_map(|(name, _)| Some((name.clone(), all.get(name)?.clone())))
        .collect()
}

fn without_bandwidth(request: &PodNetworkRequest) -> Capabilities {
    let mut all = of_ports(&request.port_mappings);
    all.insert(
        "io.kubernetes.cri.pod-annotations".to_owned(),
        json!(request.annotations),
    );
    if request.dns != PodDns::default() {
        all.insert("dns".to_owned(), json!(request.dns));
    }
    if !request.cgroup_parent.is_empty() {
        all.insert("cgroupPath".to_owned(), json!(request.cgroup_parent));
    }
    all
}

fn mapping(port: &PortMapping) -> Value {
    json!({
        "hostPort": port.host_port, "containerPort": port.container_port,
        "protocol": port.protocol.to_ascii_lowercase(), "hostIP": port.host_ip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::types::{PodRef, PodUid, SandboxId};

    fn request() -> PodNetworkRequest {
        let annotation = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        PodNetworkRequest {
            sandbox_id: SandboxId("s".into()),
            pod: PodRef {
                namespace: "ns".into(),
                name: "p".into(),
                uid: PodUid("u".into()),
            },
            netns: "/ns".into(),
            port_mappings: vec![PortMapping {
                host_port: 1,
                container_port: 2,
                protocol: "UDP".into(),
                host_ip: String::new(),
            }],
            dns: PodDns {
                servers: vec!["10.96.0.10".into()],
                searches: vec!["svc.cluster.local".into()],
                options: vec!["ndots:5".into()],
            },
            cgroup_parent: "/kubepods/podu".into(),
            labels: [annotation("app", "web")].into(),
            annotations: [annotation("kubernetes.io/egress-bandwidth", "1M")].into(),
        }
    }

    #[test]
    fn a_plugin_hears_what_it_asks_for() {
        let all = of(&request()).unwrap();
        let plugin = json!({"type": "p", "capabilities": {
            "portMappings": true, "bandwidth": true, "dns": true, "cgroupPath": true,
            "io.kubernetes.cri.pod-annotations": true, "ips": true}});
        let told = asked_for(plugin.as_object().unwrap(), &all);
        let expected = json!({
            "portMappings": [{"hostPort": 1, "containerPort": 2, "protocol": "udp", "hostIP": ""}],
            "bandwidth": {"egressRate": 1_000_000, "egressBurst": 4_294_967_295_u64},
            "dns": {"servers": ["10.96.0.10"], "searches": ["svc.cluster.local"], "options": ["ndots:5"]},
            "cgroupPath": "/kubepods/podu",
            "io.kubernetes.cri.pod-annotations": {"kubernetes.io/egress-bandwidth": "1M"},
        });
        assert_eq!(Value::Object(told), expected);
        for asks_nothing in [
            json!({}),
            json!({"capabilities": {"dns": false, "bandwidth": "true"}}),
        ] {
            let told = asked_for(asks_nothing.as_object().unwrap(), &all);
            assert!(told.is_empty(), "{told:?}");
        }
    }

    #[test]
    fn a_limit_that_makes_no_sense_keeps_a_pod_from_its_start_only() {
        let mut odd = request();
        let limit = "kubernetes.io/ingress-bandwidth";
        odd.annotations.insert(limit.into(), "1".into());
        assert!(matches!(of(&odd), Err(NetworkError::Bandwidth { .. })));
        let left = at_most(&odd);
        assert!(left.contains_key("portMappings") && !left.contains_key("bandwidth"));
    }
}
