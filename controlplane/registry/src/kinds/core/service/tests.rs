use super::*;
use crate::testing::{create_errors, created, update_errors, updated, with};

fn service() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}})
}

fn check(pointer: &str, value: Value, expect: &str) {
    assert_eq!(
        create_errors(&Service, with(&service(), pointer, value.clone())),
        expect,
        "{pointer} = {value}"
    );
}

#[test]
fn a_minimal_service_gets_upstreams_defaults() {
    let spec = created(&Service, service())["spec"].take();
    assert_eq!(
        spec,
        json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"app": "web"},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        })
    );
}

#[test]
fn types_have_their_own_defaults() {
    let typed =
        |kind: &str| created(&Service, with(&service(), "/spec/type", json!(kind)))["spec"].take();
    assert_eq!(typed("NodePort")["externalTrafficPolicy"], "Cluster");
    assert_eq!(typed("LoadBalancer")["allocateLoadBalancerNodePorts"], true);
    assert!(typed("ExternalName")["ipFamilies"].is_null());
    let sticky = created(
        &Service,
        with(&service(), "/spec/sessionAffinity", json!("ClientIP")),
    );
    assert_eq!(
        sticky["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"],
        10800
    );
    let headless = created(&Service, with(&service(), "/spec/clusterIP", json!("None")));
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "SingleStack");
    let foreign = created(&Service, json!({"spec": {"clusterIP": "None"}}));
    assert_eq!(foreign["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
}

#[test]
fn ports_are_checked() {
    check("/spec/ports", json!([]), "spec.ports: Required value");
    check(
        "/spec/ports",
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]),
        "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
    );
    check(
        "/spec/ports",
        json!([{"port": 80}, {"name": "b", "port": 81}]),
        "spec.ports[0].name: Required value",
    );
    check(
        "/spec/ports",
        json!([{"name": "b", "port": 80}, {"name": "b", "port": 81}]),
        "spec.ports[1].name: Duplicate value: \"b\"",
    );
    check(
        "/spec/ports",
        json!([{"port": 0, "targetPort": 1}]),
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
    );
    check(
        "/spec/ports",
        json!([{"port": 1, "protocol": "X"}]),
        "spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
    );
    check(
        "/spec/ports",
        json!([{"port": 1, "targetPort": "a_b"}]),
        "spec.ports[0].targetPort: Invalid value: \"a_b\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(
        "/spec/ports",
        json!([{"port": 1, "nodePort": 30000}]),
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    );
}

