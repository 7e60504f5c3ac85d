//! Who gets which addresses, and what is written and told of it.

mod plans;

use serde_json::json;

use super::{
    claims::{FINALIZER, Pending, assign, only_on},
    *,
};

fn node(name: &str, change: impl FnOnce(&mut Value)) -> Node {
    let last = name.trim_start_matches('n');
    let mut node = json!({"metadata": {"name": name, "labels": {}}, "status": {
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": format!("192.0.2.{last}")}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    change(&mut node);
    serde_json::from_value(node).unwrap()
}

fn pool(nodes: &[Node]) -> Pool {
    Pool::of(nodes.iter())
}

fn nodes(names: &[&str]) -> Pool {
    let nodes: Vec<Node> = names.iter().map(|name| node(name, |_| {})).collect();
    pool(&nodes)
}

/// Named by its place in the alphabet, and made as many seconds after the others as `age` says.
fn service(name: &str, age: u8, ports: &[u16], spec: Value) -> Service {
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| json!({"port": port, "protocol": "TCP"}))
        .collect();
    let mut service = json!({
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z")},
        "spec": {"type": "LoadBalancer", "ports": ports},
    });
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    serde_json::from_value(service).unwrap()
}

/// The last numbers of what each gets, or why it gets nothing.
fn check(services: &[Service], pool: &Pool, expect: &[(&str, &str)]) {
    check_beside(&[], services, pool, expect);
}

/// The same beside pods.
fn check_beside(pods: &[Pod], services: &[Service], pool: &Pool, expect: &[(&str, &str)]) {
    let claims = services
        .iter()
        .filter_map(|one| Claim::of(one, Served::Unclassed))
        .collect();
    let shares = assign(claims, pool, &Occupied::by(services.iter(), pods.iter()));
    let said: Vec<(String, String)> = shares
        .iter()
        .map(|(key, share)| (key.name.clone(), text(share)))
        .collect();
    let said: Vec<(&str, &str)> = said.iter().map(|(a, b)| (&**a, &**b)).collect();
    assert_eq!(said, expect);
}

fn text(share: &Share) -> String {
    match share {
        Ok(addresses) => {
            let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            all.join(" ").replace("192.0.2.", "")
        }
        Err(why) => why.to_string(),
    }
}

#[test]
fn nodes_that_are_ready_and_not_excluded_take_traffic() {
    let check = |change: &dyn Fn(&mut Value), expect: &str| {
        let nodes = [node("n1", |_| {}), node("n2", change)];
        let addresses: Vec<String> = pool(&nodes).addresses().map(|ip| ip.to_string()).collect();
        assert_eq!(addresses.join(" "), expect);
    };
    check(&|_| {}, "192.0.2.1 192.0.2.2");
    let not_ready = |node: &mut Value| node["status"]["conditions"][0]["status"] = json!("Unknown");
    check(&not_ready, "192.0.2.1");
    let silent = |node: &mut Value| node["status"]["conditions"] = json!([]);
    check(&silent, "192.0.2.1");
    let excluded = |node: &mut Value| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] =
            json!("");
    };
    check(&excluded, "192.0.2.1");
    let going = |node: &mut Value| {
        node["spec"] =
            json!({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]});
    };
    check(&going, "192.0.2.1");
    let chosen = |value: &'static str| {
        move |node: &mut Value| {
            node["metadata"]["labels"]["coracle.dev/load-balancer"] = json!(value);
        }
    };
    check(&chosen("true"), "192.0.2.2");
    check(&chosen("false"), "192.0.2.1");
    check(&chosen(""), "192.0.2.1 192.0.2.2");
    let deleted = |node: &mut Value| {
        node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    check(&deleted, "192.0.2.1");
    // Whoever chooses nodes does not mean the others, not even while it is down.
    let chosen_and_down = |node: &mut Value| {
        chosen("true")(node);
        not_ready(node);
    };
    check(&chosen_and_down, "");
    let external = |node: &mut Value| {
        node["status"]["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "ExternalIP", "address": "198.51.100.2"}));
    };
    check(&external, "192.0.2.1 198.51.100.2");
    // A family says nothing of the other.
    let external = |node: &mut Value| {
        node["status"]["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "ExternalIP", "address": "2001:db8::2"}));
    };
    check(&external, "192.0.2.1 192.0.2.2 2001:db8::2");
}

#[test]
fn a_port_of_an_address_is_the_oldest_ones() {
    let pool = nodes(&["n1", "n2"]);
    let taken = "no address of a node is free for all of its ports: Service ns/b has 80/TCP; choose other ports, or remove what has them";
    let old_and_new = [
        service("a", 2, &[80], json!({})),
        service("b", 1, &[80], json!({})),
        service("c", 3, &[443], json!({})),
    ];
    check(
        &old_and_new,
        &pool,
        &[("a", taken), ("b", "1 2"), ("c", "1 2")],
    );
    // Of one age: by name.
    let alike = [
        service("b", 1, &[80], json!({})),
        service("c", 1, &[80], json!({})),
    ];
    check(&alike, &pool, &[("b", "1 2"), ("c", taken)]);
    let udp = json!({"ports": [{"port": 80, "protocol": "UDP"}]});
    let other_protocol = [
        service("a", 1, &[80], json!({})),
        service("b", 2, &[80], udp),
    ];
    check(&other_protocol, &pool, &[("a", "1 2"), ("b", "1 2")]);
}

/// With these ports of addresses in its status.
fn holding(mut service: Service, ips: &[&str], ports: &[u16]) -> Service {
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| json!({"port": port, "protocol": "TCP"}))
        .collect();
    let ingress: Vec<Value> = ips
        .iter()
        .map(|ip| json!({"ip": ip, "ipMode": "VIP", "ports": ports}))
        .collect();
    service.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}})).unwrap();
    service
}

