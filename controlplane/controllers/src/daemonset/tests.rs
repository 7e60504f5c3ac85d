//! Where pods of a DaemonSet come and go, from states of nodes and pods.

use serde_json::{Value, json};

use super::{node::Place, plan::plan, pod::pod_for, *};

mod surges;

const NOW: i64 = 1_000_000;

fn daemon_set(strategy: Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "ds", "namespace": "n", "uid": "me", "generation": 2},
        "spec": {
            "selector": {"matchLabels": {"app": "ds"}}, "updateStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": "ds"}},
                "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "image": "i"}]},
            },
        },
    }))
    .unwrap()
}

fn rolling(unavailable: Value, surge: Value) -> DaemonSet {
    let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
    daemon_set(json!({"type": "RollingUpdate", "rollingUpdate": rolling}))
}

fn node(name: &str, taints: Value) -> Arc<Node> {
    let node =
        json!({"metadata": {"name": name, "labels": {"disk": "ssd"}}, "spec": {"taints": taints}});
    Arc::new(serde_json::from_value(node).unwrap())
}

fn nodes(count: usize) -> Vec<Arc<Node>> {
    (1..=count)
        .map(|number| node(&format!("n{number}"), json!([])))
        .collect()
}

/// `name` is its node's, `-` and anything. It is of the revision `hash`.
fn pod(name: &str, hash: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "labels": {"controller-revision-hash": hash},
            "creationTimestamp": "1970-01-01T00:00:01Z"},
        "spec": {"nodeName": name.split('-').next(), "containers": []},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-12T13:46:30Z"},
        ]},
    });
    change(&mut pod);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ready(name: &str, hash: &str) -> Arc<Pod> {
    pod(name, hash, |_| {})
}

fn unready(name: &str, hash: &str) -> Arc<Pod> {
    pod(name, hash, |pod| {
        pod["status"]["conditions"][0]["status"] = "False".into();
    })
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// What is created on which nodes, which pods are deleted, and what it tells.
fn planned(ds: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> (String, String, String) {
    let view = View::new((ds, "new"), nodes, pods, now());
    let plan = plan(&view, &mut Failures::default());
    let deleted: Vec<_> = plan
        .delete
        .iter()
        .map(|pod| pod.metadata.name.clone().unwrap())
        .collect();
    let told: Vec<_> = plan.told.into_iter().map(|ended| ended.message).collect();
    (plan.create.join(" "), deleted.join(" "), told.join(" "))
}

fn comes_and_goes(ds: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> (String, String) {
    let (created, deleted, _) = planned(ds, nodes, pods);
    (created, deleted)
}

fn expect(created: &str, deleted: &str) -> (String, String) {
    (created.into(), deleted.into())
}

#[test]
fn a_node_is_a_place_by_its_name_its_labels_and_its_taints() {
    let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
    let ds = daemon_set(json!({"type": "OnDelete"}));
    for (taints, place) in [
        (json!([]), Place::Run),
        (taint("a", "NoSchedule"), Place::Keep),
        (taint("a", "PreferNoSchedule"), Place::Run),
        (taint("a", "NoExecute"), Place::Leave),
        (
            taint("node.kubernetes.io/not-ready", "NoExecute"),
            Place::Run,
        ),
        (
            taint("node.kubernetes.io/not-ready", "NoSchedule"),
            Place::Keep,
        ),
        (
            taint("node.kubernetes.io/unschedulable", "NoSchedule"),
            Place::Run,
        ),
        (
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            Place::Keep,
        ),
    ] {
        let node = node("n1", taints.clone());
        assert_eq!(Demands::of(&ds).place(&node), place, "{taints}");
    }
    let mut of_host = ds.clone();
    let spec = of_host.spec.template.spec.as_mut().unwrap();
    spec.host_network = Some(true);
    let unconnected = node(
        "n1",
        taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
    );
    assert_eq!(Demands::of(&of_host).place(&unconnected), Place::Run);
    let mut named = ds.clone();
    named.spec.template.spec.as_mut().unwrap().node_name = Some("n2".into());
    assert_eq!(
        Demands::of(&named).place(&node("n1", json!([]))),
        Place::Leave
    );
    let mut elsewhere = (*node("n1", json!([]))).clone();
    elsewhere.metadata.labels = None;
    assert_eq!(Demands::of(&ds).place(&elsewhere), Place::Leave);
}

#[test]
fn a_pod_is_for_its_node_and_tolerates_what_daemons_do() {
    let mut ds = daemon_set(json!({"type": "OnDelete"}));
    ds.metadata.annotations = Some(
        [(
            "deprecated.daemonset.template.generation".into(),
            "7".into(),
        )]
        .into(),
    );
    let own = json!([
        {"key": "a", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]);
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "b", "operator": "Exists"}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [],
    }});
    let spec = ds.spec.template.spec.as_mut().unwrap();
    spec.tolerations = serde_json::from_value(own).unwrap();
    spec.affinity = serde_json::from_value(affinity).unwrap();
    let made = json!(pod_for(&ds, "h", "n1"));
    assert_eq!(
        made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]})
    );
    assert_eq!(
        made["metadata"]["labels"],
        json!({"app": "ds", "controller-revision-hash": "h", "pod-template-generation": "7"})
    );
    assert_eq!(made["metadata"]["generateName"], "ds-");
    let tolerated = made["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerated.len(), 1 + 6);
    assert!(
        tolerated
            .iter()
            .all(|one| one["tolerationSeconds"].is_null()),
        "for ever: {tolerated:?}"
    );
    let held: Pod = serde_json::from_value(made).unwrap();
    assert_eq!(super::pod::node_of(&held), "n1", "before it is bound");
}