#[test]
fn services_are_checked() {
    check(
        "/spec/type",
        json!("X"),
        "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
    );
    check(
        "/spec/type",
        json!("ExternalName"),
        "spec.externalName: Required value",
    );
    check(
        "/spec/sessionAffinity",
        json!("X"),
        "spec.sessionAffinity: Unsupported value: \"X\": supported values: \"ClientIP\", \"None\"",
    );
    check(
        "/spec/clusterIP",
        json!("x"),
        "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    );
    check(
        "/spec/externalIPs",
        json!(["127.0.0.1"]),
        "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
    );
    check(
        "/spec/externalTrafficPolicy",
        json!("Local"),
        "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
    );
    check(
        "/spec/ipFamilies",
        json!(["IPv5"]),
        "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
    );
    assert_eq!(create_errors(&Service, service()), "");
}

/// A Service as it is stored once its address is reserved.
fn stored(kind: &str) -> Value {
    let mut old = created(&Service, with(&service(), "/spec/type", json!(kind)));
    old["spec"]["clusterIP"] = json!("10.0.0.7");
    old["spec"]["clusterIPs"] = json!(["10.0.0.7"]);
    if kind != "ClusterIP" {
        old["spec"]["ports"][0]["nodePort"] = json!(30001);
    }
    old
}

#[test]
fn the_address_stays() {
    let old = stored("ClusterIP");
    assert_eq!(
        updated(&Service, service(), &old)["spec"]["clusterIP"],
        "10.0.0.7"
    );
    assert_eq!(update_errors(&Service, service(), &old), "");
    assert_eq!(
        update_errors(
            &Service,
            with(&service(), "/spec/clusterIP", json!("10.0.0.8")),
            &old
        ),
        "spec.clusterIPs[0]: Invalid value: [\"10.0.0.8\"]: may not change once set"
    );
}

#[test]
fn node_ports_stay_with_their_ports() {
    let old = stored("NodePort");
    let new = with(&service(), "/spec/type", json!("NodePort"));
    assert_eq!(
        updated(&Service, new, &old)["spec"]["ports"][0]["nodePort"],
        30001
    );
    let to_cluster_ip = with(&old, "/spec/type", json!("ClusterIP"));
    let new = updated(&Service, to_cluster_ip.clone(), &old);
    assert!(new["spec"]["ports"][0]["nodePort"].is_null());
    assert!(new["spec"]["externalTrafficPolicy"].is_null());
    assert_eq!(update_errors(&Service, to_cluster_ip, &old), "");
}

#[test]
fn ports_that_go_or_come_without_one_of_the_nodes_go_with_the_type() {
    let mut old = stored("NodePort");
    old["spec"]["ports"] = json!([{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}]);
    let with_ports = |ports: Value| {
        let mut new = with(&old, "/spec/ports", ports);
        new["spec"]["type"] = json!("ClusterIP");
        update_errors(&Service, new, &old)
    };
    assert_eq!(with_ports(json!([{"port": 81, "nodePort": 30002}])), "");
    let other = json!([{"name": "a", "port": 80, "nodePort": 30001}, {"name": "c", "port": 82}]);
    assert_eq!(with_ports(other), "");
    assert_eq!(
        with_ports(json!([{"port": 81, "nodePort": 30003}])),
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
    );
    // Who wants no more of them has kept those that there are.
    let balanced = stored("LoadBalancer");
    let new = with(
        &balanced,
        "/spec/allocateLoadBalancerNodePorts",
        json!(false),
    );
    let kept = updated(&Service, new, &balanced);
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], 30001);
}

#[test]
fn addresses_are_checked_together() {
    let of = |one: Value, all: Value| {
        let mut new = with(&service(), "/spec/clusterIP", one);
        new["spec"]["clusterIPs"] = all;
        create_errors(&Service, new)
    };
    let at = "spec.clusterIPs: Invalid value";
    let [a, b] = ["10.0.0.7", "10.0.0.8"];
    for (one, all, said) in [
        (
            json!(a),
            json!([b]),
            format!("{at}: [\"{b}\"]: first value must match `clusterIP`"),
        ),
        (
            Value::Null,
            json!([a]),
            format!("{at}: [\"{a}\"]: must be empty when `clusterIP` is not specified"),
        ),
        (
            json!("None"),
            json!(["None", a]),
            format!("{at}: [\"None\",\"{a}\"]: 'None' must be the first and only value"),
        ),
        (
            json!(a),
            json!([a, b]),
            format!("{at}: [\"{a}\",\"{b}\"]: may specify no more than one IP for each IP family"),
        ),
    ] {
        let found = of(one, all);
        assert!(found.contains(&said), "{found}");
    }
}

#[test]
fn becoming_an_external_name_gives_up_the_address() {
    let old = stored("ClusterIP");
    let mut new = with(&old, "/spec/type", json!("ExternalName"));
    new["spec"]["externalName"] = json!("example.com");
    let result = updated(&Service, new.clone(), &old);
    assert!(result["spec"]["clusterIP"].is_null());
    assert_eq!(update_errors(&Service, new.clone(), &old), "");
    // Who gives it up as well is asked for no more than that.
    for field in ["clusterIP", "clusterIPs"] {
        new["spec"][field] = Value::Null;
    }
    let result = updated(&Service, new.clone(), &old);
    assert!(result["spec"]["ipFamilies"].is_null());
    assert_eq!(update_errors(&Service, new, &old), "");
}

