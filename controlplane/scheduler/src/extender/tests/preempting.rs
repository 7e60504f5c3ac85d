use super::*;

/// Two full nodes, whose pods are below; on `b` there is another that is above.
fn full() -> Cache {
    let mut cache = cache(&[("a", "1"), ("b", "2"), ("c", "8")]);
    let placed = [("low-a", "a", 1), ("low-b", "b", 5), ("above", "b", 1000)];
    for (name, node, priority) in placed {
        let pod = pod(name, priority, &json!({"cpu": "1"}));
        cache.observe(Arc::new(pod), node);
    }
    let large = pod("large", 900, &json!({"cpu": "8"}));
    cache.observe(Arc::new(large), "c");
    cache
}

fn preemptor() -> PodInfo {
    pod("p", 100, &json!({"cpu": "1"}))
}

/// The node and who ends there, or what is said.
fn preempted(framework: &Arc<Framework>) -> (String, Vec<String>) {
    preempted_in(framework, &mut full())
}

fn preempted_in(framework: &Arc<Framework>, cache: &mut Cache) -> (String, Vec<String>) {
    let (mut cycle, pod) = (CycleState::default(), preemptor());
    let mut algorithm = Algorithm::new(framework.clone().into());
    let attempt = algorithm.schedule(&mut cycle, &pod, None, &cache.snapshot());
    let Err(SchedulingFailure::Unschedulable(diagnosis)) = attempt else {
        panic!("it fits");
    };
    let (nomination, message) = framework.run_post_filter(&mut Failed {
        filters: &**framework,
        extenders: &framework.extenders,
        cycle: &cycle,
        pod: &pod,
        diagnosis: &diagnosis,
        nominated: None,
        cache,
    });
    match nomination {
        Nomination::Node { name, victims } => {
            (name, victims.iter().map(|pod| pod.name.clone()).collect())
        }
        _ => (message, Vec::new()),
    }
}

fn victims(said: &[(&str, &[&str])]) -> Value {
    let said = said.iter().map(|(node, uids)| {
        let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
        (
            (*node).to_owned(),
            json!({"Pods": pods, "NumPDBViolations": 0}),
        )
    });
    json!({"NodeNameToMetaVictims": said.collect::<serde_json::Map<_, _>>()})
}

fn says(url: &str, named: bool, ignorable: bool) -> Value {
    json!({"urlPrefix": url, "preemptVerb": "preempt", "nodeCacheCapable": named, "ignorable": ignorable})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_chooses_among_the_candidates() {
    let server = Server::start(|_, _| Reply::Json(victims(&[("b", &["uid-low-b"])]))).await;
    for named in [true, false] {
        let framework = framework(&json!([says(&server.url, named, false)]));
        let expect = ("b".to_owned(), vec!["low-b".to_owned()]);
        assert_eq!(preempted(&framework), expect, "by itself it would be a");
    }
    let asked = server.asked();
    let names = json!({
        "a": {"Pods": [{"UID": "uid-low-a"}], "NumPDBViolations": 0},
        "b": {"Pods": [{"UID": "uid-low-b"}], "NumPDBViolations": 0},
    });
    assert_eq!(asked[0].1["NodeNameToMetaVictims"], names);
    assert_eq!(asked[0].1["NodeNameToVictims"], json!(null));
    assert_eq!(asked[0].1["Pod"]["metadata"]["name"], "p");
    let whole = &asked[1].1["NodeNameToVictims"]["a"];
    assert_eq!(whole["Pods"][0]["metadata"]["annotations"]["a"], "b");
    assert_eq!(whole["NumPDBViolations"], 0);
    assert_eq!(asked[1].1["NodeNameToMetaVictims"], json!(null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_chooses_among_what_those_before_leave() {
    let first = Server::start(|_, _| Reply::Json(victims(&[("a", &["uid-low-a"])]))).await;
    let then = Server::start(|_, _| Reply::Json(victims(&[]))).await;
    let never = Server::start(|_, _| Reply::Code(500)).await;
    let all = [&first.url, &then.url, &never.url].map(|url| says(url, true, false));
    let (message, _) = preempted(&framework(&json!(all)));
    assert_eq!(message, "preemption: no candidate node for preemption");
    let left = json!({"a": {"Pods": [{"UID": "uid-low-a"}], "NumPDBViolations": 0}});
    assert_eq!(then.asked()[0].1["NodeNameToMetaVictims"], left);
    assert_eq!(never.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_lies_is_refused_unless_it_may_be_ignored() {
    let refusals = [
        (
            victims(&[("z", &["uid-low-a"])]),
            "claims to preempt pods on node \"z\", which is not among the candidates",
        ),
        (
            victims(&[("c", &["uid-large"])]),
            "claims to preempt pods on node \"c\", which is not among the candidates",
        ),
        (
            victims(&[("a", &["uid-low-b"])]),
            "claims to preempt pod (UID: uid-low-b) on node: a, but the pod is not found on that node",
        ),
        (
            victims(&[("b", &["uid-low-b", "uid-above"])]),
            "claims to preempt pod (UID: uid-above) on node: b, whose priority is not lower",
        ),
        (
            victims(&[("a", &[])]),
            "expected at least one victim pod on node \"a\"",
        ),
        (
            json!({"NodeNameToMetaVictims": {"a": null}}),
            "expected at least one victim pod on node \"a\"",
        ),
        (json!([]), "read the answer of extender"),
    ];
    for (answer, expect) in refusals {
        let is_empty = expect.starts_with("expected");
        let server = Server::start(move |_, _| Reply::Json(answer.clone())).await;
        let (message, _) = preempted(&framework(&json!([says(&server.url, true, false)])));
        assert!(message.starts_with("preemption: "), "{message}");
        assert!(message.contains(expect), "{message}");
        let (node, _) = preempted(&framework(&json!([says(&server.url, true, true)])));
        let without_it = match is_empty {
            true => "preemption: no candidate node for preemption",
            false => "a",
        };
        assert_eq!(node, without_it, "{expect}");
    }
}

/// The pods there are below, and yet it is not they that are in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_ends_on_a_node_that_an_extender_alone_refuses() {
    let server = Server::start(|_, _| {
        Reply::Json(
            json!({"NodeNames": [], "FailedNodes": {"a": "busy", "b": "busy", "c": "busy"}}),
        )
    })
    .await;
    let says = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true}]);
    let framework = framework(&says);
    let mut cache = full();
    for name in ["low-b", "low-a"] {
        cache.remove_pod(&crate::pod_info::PodUid(format!("uid-{name}").into()));
    }
    let tiny = pod("tiny", 1, &json!({}));
    cache.observe(Arc::new(tiny), "b");
    let (message, victims) = preempted_in(&framework, &mut cache);
    assert_eq!(
        (message.as_str(), victims.len()),
        (
            "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            0
        )
    );
}
