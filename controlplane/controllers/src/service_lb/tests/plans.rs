//! What is written to one Service, and what is told of it.

use serde_json::json;

use super::*;
use crate::service_lb::plan::plan;

/// What `share` has written and told, as `before > patch > after | pending`.
fn check_plan(change: Value, share: Option<Share>, expect: &str) {
    check_plan_where(Served::Unclassed, change, share, expect);
}

fn check_plan_where(served: Served, change: Value, share: Option<Share>, expect: &str) {
    let mut service = json!(service("a", 1, &[80], json!({})));
    for (field, value) in change.as_object().unwrap() {
        match (&mut service[field], value) {
            (Value::Object(known), Value::Object(more)) => known.extend(more.clone()),
            (known, value) => *known = value.clone(),
        }
    }
    let plan = plan(
        &serde_json::from_value(service).unwrap(),
        share.as_ref(),
        served,
    );
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
            .map(
                |ip| json!({"ip": ip, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}),
            )
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
    // Their class is others' business to the end, and then nothing of ours stays.
    let others = json!({"loadBalancerClass": "example.org/a"});
    let of_others = json!({"metadata": finalizers, "spec": others, "status": status});
    check_plan(of_others, None, nothing);
    let of_others = json!({"metadata": going, "spec": others, "status": status});
    check_plan(of_others, None, " > [\"x\"] [] >  | ");
}

#[test]
fn those_without_a_class_are_anothers_where_it_is_said() {
    let of = |spec: Value| Claim::of(&service("a", 1, &[80], spec), Served::Named).is_some();
    assert!(!of(json!({})));
    assert!(of(json!({"loadBalancerClass": "coracle.dev/node"})));
    let check = |finalizers: &[&str], ingress: Value, expect: &str| {
        let change = json!({"metadata": {"finalizers": finalizers},
            "status": {"loadBalancer": {"ingress": ingress}}});
        check_plan_where(Served::Named, change, None, expect);
    };
    // What was given before is taken back, and what another gives is not.
    let ours =
        json!([{"ip": "192.0.2.1", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}]);
    let done = "DeletingLoadBalancer > [] [] > DeletedLoadBalancer | ";
    check(&[FINALIZER], ours.clone(), done);
    let theirs = json!([{"ip": "198.51.100.7", "ipMode": "VIP"}]);
    for (finalizers, ingress) in [
        (&[FINALIZER][..], theirs),
        (&[], ours),
        (&[FINALIZER], json!([])),
    ] {
        check(finalizers, ingress, " >  >  | ");
    }
}
