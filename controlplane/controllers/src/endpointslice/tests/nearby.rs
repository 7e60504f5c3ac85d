//! Whom endpoints are meant for: upstream's `trafficdist_test.go` and `topologycache_test.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::Endpoint;
use serde_json::{Value, json};

use super::*;
use crate::endpointslice::topology::{Ratios, ratios};

fn node(name: &str, zone: &str, cpu: &str) -> Arc<Node> {
    let object = json!({"metadata": {"name": name, "labels": {topology::ZONE: zone}},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]}});
    Arc::new(serde_json::from_value(object).unwrap())
}

type Nodes = BTreeMap<String, Arc<Node>>;

/// Pods on nodes of the same number, of which each is in the zone that is told.
fn placed(zones: &[&str]) -> (Vec<Arc<Pod>>, Nodes) {
    let pods = (0..zones.len()).map(|number| {
        let mut pod = Pod::clone(&pod(number, true, 8080));
        pod.spec.as_mut().unwrap().node_name = Some(format!("n{number}"));
        Arc::new(pod)
    });
    let nodes = zones.iter().enumerate().map(|(number, zone)| {
        let name = format!("n{number}");
        (name.clone(), node(&name, zone, "1"))
    });
    (pods.collect(), nodes.collect())
}

fn plan_at(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: &[Arc<EndpointSlice>],
    nodes: &Nodes,
    ratios: Option<&Ratios>,
) -> Plan {
    plan::plan(&Input {
        service,
        pods,
        slices,
        node: &|name| nodes.get(name).cloned(),
        ratios: &|| ratios.cloned(),
    })
}

fn that(annotations: &Value, spec: &Value) -> Service {
    let mut object = json!(service());
    object["metadata"]["annotations"] = annotations.clone();
    let spec = spec.as_object().unwrap().clone();
    object["spec"].as_object_mut().unwrap().extend(spec);
    serde_json::from_value(object).unwrap()
}

fn hints(endpoint: &Endpoint) -> Value {
    json!(endpoint.hints.clone().unwrap_or_default())
}

#[test]
fn traffic_stays_as_near_as_the_service_says() {
    let (pods, nodes) = placed(&["a"]);
    let zone = json!({"forZones": [{"name": "a"}]});
    let both = json!({"forZones": [{"name": "a"}], "forNodes": [{"name": "n0"}]});
    let near = |value| json!({"trafficDistribution": value});
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    let table = [
        (json!({}), json!({}), json!({})),
        (json!({}), near("PreferClose"), zone.clone()),
        (json!({}), near("PreferSameZone"), zone),
        (json!({}), near("PreferSameNode"), both),
        // The annotation wins, and finds no zones to share among.
        (auto, near("PreferSameNode"), json!({})),
    ];
    for (annotations, spec, expect) in table {
        let service = that(&annotations, &spec);
        let plan = plan_at(&service, &pods, &[], &nodes, None);
        let endpoint = &plan.create[0].endpoints.as_ref().unwrap()[0];
        let zone = endpoint.zone.as_deref();
        assert_eq!((hints(endpoint), zone), (expect, Some("a")), "{spec}");
    }
}

#[test]
fn only_what_is_ready_is_meant_for_somebody() {
    let near = json!({"trafficDistribution": "PreferSameNode"});
    let service = that(&json!({}), &near);
    let (mut pods, nodes) = placed(&["a", "b"]);
    pods[0] = terminating(&pods[0]);
    let plan = plan_at(&service, &pods, &[], &nodes, None);
    let endpoints = plan.create[0].endpoints.as_ref().unwrap();
    assert_eq!(hints(&endpoints[0]), json!({}));
    assert_ne!(hints(&endpoints[1]), json!({}));
    // A node without a zone is a node.
    let plan = plan_at(&service, &pods, &[], &Nodes::new(), None);
    let endpoint = &plan.create[0].endpoints.as_ref().unwrap()[1];
    assert_eq!(hints(endpoint), json!({"forNodes": [{"name": "n1"}]}));
}

#[test]
fn a_change_of_the_wish_is_a_change_of_the_slice() {
    let (pods, nodes) = placed(&["a"]);
    let near = json!({"trafficDistribution": "PreferSameZone"});
    let near = that(&json!({}), &near);
    let (mut slices, mut counter) = (Vec::new(), 0);
    for service in [service(), near, service()] {
        let plan = plan_at(&service, &pods, &slices, &nodes, None);
        assert_eq!(plan.create.len() + plan.update.len(), 1);
        apply(plan, &mut slices, &mut counter);
        let again = plan_at(&service, &pods, &slices, &nodes, None);
        assert_eq!(again, Plan::default());
    }
}

