//! What a client is told that cannot have what it asks for: code, field and text are upstream's.

use super::*;

const INVALID: &str = "Service \"x\" is invalid: ";
const INTERNAL: &str = "Internal error occurred: ";

fn balanced(spec: Value) -> Value {
    let mut all = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    let fields = spec.as_object().cloned().unwrap_or_default();
    all.as_object_mut().unwrap().extend(fields);
    service("x", all)
}

async fn told(allocators: &Allocators, mut new: Value, dry_run: bool) -> (u16, String) {
    let attempt = Try { lost: &[], dry_run };
    let refused = allocators.allocate(None, &mut new, attempt).await;
    let refused = refused.unwrap_err();
    (refused.code, refused.message)
}

#[tokio::test]
async fn a_chosen_one_that_cannot_be_had_is_told_in_upstreams_words() {
    let kept = started().await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30001}]});
    write(&kept, service("a", spec)).await.unwrap();
    let allocators = allocator(&kept);
    let ip = |ip: &str| service("x", json!({"clusterIP": ip, "ports": [{"port": 80}]}));
    let ports = |ports: Value| node_port("x", ports);
    let two = json!([{"port": 80, "name": "a", "nodePort": 30002}, {"port": 81, "name": "b", "nodePort": 30002, "protocol": "UDP"}]);
    let not_in_range =
        "provided port is not in the valid range. The range of valid ports is 30000-30003";
    for (new, code, said) in [
        (
            ip("10.96.0.9"),
            422,
            "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: failed to allocate IP 10.96.0.9: provided IP is already allocated".to_owned(),
        ),
        (
            ip("192.0.2.1"),
            422,
            "spec.clusterIPs: Invalid value: [\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: the provided network does not match the current range".to_owned(),
        ),
        (
            // The network's own.
            ip("10.96.0.0"),
            422,
            "spec.clusterIPs: Invalid value: [\"10.96.0.0\"]: failed to allocate IP 10.96.0.0: the provided network does not match the current range".to_owned(),
        ),
        (
            ports(json!([{"port": 80, "nodePort": 30001}])),
            422,
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated".to_owned(),
        ),
        (
            ports(json!([{"port": 80, "nodePort": 80}])),
            422,
            format!("spec.ports[0].nodePort: Invalid value: 80: {not_in_range}"),
        ),
        (
            ports(json!([{"port": 80, "nodePort": 99999}])),
            422,
            format!("spec.ports[0].nodePort: Invalid value: 99999: {not_in_range}"),
        ),
        (
            // The same number for another port.
            ports(two),
            422,
            "spec.ports[1].nodePort: Invalid value: 30002: provided port is already allocated".to_owned(),
        ),
        (
            balanced(json!({"healthCheckNodePort": 30001})),
            500,
            "failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated".to_owned(),
        ),
        (
            balanced(json!({"healthCheckNodePort": 30002, "ports": [{"port": 80, "nodePort": 30002}]})),
            500,
            "failed to allocate requested HealthCheck NodePort 30002: provided port is already allocated".to_owned(),
        ),
        (
            balanced(json!({"healthCheckNodePort": 80})),
            500,
            format!("failed to allocate requested HealthCheck NodePort 80: {not_in_range}"),
        ),
    ] {
        let prefix = if code == 422 { INVALID } else { INTERNAL };
        assert_eq!(
            told(&allocators, new, false).await,
            (code, format!("{prefix}{said}"))
        );
    }
}

#[tokio::test]
async fn a_dry_run_is_told_the_range() {
    let allocators = allocator(&started().await);
    for ip in ["192.0.2.1", "10.96.0.15"] {
        let new = service("x", json!({"clusterIP": ip, "ports": [{"port": 80}]}));
        let said = format!(
            "{INVALID}spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: the provided IP ({ip}) is not in the valid range. The range of valid IPs is 10.96.0.0/28"
        );
        assert_eq!(told(&allocators, new, true).await, (422, said));
    }
}

#[tokio::test]
async fn a_full_range_is_told_in_upstreams_words() {
    let kept = started().await;
    let allocators = allocator(&kept);
    for port in 30000..=30003_u16 {
        let ports = json!([{"port": 80, "nodePort": port}]);
        let new = filled(&allocators, node_port(&format!("s{port}"), ports)).await;
        write(&kept, new).await.unwrap();
    }
    assert_eq!(
        told(&allocators, node_port("x", json!([{"port": 80}])), false).await,
        (
            500,
            format!("{INTERNAL}failed to allocate a nodePort: range is full")
        )
    );
    assert_eq!(
        told(&allocators, balanced(json!({})), false).await,
        (
            500,
            format!("{INTERNAL}failed to allocate a HealthCheck NodePort 0: range is full")
        )
    );
    for n in 0..9 {
        let new = filled(
            &allocators,
            service(&format!("t{n}"), json!({"ports": [{"port": 80}]})),
        );
        write(&kept, new.await).await.unwrap();
    }
    assert_eq!(
        told(&allocators, service("x", json!({})), false).await,
        (
            500,
            format!("{INTERNAL}failed to allocate a serviceIP: range is full")
        )
    );
}
