use super::*;
use crate::framework::{Code, PluginName};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whole_nodes_are_told_and_those_that_it_names_are_left() {
    let server = Server::start(|_, args| {
        Reply::Json(json!({"Nodes": only(args, &["b"]), "NodeNames": null,
            "FailedNodes": {"a": "no license", "c": "no license", "d": "unknown"}}))
    })
    .await;
    let framework = framework(&json!([{"urlPrefix": server.url, "filterVerb": "filter"}]));
    let cache = cache(&[("a", "4"), ("b", "4"), ("c", "4")]);
    assert_eq!(place(&framework, &cache, &small("p")), Ok("b".to_owned()));
    let asked = server.asked();
    let (verb, args) = &asked[0];
    assert_eq!((verb.as_str(), asked.len()), ("filter", 1));
    assert_eq!(args["NodeNames"], json!(null));
    assert_eq!(args["Nodes"]["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        args["Nodes"]["items"][0]["status"]["allocatable"]["cpu"],
        "4"
    );
    assert_eq!(args["Pod"]["metadata"]["annotations"]["a"], "b");
    let keys: Vec<&String> = args.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["NodeNames", "Nodes", "Pod"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_that_has_the_nodes_is_told_their_names() {
    let server = Server::start(|_, _| Reply::Json(json!({"nodenames": ["c"]}))).await;
    let framework = framework(
        &json!([{"urlPrefix": format!("{}//", server.url), "filterVerb": "a/filter", "nodeCacheCapable": true}]),
    );
    let cache = cache(&[("a", "4"), ("b", "0"), ("c", "4")]);
    assert_eq!(place(&framework, &cache, &small("p")), Ok("c".to_owned()));
    let (verb, args) = server.asked().remove(0);
    assert_eq!(verb, "a/filter");
    assert_eq!(args["Nodes"], json!(null));
    assert_eq!(
        args["NodeNames"],
        json!(["a", "c"]),
        "what the plugins leave"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn why_nodes_are_refused_is_told_in_its_words() {
    let server = Server::start(|_, _| {
        Reply::Json(
            json!({"NodeNames": [], "FailedNodes": {"a": "too warm", "b": "too warm"},
            "FailedAndUnresolvableNodes": {"b": "too cold"}}),
        )
    })
    .await;
    let said = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true}]);
    let framework = framework(&said);
    let cache = cache(&[("a", "4"), ("b", "4"), ("c", "4"), ("d", "0")]);
    let expect = "0/4 nodes are available: 1 Insufficient cpu, 1 too cold, 1 too warm.".to_owned();
    assert_eq!(place(&framework, &cache, &small("p")), Err(expect));
    let snapshot = cache.snapshot();
    let feasible = snapshot.nodes().iter().collect();
    let Ok(sifted) = framework.extenders.filter(&small("p"), feasible) else {
        panic!("it has answered");
    };
    let codes = sifted.refused.iter().map(|(_, status)| status.code());
    let helps_nobody = Code::UnschedulableAndUnresolvable;
    let expect = [
        Code::Unschedulable,
        helps_nobody,
        helps_nobody,
        helps_nobody,
    ];
    assert_eq!(codes.collect::<Vec<_>>(), expect);
    let mut diagnosis = Diagnosis::of(4);
    sifted.tell(&mut diagnosis, &snapshot);
    assert_eq!(
        diagnosis.resolvable(),
        [0],
        "the end of pods may help there"
    );
    assert!(diagnosis.refused_by.contains(PluginName::Extender));
    let event = crate::framework::ClusterEvent::NamespaceLabelled;
    assert!(
        framework.is_worth_requeuing(&small("p"), diagnosis.refused_by, &event),
        "nobody knows what helps"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_hears_of_what_those_before_leave_and_who_may_be_ignored_comes_last() {
    let last = Server::start(|_, _| Reply::Json(json!({"NodeNames": ["a", "b"]}))).await;
    let first = Server::start(|_, _| Reply::Json(json!({"NodeNames": ["b", "a", "b"]}))).await;
    let framework = framework(&json!([
        {"urlPrefix": last.url, "filterVerb": "f", "nodeCacheCapable": true, "ignorable": true},
        {"urlPrefix": first.url, "filterVerb": "f", "nodeCacheCapable": true},
    ]));
    let cache = cache(&[("a", "4"), ("b", "4"), ("c", "4")]);
    place(&framework, &cache, &small("p")).unwrap();
    assert_eq!(first.asked()[0].1["NodeNames"], json!(["a", "b", "c"]));
    assert_eq!(last.asked()[0].1["NodeNames"], json!(["a", "b"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_room_was_made_it_is_asked_about_that_node_first() {
    let server = Server::start(|_, args| {
        let names: Vec<&str> = args["NodeNames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        let left: Vec<&&str> = names.iter().filter(|name| **name != "b").collect();
        Reply::Json(json!({"NodeNames": left}))
    })
    .await;
    let said = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true}]);
    let framework = framework(&said);
    let cache = cache(&[("a", "4"), ("b", "4"), ("c", "4")]);
    let place = |nominated| {
        let mut algorithm = Algorithm::new(framework.clone().into());
        let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
        let node = algorithm.schedule(&mut cycle, &small("p"), Some(nominated), &snapshot);
        node.unwrap().name.clone()
    };
    assert_eq!(place("c"), "c");
    assert_eq!(server.asked()[0].1["NodeNames"], json!(["c"]));
    assert_ne!(place("b"), "b");
    assert_eq!(server.count(), 3, "about that node, and about all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pods_that_ask_for_nothing_of_its_are_none_of_its_business() {
    let server = Server::start(|_, _| Reply::Json(json!({"NodeNames": ["b"]}))).await;
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}]);
    let framework = framework(&json!([{"urlPrefix": server.url, "filterVerb": "f",
        "nodeCacheCapable": true, "managedResources": managed}]));
    let cache = cache(&[("a", "4"), ("b", "4")]);
    place(&framework, &cache, &small("p")).unwrap();
    assert_eq!(server.count(), 0);
    // No node has any, and the plugins do not ask.
    assert_eq!(place(&framework, &cache, &gpu("q")), Ok("b".to_owned()));
    assert_eq!(server.count(), 1);
    let only_limited = json!({"metadata": {"name": "r", "namespace": "default", "uid": "r"},
        "spec": {"containers": [{"name": "c"}], "initContainers": [
            {"name": "i", "resources": {"limits": {"example.com/gpu": "1"}}}]}});
    let object: Pod = serde_json::from_value(only_limited).unwrap();
    let info = PodInfo::whole(object).unwrap();
    assert_eq!(place(&framework, &cache, &info), Ok("b".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_scheduler_does_not_ignore_has_to_be_there() {
    let server = Server::start(|_, _| Reply::Json(json!({"NodeNames": ["b"]}))).await;
    let framework = framework(&json!([{"urlPrefix": server.url, "filterVerb": "f",
        "nodeCacheCapable": true, "managedResources": [{"name": "example.com/gpu"}]}]));
    let why = place(&framework, &cache(&[("a", "4")]), &gpu("p")).unwrap_err();
    assert_eq!(
        why,
        "0/1 nodes are available: 1 Insufficient example.com/gpu."
    );
    assert_eq!(server.count(), 0, "nothing is left to ask about");
}