#[test]
fn every_node_has_one_pod() {
    let ds = daemon_set(json!({"type": "OnDelete"}));
    let away = node("n3", json!([{"key": "a", "effect": "NoExecute"}]));
    let cordoned = node("n4", json!([{"key": "a", "effect": "NoSchedule"}]));
    let mut all = nodes(2);
    all.extend([away, cordoned]);
    let going = |name: &str| {
        pod(name, "new", |pod| {
            pod["metadata"]["deletionTimestamp"] = "1970-01-02T00:00:00Z".into();
        })
    };
    let younger = pod("n1-b", "new", |pod| {
        pod["metadata"]["creationTimestamp"] = "1970-01-01T00:00:02Z".into();
    });
    assert_eq!(comes_and_goes(&ds, &all, &[]), expect("n1 n2", ""));
    let pods = [
        younger,
        ready("n1-a", "new"),
        going("n2-a"),
        ready("n3-a", "new"),
        ready("n4-a", "new"),
    ];
    assert_eq!(comes_and_goes(&ds, &all, &pods), expect("", "n1-b n3-a"));
    let unbound = |name: &str| {
        pod(name, "new", |pod| {
            let node = pod["spec"]["nodeName"].take();
            pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}});
        })
    };
    let anywhere = pod("x-a", "new", |pod| pod["spec"]["nodeName"] = Value::Null);
    let lost = [
        anywhere,
        unbound("gone-a"),
        ready("gone-b", "new"),
        unbound("n1-a"),
    ];
    assert_eq!(comes_and_goes(&ds, &nodes(1), &lost), expect("", "gone-a"));
}

#[test]
fn what_has_ended_goes_and_a_failure_waits() {
    let ds = daemon_set(json!({"type": "OnDelete"}));
    let ended =
        |name: &str, phase: &str| pod(name, "new", |pod| pod["status"]["phase"] = phase.into());
    let pods = [ended("n1-a", "Failed"), ended("n2-a", "Succeeded")];
    let (created, deleted, told) = planned(&ds, &nodes(2), &pods);
    assert_eq!((&*created, &*deleted), ("", "n1-a n2-a"));
    assert_eq!(
        told,
        "Found failed daemon pod n/n1-a on node n1, will try to kill it \
         Found succeeded daemon pod n/n2-a on node n2, will try to delete it"
    );
    let (nodes, mut failures) = (nodes(1), Failures::default());
    let view = View::new((&ds, "new"), &nodes, &pods[..1], now());
    assert_eq!(plan(&view, &mut failures).delete.len(), 1);
    let again = plan(&view, &mut failures);
    assert!(again.delete.is_empty() && again.told.is_empty());
    assert_eq!(again.again, Some(std::time::Duration::from_secs(1)));
}

#[test]
fn old_pods_are_replaced_a_few_at_a_time() {
    let old = |count: usize| -> Vec<_> {
        (1..=count)
            .map(|one| ready(&format!("n{one}-a"), "old"))
            .collect()
    };
    let one = rolling(json!(1), json!(0));
    assert_eq!(comes_and_goes(&one, &nodes(4), &old(4)), expect("", "n1-a"));
    let half = rolling(json!("50%"), json!(0));
    assert_eq!(
        comes_and_goes(&half, &nodes(3), &old(3)),
        expect("", "n1-a n2-a")
    );
    let mut pods = old(4);
    pods[0] = unready("n1-b", "new");
    assert_eq!(
        comes_and_goes(&one, &nodes(4), &pods),
        expect("", ""),
        "one is missing"
    );
    pods[3] = unready("n4-a", "old");
    assert_eq!(
        comes_and_goes(&one, &nodes(4), &pods),
        expect("", "n4-a"),
        "it is missed anyway"
    );
    let broken = [ready("n1-a", "old"), unready("n2-a", "old")];
    assert_eq!(
        comes_and_goes(&one, &nodes(2), &broken),
        expect("", "n2-a"),
        "and counts"
    );
    let by_hand = daemon_set(json!({"type": "OnDelete"}));
    assert_eq!(comes_and_goes(&by_hand, &nodes(4), &old(4)), expect("", ""));
    let none = rolling(json!("0%"), json!("0%"));
    assert_eq!(
        comes_and_goes(&none, &nodes(2), &old(2)),
        expect("", "n1-a"),
        "an impossible wish"
    );
}

#[test]
fn a_pod_that_is_over_holds_no_place() {
    let over = pod("n1-a", "new", |pod| {
        pod["metadata"]["deletionTimestamp"] = "1970-01-02T00:00:00Z".into();
        pod["status"]["phase"] = "Failed".into();
    });
    for ds in [
        daemon_set(json!({"type": "OnDelete"})),
        rolling(json!(0), json!(1)),
    ] {
        let pods = [over.clone()];
        assert_eq!(comes_and_goes(&ds, &nodes(1), &pods), expect("n1", ""));
    }
}

#[test]
fn the_status_counts_nodes() {
    let ds = rolling(json!(1), json!(0));
    let mut all = nodes(4);
    all.push(node("n5", json!([{"key": "a", "effect": "NoSchedule"}])));
    let pods = [
        ready("n1-a", "new"),
        ready("n2-a", "old"),
        unready("n3-a", "new"),
        ready("n5-a", "new"),
    ];
    let view = View::new((&ds, "new"), &all, &pods, now());
    let (status, again) = status::status(&view);
    assert_eq!(
        json!(status),
        json!({
            "currentNumberScheduled": 3, "desiredNumberScheduled": 4, "numberAvailable": 2, "numberMisscheduled": 1,
            "numberReady": 2, "numberUnavailable": 2, "observedGeneration": 2, "updatedNumberScheduled": 2,
        })
    );
    assert_eq!(again, None);
    assert!(status::differs(None, &status) && !status::differs(Some(&status.clone()), &status));
}