#[test]
fn who_has_a_port_keeps_it_against_older_ones() {
    let pool = nodes(&["n1", "n2"]);
    let (n1, n2) = ("192.0.2.1", "192.0.2.2");
    let young = || service("b", 9, &[443], json!({}));
    let taken = "no address of a node is free for all of its ports: Service ns/b has 443/TCP; choose other ports, or remove what has them";
    // Older as an object, and asks only now.
    let old = service("a", 1, &[443], json!({}));
    let services = [old.clone(), holding(young(), &[n1, n2], &[443])];
    check(&services, &pool, &[("a", taken), ("b", "1 2")]);
    // Has another port of the addresses.
    let adds = holding(service("a", 1, &[80, 443], json!({})), &[n1, n2], &[80]);
    let services = [adds, holding(young(), &[n1, n2], &[443])];
    check(&services, &pool, &[("a", taken), ("b", "1 2")]);
    // A node that was away comes back to who had the port.
    let services = [old.clone(), holding(young(), &[n2], &[443])];
    check(&services, &pool, &[("a", taken), ("b", "1 2")]);
    // What it asks for no longer is free.
    let moved = service("b", 9, &[8443], json!({}));
    let services = [old.clone(), holding(moved, &[n1, n2], &[443])];
    check(&services, &pool, &[("a", "1 2"), ("b", "1 2")]);
    // Without ports in the status it is all of them; without the finalizer, nothing.
    let services = [old.clone(), holding(young(), &[n1, n2], &[])];
    check(&services, &pool, &[("a", taken), ("b", "1 2")]);
    let mut forged = holding(young(), &[n1, n2], &[443]);
    forged.metadata.finalizers = None;
    let taken = taken.replace("ns/b", "ns/a");
    check(&[old, forged], &pool, &[("a", "1 2"), ("b", &*taken)]);
}

#[test]
fn a_node_port_is_its_own_services() {
    let pool = nodes(&["n1"]);
    let own = json!({"ports": [{"port": 30080, "nodePort": 30080}]});
    let of_another = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30443}]});
    let services = [
        service("a", 1, &[], own),
        holding(
            service("b", 2, &[30443], json!({})),
            &["192.0.2.1"],
            &[30443],
        ),
        service("c", 3, &[], of_another),
    ];
    let taken = "no address of a node is free for all of its ports: Service ns/c has the node port 30443/TCP; choose other ports, or remove what has them";
    check(&services, &pool, &[("a", "1"), ("b", taken)]);
}

#[test]
fn a_host_port_is_its_pods() {
    let pool = nodes(&["n1", "n2"]);
    let pod = |node: &str, phase: &str, port: Value| {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "ports": [port]}]});
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value::<Pod>(pod).unwrap()
    };
    let port = |number: u16| json!({"containerPort": 80, "hostPort": number});
    let holds = || {
        let web = service("a", 1, &[80, 443], json!({}));
        holding(web, &["192.0.2.1", "192.0.2.2"], &[80, 443])
    };
    let check =
        |pods: &[Pod], expect: &str| check_beside(pods, &[holds()], &pool, &[("a", expect)]);
    let on_second = pod("n2", "Running", port(443));
    check(std::slice::from_ref(&on_second), "1");
    let taken = "no address of a node is free for all of its ports: Pod ns/p has the host port 443/TCP; choose other ports, or remove what has them";
    check(&[on_second, pod("n1", "Pending", port(443))], taken);
    let of_nobody = [
        pod("n2", "Failed", port(443)),
        pod("", "Pending", port(443)),
        pod("n2", "Running", port(8443)),
        pod("n2", "Running", json!({"containerPort": 443})),
        pod(
            "n2",
            "Running",
            json!({"containerPort": 80, "hostPort": 443, "protocol": "UDP"}),
        ),
        pod(
            "n2",
            "Running",
            json!({"containerPort": 80, "hostPort": 443, "hostIP": "127.0.0.1"}),
        ),
    ];
    check(&of_nobody, "1 2");
    let here = json!({"containerPort": 80, "hostPort": 443, "hostIP": "192.0.2.2"});
    check(&[pod("n2", "Running", here)], "1");
}

