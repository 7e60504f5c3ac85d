use serde_json::{Value, json};

use super::*;

fn service(value: &Value) -> Arc<SeenService> {
    Arc::new(serde_json::from_value(value.clone()).unwrap())
}

fn web() -> Value {
    json!({
        "metadata": {"namespace": "d", "name": "web"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"},
            {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]}
    })
}

fn slice(name: &str, endpoints: &Value) -> Arc<SeenSlice> {
    let object = json!({
        "metadata": {"namespace": "d", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    });
    let mut slice: SeenSlice = serde_json::from_value(object).unwrap();
    slice.part.locate("here");
    Arc::new(slice)
}

fn ready(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "here"})
}

/// The addresses behind the first port.
fn first_port(slices: &[Arc<SeenSlice>]) -> Vec<String> {
    let view = view(&service(&web()), slices, None).unwrap();
    view.ports[0]
        .cluster
        .iter()
        .map(|endpoint| endpoint.address.to_string())
        .collect()
}

#[test]
fn services_that_need_no_rules_are_none() {
    let edits: [fn(&mut Value); 5] = [
        |s| s["metadata"]["labels"] = json!({"service.kubernetes.io/headless": ""}),
        |s| s["spec"]["clusterIP"] = "None".into(),
        |s| s["spec"]["clusterIP"] = "".into(),
        |s| s["spec"]["type"] = "ExternalName".into(),
        |s| s["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"}),
    ];
    for edit in edits {
        let mut object = web();
        edit(&mut object);
        let part = &service(&object).part;
        assert_eq!(part.rules, None, "{object}");
    }
}

#[test]
fn conditions_choose_the_endpoints() {
    let conditions = |c: Value| json!({"addresses": ["10.0.0.9"], "conditions": c});
    let cases = [
        (
            json!([ready("10.0.0.2"), ready("10.0.0.1")]),
            vec!["10.0.0.1:8080", "10.0.0.2:8080"],
        ),
        (json!([{"addresses": ["10.0.0.1"]}]), vec!["10.0.0.1:8080"]),
        (json!([conditions(json!({"ready": false}))]), vec![]),
        // A terminating endpoint serves only when nobody else does.
        (
            json!([conditions(
                json!({"ready": false, "serving": true, "terminating": true})
            )]),
            vec!["10.0.0.9:8080"],
        ),
        (
            json!([
                ready("10.0.0.1"),
                conditions(json!({"ready": false, "serving": true, "terminating": true}))
            ]),
            vec!["10.0.0.1:8080"],
        ),
        (
            json!([conditions(
                json!({"ready": false, "serving": false, "terminating": true})
            )]),
            vec![],
        ),
        // A Service that publishes unready addresses says ready of every one.
        (
            json!([conditions(
                json!({"ready": true, "serving": false, "terminating": true})
            )]),
            vec!["10.0.0.9:8080"],
        ),
        // Known by one slice with a node and by another without: one endpoint, not twice the share.
        (
            json!([ready("10.0.0.1"), {"addresses": ["10.0.0.1"]}]),
            vec!["10.0.0.1:8080"],
        ),
    ];
    for (endpoints, expected) in cases {
        assert_eq!(
            first_port(&[slice("web-1", &endpoints)]),
            expected,
            "{endpoints}"
        );
    }
}

#[test]
fn slices_of_one_service_are_joined_without_duplicates() {
    let first = slice("web-1", &json!([ready("10.0.0.1")]));
    let second = slice("web-2", &json!([ready("10.0.0.2"), ready("10.0.0.1")]));
    assert_eq!(
        first_port(&[first, second]),
        ["10.0.0.1:8080", "10.0.0.2:8080"]
    );
}

fn elsewhere(address: &str) -> Value {
    let mut endpoint = ready(address);
    endpoint["nodeName"] = "there".into();
    endpoint
}

fn terminating(mut endpoint: Value) -> Value {
    endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    endpoint
}

