//! Who gets which addresses, and what is written and told of it.

use serde_json::json;

use super::{
    claims::{Pending, assign, only_on},
    plan::{FINALIZER, plan},
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
    let claims = services.iter().filter_map(Claim::of).collect();
    let shares = assign(claims, pool);
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
    check(&chosen("false"), "192.0.2.1 192.0.2.2");
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
        Claim::of(&serde_json::from_value(service).unwrap()).is_some()
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

/// What `share` has written and told, as `before > patch > after | pending`.
fn check_plan(change: Value, share: Option<Share>, expect: &str) {
    let mut service = json!(service("a", 1, &[80], json!({})));
    for (field, value) in change.as_object().unwrap() {
        match (&mut service[field], value) {
            (Value::Object(known), Value::Object(more)) => known.extend(more.clone()),
            (known, value) => *known = value.clone(),
        }
    }
    let plan = plan(&serde_json::from_value(service).unwrap(), share.as_ref());
    let reason = |told: Option<Told>| told.map(|told| told.reason).unwrap_or_default();
    let patch = plan.patch.map(|patch| {
        let ingress = &patch["status"]["loadBalancer"]["ingress"];
        let ips: Vec<&str> = ingress
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                assert_eq!(one["ipMode"], "VIP");
                one["ip"].as_str().unwrap()
            })
            .collect();
        format!("{} {ips:?}", patch["metadata"]["finalizers"])
    });
    let said = format!(
        "{} > {} > {} | {}",
        reason(plan.before),
        patch.unwrap_or_default(),
        reason(plan.after),
        reason(plan.pending)
    );
    assert_eq!(said, expect);
}

#[test]
fn what_differs_is_written_with_the_finalizer() {
    let one = || Some(Ok(vec!["192.0.2.1".parse().unwrap()]));
    let status = |ips: &[&str]| {
        let ingress: Vec<Value> = ips
            .iter()
            .map(|ip| json!({"ip": ip, "ipMode": "VIP"}))
            .collect();
        json!({"loadBalancer": {"ingress": ingress}})
    };
    let with = |finalizers: &[&str], status: Value| json!({"metadata": {"finalizers": finalizers}, "status": status});
    let ours = format!("[\"{FINALIZER}\"]");
    check_plan(
        json!({}),
        one(),
        &format!("EnsuringLoadBalancer > {ours} [\"192.0.2.1\"] > EnsuredLoadBalancer | "),
    );
    check_plan(
        with(&["x"], json!({})),
        one(),
        &format!(
            "EnsuringLoadBalancer > [\"x\",\"{FINALIZER}\"] [\"192.0.2.1\"] > EnsuredLoadBalancer | "
        ),
    );
    check_plan(
        with(&[FINALIZER], status(&["192.0.2.1"])),
        one(),
        " >  >  | ",
    );
    check_plan(
        with(&[FINALIZER], status(&["192.0.2.1", "192.0.2.2"])),
        one(),
        &format!(" > {ours} [\"192.0.2.1\"] > UpdatedLoadBalancer | "),
    );
    // Pending ones have it too, as upstream.
    check_plan(
        json!({}),
        Some(Err(Pending::NoNodes)),
        &format!("EnsuringLoadBalancer > {ours} [] >  | UnAvailableLoadBalancer"),
    );
    check_plan(
        with(&[FINALIZER], json!({})),
        Some(Err(Pending::Taken(BTreeSet::new()))),
        " >  >  | SyncLoadBalancerFailed",
    );
}

#[test]
fn whoever_asks_no_longer_is_let_go_without_an_address() {
    let finalizers = json!({"finalizers": ["x", FINALIZER]});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let done = "DeletingLoadBalancer > [\"x\"] [] > DeletedLoadBalancer | ";
    let other_type =
        json!({"metadata": finalizers, "spec": {"type": "ClusterIP"}, "status": status});
    check_plan(other_type, None, done);
    let mut going = finalizers.clone();
    going["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check_plan(json!({"metadata": going, "status": status}), None, done);
    let nothing = " >  >  | ";
    check_plan(json!({"spec": {"type": "ClusterIP"}}), None, nothing);
    // Their class is others' business to the end.
    let of_others = json!({"metadata": going, "spec": {"loadBalancerClass": "example.org/a"}, "status": status});
    check_plan(of_others, None, nothing);
}