/// How many endpoints are meant for each zone.
fn shares(slices: &[Arc<EndpointSlice>]) -> Vec<(String, usize)> {
    let mut shares = BTreeMap::new();
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten());
    for hints in endpoints.filter_map(|endpoint| endpoint.hints.as_ref()) {
        let zone = hints.for_zones.as_ref().unwrap()[0].name.clone();
        *shares.entry(zone).or_default() += 1;
    }
    shares.into_iter().collect()
}

/// CPUs of zones, zones of endpoints, and what each zone gets, or why none does.
type Case = (
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
    Result<&'static [(&'static str, usize)], &'static str>,
);

#[test]
fn zones_get_endpoints_by_their_cpus() {
    const HALVES: &[(&str, &str)] = &[("a", "2"), ("b", "2")];
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    let auto = that(&auto, &json!({}));
    let table: [Case; 6] = [
        (HALVES, &["a", "a", "b", "b"], Ok(&[("a", 2), ("b", 2)])),
        // One serves another zone than its own.
        (HALVES, &["a", "a", "a", "b"], Ok(&[("a", 2), ("b", 2)])),
        (
            &[("a", "4"), ("b", "2"), ("c", "2")],
            &["a", "a", "a", "a", "a", "b", "b", "c"],
            Ok(&[("a", 4), ("b", 2), ("c", 2)]),
        ),
        (
            HALVES,
            &["a"],
            Err("Insufficient number of endpoints (1 endpoints, 2 zones)"),
        ),
        (
            HALVES,
            &["a", "b", "b"],
            Err(
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 endpoints, 2 zones)",
            ),
        ),
        (
            &[("a", "2")],
            &["a", "a"],
            Err(
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
            ),
        ),
    ];
    for (cpus, zones, expect) in table {
        let of = |(zone, cpu): &(&str, &str)| node(zone, zone, cpu);
        let ratios = ratios(&cpus.iter().map(of).collect::<Vec<_>>());
        let (pods, nodes) = placed(zones);
        let (mut slices, mut counter) = (Vec::new(), 0);
        let plan = plan_at(&auto, &pods, &slices, &nodes, ratios.as_ref());
        let told = plan.by_zones[0].1.clone();
        apply(plan, &mut slices, &mut counter);
        let got = told.map(|()| shares(&slices));
        let expect = expect.map(|shares| {
            let owned = |(zone, count): &(&str, usize)| ((*zone).to_owned(), *count);
            shares.iter().map(owned).collect::<Vec<_>>()
        });
        assert_eq!(got, expect.map_err(str::to_owned), "{cpus:?} {zones:?}");
        let again = plan_at(&auto, &pods, &slices, &nodes, ratios.as_ref());
        let writes = again.create.len() + again.update.len();
        assert_eq!(writes, 0, "{cpus:?} {zones:?}");
    }
}

#[test]
fn an_endpoint_without_a_zone_is_nobodys() {
    let auto = json!({"service.kubernetes.io/topology-aware-hints": "auto"});
    let auto = that(&auto, &json!({}));
    let of = ratios(&[node("a", "a", "1"), node("b", "b", "1")]);
    let (pods, _) = placed(&["a", "b"]);
    let plan = plan_at(&auto, &pods, &[], &Nodes::new(), of.as_ref());
    let why = "One or more endpoints do not have a zone specified".to_owned();
    assert_eq!(plan.by_zones, [("IPv4", Err(why))]);
}

#[test]
fn only_nodes_that_take_pods_count_as_cpus() {
    let plain = |name, zone| Node::clone(&node(name, zone, "1"));
    let (a, b, mut nowhere) = (plain("a", "a"), plain("b", "b"), plain("e", ""));
    let (mut control, mut silent) = (plain("c", "c"), plain("d", "d"));
    let labels = control.metadata.labels.as_mut().unwrap();
    labels.insert(
        "node-role.kubernetes.io/control-plane".into(),
        String::new(),
    );
    silent.status.as_mut().unwrap().conditions = None;
    let of = |nodes: &[&Node]| {
        let nodes = nodes.iter().map(|node| Arc::new(Node::clone(node)));
        ratios(&nodes.collect::<Vec<_>>())
    };
    let half: Ratios = [("a".to_owned(), 0.5), ("b".to_owned(), 0.5)].into();
    assert_eq!(of(&[&a, &b, &control, &silent]), Some(half));
    assert_eq!(of(&[&a, &b, &nowhere]), None);
    nowhere.metadata.labels = None;
    assert_eq!(of(&[&a, &b, &nowhere]), None);
}