#[test]
fn each_policy_has_endpoints_of_its_own() {
    let gone = json!({"addresses": ["10.0.0.7"], "nodeName": "here", "conditions": {"ready": false, "serving": false}});
    let cases = [
        (
            json!([ready("10.0.0.1"), elsewhere("10.0.0.2")]),
            vec![1, 2],
            vec![1],
            vec![1, 2],
        ),
        (json!([elsewhere("10.0.0.2")]), vec![2], vec![], vec![2]),
        // Here somebody is left who still answers, there somebody is ready: each policy has its own
        // fallback.
        (
            json!([terminating(ready("10.0.0.1")), elsewhere("10.0.0.2")]),
            vec![2],
            vec![1],
            vec![1, 2],
        ),
        (
            json!([terminating(ready("10.0.0.1")), ready("10.0.0.2")]),
            vec![2],
            vec![2],
            vec![1, 2],
        ),
        (json!([gone]), vec![], vec![], vec![]),
    ];
    for (endpoints, cluster, local, serving) in cases {
        let view = view(&service(&web()), &[slice("web-1", &endpoints)], None).unwrap();
        let octet = |ip: std::net::IpAddr| match ip {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => panic!("no IPv6 is taken"),
        };
        let last = |list: &[Endpoint]| {
            list.iter()
                .map(|e| octet(e.address.ip()))
                .collect::<Vec<_>>()
        };
        let port = &view.ports[0];
        assert_eq!(
            (last(&port.cluster), last(&port.local)),
            (cluster, local),
            "{endpoints}"
        );
        assert_eq!(
            port.serving.iter().map(|ip| octet(*ip)).collect::<Vec<_>>(),
            serving,
            "{endpoints}"
        );
    }
}

#[test]
fn policies_and_balancers_are_taken_from_the_service() {
    let mut object = web();
    object["spec"]["internalTrafficPolicy"] = "Local".into();
    object["spec"]["externalTrafficPolicy"] = "Local".into();
    object["spec"]["loadBalancerSourceRanges"] = json!([" 192.0.2.7/24", "2001:db8::/32"]);
    object["status"]["loadBalancer"]["ingress"] = json!([{"ip": "203.0.113.7", "ipMode": "Proxy"}, {"ip": "203.0.113.8", "ipMode": "VIP"}, {"ip": "203.0.113.9"}]);
    let rules = |object: &Value| service(object).part.rules.clone().unwrap();
    let spec = rules(&object);
    assert!(spec.internal_local && spec.external_local);
    // A balancer that proxies must see the traffic of the cluster, too.
    assert_eq!(
        spec.balancer_ips,
        [
            [203, 0, 113, 8].into(),
            std::net::IpAddr::from([203, 0, 113, 9])
        ]
    );
    assert_eq!(
        spec.source_ranges,
        Some(vec!["192.0.2.0/24".parse().unwrap()])
    );
    // Nobody of this family is allowed, which is not everybody.
    object["spec"]["loadBalancerSourceRanges"] = json!(["2001:db8::/32"]);
    assert_eq!(rules(&object).source_ranges, Some(vec![]));
    object["spec"]["loadBalancerSourceRanges"] = json!([]);
    assert_eq!(rules(&object).source_ranges, None);
}

#[test]
fn only_what_concerns_packets_is_news() {
    let edited = |edit: fn(&mut Value)| {
        let mut object = web();
        edit(&mut object);
        service(&object)
    };
    let plain = service(&web());
    let again = edited(|s| {
        s["metadata"] =
            json!({"namespace": "d", "name": "web", "resourceVersion": "7", "labels": {"a": "b"}})
    });
    let headless = edited(|s| s["spec"]["clusterIP"] = "None".into());
    let moved = edited(|s| s["spec"]["clusterIP"] = "10.96.0.2".into());
    let cases = [
        (Change::Added(&plain), true),
        (Change::Deleted(&plain), true),
        (
            Change::Updated {
                old: &plain,
                new: &again,
            },
            false,
        ),
        (
            Change::Updated {
                old: &plain,
                new: &moved,
            },
            true,
        ),
        (
            Change::Updated {
                old: &plain,
                new: &headless,
            },
            true,
        ),
        (
            Change::Updated {
                old: &headless,
                new: &plain,
            },
            true,
        ),
        (Change::Added(&headless), false),
    ];
    for (change, expected) in cases {
        assert_eq!(
            service_news(&change),
            expected.then(|| Key::new("d", "web")),
            "{change:?}"
        );
    }
}