#[test]
fn an_address_serves_all_ports_of_a_service_or_none() {
    let pool = nodes(&["n1", "n2"]);
    let pinned = json!({"loadBalancerIP": "192.0.2.1"});
    let services = [
        service("a", 1, &[80], pinned),
        service("b", 2, &[80, 443], json!({})),
        // What b does not get is free, and what it gets is not.
        service("c", 3, &[443], json!({})),
        service("d", 4, &[443], json!({})),
    ];
    let taken = "no address of a node is free for all of its ports: Service ns/b has 443/TCP, Service ns/c has 443/TCP; choose other ports, or remove what has them";
    check(
        &services,
        &pool,
        &[("a", "1"), ("b", "2"), ("c", "1"), ("d", taken)],
    );
}

#[test]
fn an_address_of_no_node_is_refused() {
    let pinned = |ip: &str| [service("a", 1, &[80], json!({"loadBalancerIP": ip}))];
    let pool = nodes(&["n1", "n2"]);
    check(&pinned("192.0.2.2"), &pool, &[("a", "2")]);
    check(&pinned(""), &pool, &[("a", "1 2")]);
    for wrong in ["192.0.2.9", "none"] {
        let said = format!(
            "spec.loadBalancerIP {wrong} is the address of no node that takes traffic of load balancers; set one of 192.0.2.1, 192.0.2.2, or leave it out"
        );
        check(&pinned(wrong), &pool, &[("a", &*said)]);
    }
    let none = "There are no available nodes for LoadBalancer";
    check(&pinned("192.0.2.2"), &Pool::default(), &[("a", none)]);
}

#[test]
fn addresses_are_of_the_families_of_the_service() {
    let both = node("n1", |node| {
        node["status"]["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "InternalIP", "address": "2001:db8::1"}));
    });
    let of = |families: &[&str]| [service("a", 1, &[80], json!({"ipFamilies": families}))];
    let pool = pool(&[both]);
    check(&of(&["IPv4"]), &pool, &[("a", "1")]);
    check(&of(&["IPv6"]), &pool, &[("a", "2001:db8::1")]);
    check(&of(&["IPv4", "IPv6"]), &pool, &[("a", "1 2001:db8::1")]);
}

#[test]
fn whoever_has_another_class_or_type_or_goes_asks_for_nothing() {
    let asks = |change: Value| {
        let mut service = json!(service("a", 1, &[80], json!({})));
        for (pointer, value) in change.as_object().unwrap() {
            let (at, field) = pointer.split_once('.').unwrap();
            service[at][field] = value.clone();
        }
        Claim::of(&serde_json::from_value(service).unwrap(), Served::Unclassed).is_some()
    };
    assert!(asks(json!({})));
    assert!(asks(json!({"spec.loadBalancerClass": "coracle.dev/node"})));
    assert!(!asks(json!({"spec.loadBalancerClass": "example.org/a"})));
    assert!(!asks(json!({"spec.type": "NodePort"})));
    assert!(!asks(
        json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"})
    ));
}

#[test]
fn local_traffic_comes_to_nodes_with_endpoints() {
    let pool = nodes(&["n1", "n2", "n3"]);
    let all = || Ok(pool.addresses().collect());
    let on = |names: &[&str]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        only_on(all(), &pool, &names)
    };
    assert_eq!(text(&on(&["n3", "n1", "n9"])), "1 3");
    assert_eq!(on(&["n9"]), Err(Pending::NoEndpoints));
    let refused = only_on(Err(Pending::NoNodes), &pool, &BTreeSet::new());
    assert_eq!(refused, Err(Pending::NoNodes));
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [
        {"addresses": ["10.42.0.1"], "nodeName": "n1", "conditions": {"ready": true}},
        {"addresses": ["10.42.0.2"], "nodeName": "n2", "conditions": {"ready": false}},
        {"addresses": ["10.42.0.3"], "nodeName": "n3"},
        {"addresses": ["10.42.0.4"]}]});
    let ready = ready_nodes(&serde_json::from_value(slice).unwrap());
    assert!(ready.iter().eq(["n1", "n3"]), "{ready:?}");
}
