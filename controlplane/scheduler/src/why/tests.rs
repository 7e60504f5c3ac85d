use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::testing::{node_with, pod_of};

fn scheduler(nodes: &[(&str, &str, Value)], placed: &[(&str, &str, &str, i32)]) -> Scheduler {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, kube::Error>>()
    });
    let client = Client::new(silent, "default");
    let (recorder, _) = event_recorder::channel(client.clone(), None, Duration::ZERO);
    let mut scheduler = Scheduler::new(
        client,
        SchedulerConfig::default(),
        recorder,
        CancellationToken::new(),
    );
    for (name, cpu, spec) in nodes {
        let has = json!({"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}});
        scheduler
            .cache
            .set_node(&node_with(name, spec.clone(), has));
    }
    for (name, node, cpu, priority) in placed {
        let pod = pod(name, cpu, *priority, json!({}));
        scheduler.cache.observe(pod.into(), node);
    }
    scheduler
}

fn pod(name: &str, cpu: &str, priority: i32, more: Value) -> PodInfo {
    let mut spec = json!({"schedulerName": "default-scheduler", "priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    pod_of(
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": spec}),
    )
}

fn said(scheduler: &mut Scheduler, pod: PodInfo) -> String {
    scheduler.explain(pod).unwrap().to_string()
}

#[tokio::test]
async fn of_a_pod_that_fits_nowhere_it_is_said_what_every_plugin_says_and_what_would_help() {
    let taint = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": true});
    let nodes = [
        ("a", "1", json!({})),
        ("b", "4", json!({})),
        ("c", "1", taint),
    ];
    let mut scheduler = scheduler(&nodes, &[("low", "b", "3", 0)]);
    let text = said(&mut scheduler, pod("p", "2", 10, json!({})));
    let expect = "\
Pod ns/p has no node; default-scheduler says:

DOES NOT FIT ON   BECAUSE                                         IF PODS END
a                 NodeResourcesFit: Insufficient cpu              it does not fit either
b                 NodeResourcesFit: Insufficient cpu              it may fit
c                 NodeUnschedulable: node(s) were unschedulable   it does not fit either
                  TaintToleration: node(s) had untolerated taint(s)   it does not fit either
                  NodeResourcesFit: Insufficient cpu              it does not fit either

Of lower priority, these end on b to make room for it: ns/low

What would have to change:
  NodeUnschedulable: the node is uncordoned (kubectl uncordon), or the pod tolerates node.kubernetes.io/unschedulable
  TaintToleration: the pod tolerates the node's taints, or they are taken off (kubectl taint nodes NODE KEY-)
  NodeResourcesFit: pods on the node end or ask for less, the pod asks for less, or a larger node joins
";
    let words = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(words(&text), words(expect), "{text}");
}

#[tokio::test]
async fn of_a_pod_that_has_a_node_it_is_said_how_all_score_without_it() {
    let nodes = [("a", "4", json!({})), ("b", "4", json!({}))];
    let mut scheduler = scheduler(&nodes, &[("p", "a", "2", 0), ("q", "b", "1", 0)]);
    let text = said(&mut scheduler, pod("p", "2", 0, json!({"nodeName": "a"})));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Pod ns/p is on a; default-scheduler would say now, were it on none:"
    );
    assert!(
        lines[2].starts_with("FITS ON   SCORE   NodeResourcesFit x1"),
        "{text}"
    );
    assert!(
        lines[3].starts_with("a ") && lines[4].starts_with("b "),
        "{text}"
    );
    assert!(!text.contains("What would have to change"), "{text}");
}

#[tokio::test]
async fn a_gate_and_a_refusal_of_all_nodes_are_said_by_themselves() {
    let mut scheduler = scheduler(&[("a", "4", json!({}))], &[]);
    let gated = json!({"schedulingGates": [{"name": "example.com/quota"}]});
    let text = said(&mut scheduler, pod("p", "1", 0, gated));
    assert!(
        text.contains("It is not tried:\n  SchedulingGates: "),
        "{text}"
    );
    let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]});
    let text = said(&mut scheduler, pod("p", "1", 0, claims));
    assert!(
        text.contains("It fits on no node, whichever that is:\n  DynamicResources: "),
        "{text}"
    );
    scheduler.cache.remove_node("a");
    let text = said(&mut scheduler, pod("p", "1", 0, json!({})));
    assert!(text.ends_with("There are no nodes.\n"), "{text}");
}