#[test]
fn a_slice_is_news_for_the_service_that_it_was_of_and_the_one_that_it_is_of() {
    let plain = slice("web-1", &json!([ready("10.0.0.1")]));
    let [again, moved] = ["web", "api"].map(|service| {
        let mut slice = SeenSlice::clone(&plain);
        slice.metadata.resource_version = Some("7".into());
        slice.part.service = Some(service.into());
        Arc::new(slice)
    });
    let names = |change| {
        slice_news(&change)
            .into_iter()
            .map(|key| key.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(Change::Added(&plain)), ["web"]);
    assert!(
        names(Change::Updated {
            old: &plain,
            new: &again
        })
        .is_empty()
    );
    assert_eq!(
        names(Change::Updated {
            old: &plain,
            new: &moved
        }),
        ["api", "web"]
    );
}

/// Meant for these zones and nodes.
fn hinted(address: &str, zones: &[&str], nodes: &[&str]) -> Value {
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({"name": name}))
            .collect::<Value>()
    };
    let mut endpoint = elsewhere(address);
    endpoint["hints"] = json!({"forZones": named(zones), "forNodes": named(nodes)});
    endpoint
}

#[test]
fn traffic_stays_as_near_as_endpoints_are_meant_for() {
    let (all, near): (&[&str], &[&str]) = (&["10.0.0.1:8080", "10.0.0.2:8080"], &["10.0.0.1:8080"]);
    let (one, two) = ("10.0.0.1", "10.0.0.2");
    let zones = json!([hinted(one, &["a"], &[]), hinted(two, &["b"], &[])]);
    let nodes = json!([
        hinted(one, &["a"], &["here"]),
        hinted(two, &["a"], &["there"])
    ]);
    let others = json!([
        hinted(one, &["a"], &["there"]),
        hinted(two, &["b"], &["there"])
    ]);
    let partly = json!([hinted(one, &["a"], &[]), ready(two)]);
    let only_one_node = json!([hinted(one, &["a"], &["here"]), hinted(two, &["a"], &[])]);
    let mut unready = hinted(one, &["a"], &["here"]);
    unready["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    let gone = json!([unready, hinted(two, &["b"], &["there"])]);
    let table = [
        // Those of the own zone, or all where it has none, or is not known.
        (&zones, Some("a"), near),
        (&zones, Some("c"), all),
        (&zones, None, all),
        // The node is nearer than the zone, and the zone nearer than none.
        (&nodes, Some("a"), near),
        (&others, Some("a"), near),
        (&others, Some("c"), all),
        // One that is meant for nobody in particular is meant for everybody.
        (&partly, Some("a"), all),
        (&only_one_node, Some("a"), all),
        // What is going takes nothing while somebody is ready.
        (&gone, Some("a"), &["10.0.0.2:8080"]),
    ];
    for (endpoints, zone, expected) in table {
        let slice = slice("web-1", endpoints);
        let view = view(&service(&web()), &[slice], zone).unwrap();
        let addresses = view.ports[0].cluster.iter();
        let addresses: Vec<_> = addresses.map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, expected, "{zone:?} {endpoints}");
    }
}

#[test]
fn balancers_ask_by_a_port_where_traffic_stays_on_the_node() {
    let port = |policy: &str, port: u16| {
        let mut object = web();
        object["spec"]["externalTrafficPolicy"] = json!(policy);
        object["spec"]["healthCheckNodePort"] = json!(port);
        let part = service(&object).part.clone();
        part.rules.unwrap().health_port
    };
    assert_eq!(port("Local", 30900), Some(30900));
    assert_eq!(port("Local", 0), None);
    assert_eq!(port("Cluster", 30900), None);
}

#[test]
fn ready_addresses_of_this_node_count_once() {
    let elsewhere =
        json!({"addresses": ["10.42.0.9"], "conditions": {"ready": true}, "nodeName": "there"});
    let ending = json!({"addresses": ["10.42.0.3"], "nodeName": "here",
        "conditions": {"ready": false, "serving": true, "terminating": true}});
    let slices = [
        slice("a", &json!([ready("10.42.0.1"), elsewhere, ending])),
        slice("b", &json!([ready("10.42.0.1"), ready("10.42.0.2")])),
    ];
    assert_eq!(local_endpoints(&slices), 2);
}
