//! Which entries have a port of the nodes together, and the port for health checks.

use super::*;

fn entry(protocol: &str, port: u16, node_port: Option<u16>) -> Value {
    let name = format!("{protocol}-{port}").to_lowercase();
    let mut entry = json!({"name": name, "port": port, "protocol": protocol});
    if let Some(node_port) = node_port {
        entry["nodePort"] = node_port.into();
    }
    entry
}

fn node_ports(service: &Value) -> Vec<u64> {
    let ports = meta::get_array(service, &["spec", "ports"]).iter();
    ports
        .map(|port| port["nodePort"].as_u64().unwrap_or(0))
        .collect()
}

#[tokio::test]
async fn tcp_and_udp_of_one_port_share_one_of_the_nodes() {
    let allocators = allocator(&started().await);
    let dns = json!([
        entry("UDP", 53, None),
        entry("TCP", 53, None),
        entry("TCP", 80, None)
    ]);
    let new = filled(&allocators, node_port("a", dns)).await;
    let given = node_ports(&new);
    assert!(given[0] == given[1] && given[0] != given[2], "{given:?}");
    // What one of them says is for both, wherever it stands; each may say something else.
    let chosen = json!([entry("UDP", 53, None), entry("TCP", 53, Some(30002))]);
    let new = filled(&allocators, node_port("a", chosen)).await;
    assert_eq!(node_ports(&new), [30002, 30002]);
    let two = json!([
        entry("UDP", 53, Some(30001)),
        entry("TCP", 53, Some(30002)),
        entry("SCTP", 53, None)
    ]);
    let new = filled(&allocators, node_port("a", two)).await;
    assert_eq!(node_ports(&new), [30001, 30002, 30001]);
}

#[tokio::test]
async fn an_update_keeps_what_is_shared_and_shares_what_comes() {
    let allocators = allocator(&started().await);
    let one = json!([entry("TCP", 53, None)]);
    let old = filled(&allocators, node_port("a", one)).await;
    let port = node_ports(&old)[0];
    let mut new = old.clone();
    let ports = new["spec"]["ports"].as_array_mut().unwrap();
    ports.push(entry("UDP", 53, None));
    let allocated = allocators.allocate(Some(&old), &mut new, Try::default());
    allocated.await.unwrap();
    assert_eq!(node_ports(&new), [port, port]);
    // From no node ports at all.
    let cluster_ip =
        json!({"type": "ClusterIP", "ports": [entry("TCP", 53, None), entry("UDP", 53, None)]});
    let old = filled(&allocators, service("b", cluster_ip)).await;
    let mut new = old.clone();
    new["spec"]["type"] = "NodePort".into();
    let allocated = allocators.allocate(Some(&old), &mut new, Try::default());
    allocated.await.unwrap();
    let given = node_ports(&new);
    assert!(given[0] == given[1] && given[0] != 0, "{given:?}");
}

#[tokio::test]
async fn no_protocol_gets_one_port_twice() {
    let allocators = allocator(&started().await);
    let stored = json!([entry("TCP", 53, Some(30001)), entry("UDP", 54, Some(30001))]);
    let old = node_port("a", stored);
    let mut new = old.clone();
    let ports = new["spec"]["ports"].as_array_mut().unwrap();
    ports.push(entry("UDP", 53, None));
    let allocated = allocators.allocate(Some(&old), &mut new, Try::default());
    allocated.await.unwrap();
    let given = node_ports(&new);
    assert_eq!(given[..2], [30001, 30001]);
    assert_ne!(given[2], 30001);
}

#[tokio::test]
async fn who_needs_none_gets_none_and_keeps_what_it_names() {
    let allocators = allocator(&started().await);
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
        "ports": [entry("TCP", 53, None), entry("TCP", 80, Some(30003))]});
    let new = filled(&allocators, service("a", spec)).await;
    assert_eq!(node_ports(&new), [0, 30003]);
}

#[tokio::test]
async fn a_load_balancer_whose_traffic_stays_gets_a_port_for_health_checks() {
    let kept = started().await;
    let allocators = allocator(&kept);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [entry("TCP", 80, None), entry("TCP", 81, Some(30002))]});
    let made = filled(&allocators, service("a", spec)).await;
    let health = made["spec"]["healthCheckNodePort"].as_u64().unwrap();
    assert!(
        (30000..=30003).contains(&health) && !node_ports(&made).contains(&health),
        "{made}"
    );
    write(&kept, made.clone()).await.unwrap();
    // It stays through changes, is given to one of an older release that has none, and drawn when
    // the policy comes to need it.
    let mut same = made.clone();
    let allocated = allocators.allocate(Some(&made), &mut same, Try::default());
    allocated.await.unwrap();
    assert_eq!(same, made);
    for (field, old) in [
        ("healthCheckNodePort", Value::Null),
        ("externalTrafficPolicy", json!("Cluster")),
    ] {
        let mut before = made.clone();
        before["metadata"]["name"] = "b".into();
        before["spec"]["ports"] = json!([]);
        before["spec"]["clusterIP"] = "".into();
        before["spec"]["healthCheckNodePort"] = Value::Null;
        let mut new = before.clone();
        before["spec"][field] = old;
        let allocated = allocators.allocate(Some(&before), &mut new, Try::default());
        allocated.await.unwrap();
        let other = new["spec"]["healthCheckNodePort"].as_u64().unwrap();
        assert_ne!(other, health, "{field}");
    }
}