#[test]
fn rows_show_type_addresses_and_ports() {
    let row = |service: &Value| json!(Service.row(service, 0));
    let service = stored("NodePort");
    assert_eq!(
        row(&service),
        json!([
            "web",
            "NodePort",
            "10.0.0.7",
            "<none>",
            "80:30001/TCP",
            "<unknown>",
            "app=web"
        ])
    );
    let mut balanced = stored("LoadBalancer");
    assert_eq!(row(&balanced)[3], "<pending>");
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}});
    assert_eq!(row(&balanced)[3], "1.2.3.4");
    let external = json!({"metadata": {"name": "x"}, "spec": {"type": "ExternalName", "externalName": "example.com"}});
    assert_eq!(
        row(&external),
        json!([
            "x",
            "ExternalName",
            "<none>",
            "example.com",
            "<none>",
            "<unknown>",
            "<none>"
        ])
    );
}

#[test]
fn who_may_come_through_a_load_balancer_is_checked() {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let balanced = with(&service(), "/spec/type", json!("LoadBalancer"));
    let field = "/spec/loadBalancerSourceRanges";
    let of = |ranges: Value| create_errors(&Service, with(&balanced, field, ranges));
    assert_eq!(of(json!([" 10.0.0.0/8 ", "fd00::/8"])), "");
    let at = "spec.LoadBalancerSourceRanges";
    assert_eq!(
        of(json!(["10.0.0.0"])),
        format!(
            "{at}[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )
    );
    assert_eq!(
        of(json!(["10.0.0.1/8"])),
        format!(
            "{at}[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length"
        )
    );
    check(
        field,
        json!(["10.0.0.0/8"]),
        &format!("{at}: Forbidden: may only be used when `type` is 'LoadBalancer'"),
    );
    let annotated =
        |base: &Value, text: &str| with(base, "/metadata/annotations", json!({ANNOTATION: text}));
    assert_eq!(
        create_errors(&Service, annotated(&balanced, "10.0.0.0/8, 10.1.0.0/16")),
        ""
    );
    assert_eq!(create_errors(&Service, annotated(&balanced, " ")), "");
    assert_eq!(
        create_errors(&Service, annotated(&balanced, "all")),
        format!(
            "metadata.annotations[{ANNOTATION}]: Invalid value: \"all\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )
    );
    assert_eq!(
        create_errors(&Service, annotated(&service(), "10.0.0.0/8")),
        format!(
            "metadata.annotations[{ANNOTATION}]: Forbidden: may only be used when `type` is 'LoadBalancer'"
        )
    );
    for old in [
        with(&balanced, field, json!(["odd"])),
        annotated(&balanced, "odd"),
    ] {
        let old = created(&Service, old);
        assert_eq!(
            update_errors(&Service, old.clone(), &old),
            "",
            "what is there may stay"
        );
    }
}

#[test]
fn a_load_balancer_keeps_its_class_and_its_health_port() {
    let mut balanced = with(&service(), "/spec/type", json!("LoadBalancer"));
    balanced["spec"]["externalTrafficPolicy"] = json!("Local");
    balanced["spec"]["healthCheckNodePort"] = json!(31000);
    balanced["spec"]["loadBalancerClass"] = json!("example.org/a");
    let old = created(&Service, balanced);
    assert_eq!(create_errors(&Service, old.clone()), "");
    for (pointer, value, expect) in [
        (
            "/spec/loadBalancerClass",
            json!("example.org/b"),
            "spec.loadBalancerClass: Invalid value: \"example.org/b\": may not change once set",
        ),
        (
            "/spec/healthCheckNodePort",
            json!(31001),
            "spec.healthCheckNodePort: Forbidden: field is immutable",
        ),
        ("/spec/healthCheckNodePort", json!(null), ""),
        ("/spec/externalTrafficPolicy", json!("Cluster"), ""),
    ] {
        let new = with(&old, pointer, value);
        assert_eq!(
            update_errors(&Service, new.clone(), &old),
            expect,
            "{pointer}"
        );
    }
    check(
        "/spec/healthCheckNodePort",
        json!(31000),
        "spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
    );
}
