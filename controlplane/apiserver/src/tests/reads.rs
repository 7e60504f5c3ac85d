//! The tables of `resourceVersion` and `resourceVersionMatch`, row by row, and what else a read may
//! ask for.
//!
//! Source: "Resource Versions" in Kubernetes' API concepts, v1.37.

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::{
    raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod},
    watches::Events,
};
use crate::testing;

/// More events than the cache remembers of a resource.
const MORE_THAN_REMEMBERED: usize = 8300;

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"]
        .as_array()
        .unwrap_or_else(|| panic!("no list: {list}"));
    items
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// A server with `a`, then `b`, then a newer `a`, and the version of the list before the two last.
async fn history() -> (Raw, u64) {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("a")).await;
    let then = version(&raw.get(CONFIG_MAPS).await.1);
    raw.post(CONFIG_MAPS, config_map("b")).await;
    raw.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"n": "1"}}))
        .await;
    (raw, then)
}

#[tokio::test]
async fn list_shows_the_state_that_its_version_means() {
    let (raw, then) = history().await;
    let now = version(&raw.get(CONFIG_MAPS).await.1);
    let (past, present) = ((then, vec!["a"]), (now, vec!["a", "b"]));
    for (query, expect) in [
        (String::new(), &present),
        ("resourceVersion=".to_owned(), &present),
        ("resourceVersion=0".to_owned(), &present),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
            &present,
        ),
        (format!("resourceVersion={then}"), &present),
        (
            format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"),
            &present,
        ),
        (
            format!("resourceVersion={then}&resourceVersionMatch=Exact"),
            &past,
        ),
        (
            format!("resourceVersion={now}&resourceVersionMatch=Exact"),
            &present,
        ),
        ("limit=5".to_owned(), &present),
        ("limit=5&resourceVersion=0".to_owned(), &present),
        (format!("limit=5&resourceVersion={then}"), &past),
        (
            format!("limit=5&resourceVersion={then}&resourceVersionMatch=Exact"),
            &past,
        ),
        (
            format!("limit=5&resourceVersion={then}&resourceVersionMatch=NotOlderThan"),
            &present,
        ),
    ] {
        let (code, list) = raw.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(
            (code, version(&list), names(&list)),
            (200, expect.0, expect.1.clone()),
            "{query}"
        );
    }
}

#[tokio::test]
async fn contradicting_parameters_are_refused() {
    let (raw, then) = history().await;
    let token = raw.get(&format!("{CONFIG_MAPS}?limit=1")).await.1["metadata"]["continue"].clone();
    let token = token.as_str().unwrap();
    for (query, code, message) in [
        (
            "resourceVersionMatch=Exact".to_owned(),
            422,
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=NotOlderThan".to_owned(),
            422,
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
            422,
            "is forbidden for resourceVersion \"0\"",
        ),
        (
            format!("resourceVersion={then}&resourceVersionMatch=Newest"),
            422,
            "Unsupported value: \"Newest\"",
        ),
        (
            format!("resourceVersionMatch=Exact&resourceVersion={then}&continue={token}"),
            422,
            "when continue is provided",
        ),
        (
            format!("resourceVersion={then}&continue={token}"),
            400,
            "not allowed when using continue",
        ),
        (
            "continue=nonsense!".to_owned(),
            400,
            "continue key is not valid",
        ),
        (
            "sendInitialEvents=true".to_owned(),
            422,
            "sendInitialEvents is forbidden for list",
        ),
        (
            "watch=1&sendInitialEvents=true".to_owned(),
            422,
            "requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan".to_owned(),
            422,
            "unless sendInitialEvents is provided",
        ),
        ("resourceVersion=x".to_owned(), 422, "invalid"),
        (
            "fieldSelector=spec.nodeName%3Dx".to_owned(),
            400,
            "is not a known field selector",
        ),
        (
            "labelSelector=a%3D%3D%3Db".to_owned(),
            400,
            "unable to parse requirement",
        ),
    ] {
        let (found, status) = raw.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(found, code, "{query}: {status}");
        assert!(
            status["message"].as_str().unwrap().contains(message),
            "{query}: {status}"
        );
    }
}

#[tokio::test]
async fn get_is_at_least_as_new_as_asked() {
    let (raw, then) = history().await;
    let path = format!("{CONFIG_MAPS}/a");
    for query in [
        String::new(),
        "resourceVersion=0".to_owned(),
        format!("resourceVersion={then}"),
    ] {
        let (code, object) = raw.get(&format!("{path}?{query}")).await;
        assert_eq!((code, &object["data"]["n"]), (200, &json!("1")), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_never_comes_times_out() {
    let (raw, _) = history().await;
    for path in [
        format!("{CONFIG_MAPS}/a?resourceVersion=999999"),
        format!("{CONFIG_MAPS}?resourceVersion=999999"),
        format!("{CONFIG_MAPS}?resourceVersion=999999&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}?watch=true&resourceVersion=999999"),
    ] {
        let (code, status) = raw.get(&path).await;
        assert_eq!(
            (code, &status["reason"]),
            (504, &json!("Timeout")),
            "{path}"
        );
        assert_eq!(
            status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge",
            "{status}"
        );
        assert!(
            status["message"]
                .as_str()
                .unwrap()
                .starts_with("Timeout: Too large resource version: 999999"),
            "{status}"
        );
    }
}

#[tokio::test]
async fn forgotten_states_are_gone_and_a_token_goes_on_inconsistently() {
    let raw = admin().await;
    for name in ["a", "b", "c"] {
        raw.post(CONFIG_MAPS, config_map(name)).await;
    }
    let (_, all) = raw.get(CONFIG_MAPS).await;
    let then = version(&all);
    for round in 0..MORE_THAN_REMEMBERED {
        raw.merge(
            &format!("{CONFIG_MAPS}/c"),
            json!({"data": {"n": round.to_string()}}),
        )
        .await;
    }
    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (code, status) = raw.get(&exact).await;
    assert_eq!(
        (code, &status["reason"]),
        (410, &json!("Expired")),
        "{status}"
    );
    // As of a list that was begun then, and whose state nobody has kept.
    let token =
        crate::list_options::Token::new(i64::try_from(then).unwrap(), "default/a", None).encode();
    let (code, status) = raw
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!(
        (code, &status["reason"]),
        (410, &json!("Expired")),
        "{status}"
    );
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("inconsistent list"),
        "{status}"
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    raw.delete(&format!("{CONFIG_MAPS}/b"), json!({})).await;
    let (code, rest) = raw
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!((code, names(&rest)), (200, vec!["c"]));
    assert!(version(&rest) > then);
}

#[tokio::test]
async fn watch_begins_where_its_version_says() {
    let (raw, then) = history().await;
    let synthetic = ["ADDED a 1", "ADDED b 0"];
    let replayed = ["ADDED b 0", "MODIFIED a 1"];
    let not_older = "resourceVersionMatch=NotOlderThan";
    let bookmarks = "allowWatchBookmarks=true";
    for (query, expect) in [
        (String::new(), vec![synthetic[0], synthetic[1]]),
        (
            "resourceVersion=0".to_owned(),
            vec![synthetic[0], synthetic[1]],
        ),
        (
            format!("resourceVersion={then}"),
            vec![replayed[0], replayed[1]],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}&resourceVersion=0"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}&{bookmarks}&resourceVersion={then}"),
            vec![synthetic[0], synthetic[1], "BOOKMARK"],
        ),
        (
            format!("sendInitialEvents=true&{not_older}"),
            vec![synthetic[0], synthetic[1]],
        ),
        (
            format!("sendInitialEvents=false&{not_older}&resourceVersion={then}"),
            vec![replayed[0], replayed[1]],
        ),
        (format!("sendInitialEvents=false&{not_older}"), vec![]),
    ] {
        let mut events = Events::at(&raw, &format!("{CONFIG_MAPS}?watch=true&{query}")).await;
        // What comes after all that is there already.
        raw.post(CONFIG_MAPS, config_map("last")).await;
        let mut seen = Vec::new();
        loop {
            let event = events.next().await.unwrap();
            let object = &event["object"];
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name == "last" {
                break;
            }
            let text = format!(
                "{} {name} {}",
                event["type"].as_str().unwrap(),
                object["data"]["n"].as_str().unwrap_or_default()
            );
            seen.push(text.trim().to_owned());
        }
        assert_eq!(seen, expect, "{query}");
        raw.delete(&format!("{CONFIG_MAPS}/last"), json!({})).await;
    }
}

#[tokio::test]
async fn one_object_can_be_watched_in_three_ways() {
    let (raw, then) = history().await;
    for path in [
        format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={then}"),
        format!("/api/v1/watch/namespaces/default/configmaps/a?resourceVersion={then}"),
        format!(
            "/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={then}"
        ),
    ] {
        let mut events = Events::at(&raw, &path).await;
        raw.merge(&format!("{CONFIG_MAPS}/b"), json!({"data": {"n": path}}))
            .await;
        raw.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"n": path}}))
            .await;
        events.expect("MODIFIED", "a").await;
        let mut last = events.expect("MODIFIED", "a").await;
        while last["object"]["data"]["n"] != path.as_str() {
            last = events.expect("MODIFIED", "a").await;
        }
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off_without_a_gap() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let mut events = Events::at(&raw, &format!("{CONFIG_MAPS}?watch=true")).await;
    events.expect("ADDED", "x").await;
    for round in 1..=MORE_THAN_REMEMBERED {
        raw.merge(
            &format!("{CONFIG_MAPS}/x"),
            json!({"data": {"n": round.to_string()}}),
        )
        .await;
    }
    // It may have what was sent before it was cut off, in order; then the stream ends.
    let mut expect = 1;
    while let Some(event) = events.next().await {
        assert_eq!(event["object"]["data"]["n"], expect.to_string());
        expect += 1;
    }
    assert!(expect < MORE_THAN_REMEMBERED, "{expect}");
}

#[tokio::test]
async fn label_selectors_know_sets() {
    let raw = admin().await;
    for (name, labels) in [
        ("a", json!({"tier": "web", "v": "1"})),
        ("b", json!({"tier": "db"})),
        ("c", json!({})),
    ] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        assert_eq!(raw.post(CONFIG_MAPS, object).await.0, 201);
    }
    for (selector, expect) in [
        ("tier+in+(web,db)", vec!["a", "b"]),
        ("tier+notin+(web)", vec!["b", "c"]),
        ("tier", vec!["a", "b"]),
        ("!tier", vec!["c"]),
        ("tier%3Dweb,v+in+(1,2)", vec!["a"]),
        ("tier!%3Dweb", vec!["b", "c"]),
        ("tier%3D%3Ddb", vec!["b"]),
        ("v%3E0", vec!["a"]),
        ("v%3C1", vec![]),
        ("", vec!["a", "b", "c"]),
    ] {
        let (code, list) = raw
            .get(&format!("{CONFIG_MAPS}?labelSelector={selector}"))
            .await;
        assert_eq!((code, names(&list)), (200, expect), "{selector}");
    }
}

#[tokio::test]
async fn fields_of_each_kind_select() {
    let raw = admin().await;
    let core = "/api/v1/namespaces/default";
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = json!("n1");
    bound["spec"]["restartPolicy"] = json!("Never");
    let event = |name: &str, reason: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "type": "Normal",
            "reason": reason, "involvedObject": {"kind": "Pod", "name": name, "namespace": "default", "uid": "u"}})
    };
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": {}});
    let node = |name: &str, unschedulable: bool| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": unschedulable}});
    for (path, object) in [
        (PODS.to_owned(), pod("free")),
        (PODS.to_owned(), bound),
        (format!("{core}/events"), event("one", "Pulled")),
        (format!("{core}/events"), event("two", "Killed")),
        (format!("{core}/secrets"), secret("plain", "Opaque")),
        (format!("{core}/secrets"), secret("other", "example.com/x")),
        ("/api/v1/nodes".to_owned(), node("n1", false)),
        ("/api/v1/nodes".to_owned(), node("n2", true)),
    ] {
        let (code, answer) = raw.post(&path, object).await;
        assert_eq!(code, 201, "{path}: {answer}");
    }
    for (path, selector, expect) in [
        (PODS, "spec.nodeName=n1", vec!["bound"]),
        (PODS, "spec.nodeName=", vec!["free"]),
        (PODS, "spec.nodeName!=n1", vec!["free"]),
        (PODS, "status.phase=Pending", vec!["bound", "free"]),
        (PODS, "status.phase=Running", vec![]),
        (PODS, "spec.restartPolicy=Never", vec!["bound"]),
        (
            PODS,
            "spec.schedulerName=default-scheduler,metadata.name=free",
            vec!["free"],
        ),
        (
            PODS,
            "spec.serviceAccountName=default,spec.nodeName=n1",
            vec!["bound"],
        ),
        (PODS, "metadata.namespace=other", vec![]),
        (
            "/api/v1/pods",
            "metadata.namespace=default,metadata.name=free",
            vec!["free"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "involvedObject.name=one",
            vec!["one"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "reason=Killed,type=Normal",
            vec!["two"],
        ),
        (
            "/api/v1/namespaces/default/events",
            "involvedObject.kind=Pod,involvedObject.uid=u",
            vec!["one", "two"],
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            "regarding.name=one",
            vec!["one"],
        ),
        (
            "/api/v1/namespaces/default/secrets",
            "type=example.com/x",
            vec!["other"],
        ),
        ("/api/v1/nodes", "spec.unschedulable=true", vec!["n2"]),
        ("/api/v1/nodes", "metadata.name=n1", vec!["n1"]),
        ("/api/v1/namespaces", "status.phase=Terminating", vec![]),
    ] {
        let encoded = selector.replace('=', "%3D").replace(',', "%2C");
        let (code, list) = raw.get(&format!("{path}?fieldSelector={encoded}")).await;
        assert_eq!((code, names(&list)), (200, expect), "{path} {selector}");
    }
    for (path, selector) in [(PODS, "spec.image=x"), ("/api/v1/nodes", "status.phase=x")] {
        let (code, status) = raw
            .get(&format!(
                "{path}?fieldSelector={}",
                selector.replace('=', "%3D")
            ))
            .await;
        assert_eq!(
            (code, &status["message"]),
            (
                400,
                &json!(format!(
                    "field label not supported: {}",
                    selector.trim_end_matches("=x")
                ))
            )
        );
    }
}

#[tokio::test]
async fn deletecollection_deletes_what_a_list_would_show() {
    let raw = admin().await;
    for name in ["a", "b", "c", "d"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"keep": (name > "b").to_string()});
        raw.post(CONFIG_MAPS, object).await;
    }
    let (code, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=keep%3Dfalse&dryRun=All"),
            json!({}),
        )
        .await;
    assert_eq!(
        (
            code,
            names(&gone),
            names(&raw.get(CONFIG_MAPS).await.1).len()
        ),
        (200, vec!["a", "b"], 4)
    );
    let (code, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=keep%3Dfalse"),
            json!({}),
        )
        .await;
    assert_eq!(
        (code, &gone["kind"], names(&gone)),
        (200, &json!("ConfigMapList"), vec!["a", "b"])
    );
    let (_, gone) = raw
        .delete(
            &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dc"),
            json!({}),
        )
        .await;
    assert_eq!(
        (names(&gone), names(&raw.get(CONFIG_MAPS).await.1)),
        (vec!["c"], vec!["d"])
    );
    let (_, gone) = raw.delete(CONFIG_MAPS, json!({})).await;
    assert_eq!(
        (names(&gone), names(&raw.get(CONFIG_MAPS).await.1).len()),
        (vec!["d"], 0)
    );
}

#[tokio::test]
async fn accept_and_content_types_are_negotiated() {
    let raw = admin().await;
    let accepted = async |accept: &str| {
        let request = http::Request::get(CONFIG_MAPS)
            .header("accept", accept)
            .body(kube::client::Body::empty())
            .unwrap();
        raw.0.send(request).await.unwrap().status().as_u16()
    };
    for (accept, expect) in [
        ("application/json", 200),
        ("*/*", 200),
        ("application/vnd.kubernetes.protobuf, application/json", 200),
        ("application/vnd.kubernetes.protobuf", 200),
        ("application/yaml", 200),
        ("text/html", 406),
        ("application/json;as=Table;v=v7;g=meta.k8s.io", 406),
    ] {
        assert_eq!(accepted(accept).await, expect, "{accept}");
    }
    let body = config_map("x").to_string();
    for (method, path, kind, expect) in [
        ("POST", CONFIG_MAPS.to_owned(), "text/plain", 415),
        (
            "POST",
            CONFIG_MAPS.to_owned(),
            "application/json; charset=utf-8",
            201,
        ),
        ("PUT", format!("{CONFIG_MAPS}/x"), "application/xml", 415),
        ("PATCH", format!("{CONFIG_MAPS}/x"), "application/json", 415),
        (
            "PATCH",
            format!("{CONFIG_MAPS}/x"),
            "application/merge-patch+json",
            200,
        ),
    ] {
        let (code, answer) = raw.send(method, &path, kind, body.clone()).await;
        assert_eq!(code, expect, "{method} {kind}: {answer}");
        if code == 415 {
            assert_eq!(answer["reason"], "UnsupportedMediaType");
        }
    }
}

#[tokio::test]
async fn head_tells_of_what_get_gives_without_giving_it() {
    let raw = admin().await;
    let got = raw
        .response("GET", "/version", "", "")
        .await
        .into_body()
        .collect_bytes()
        .await
        .unwrap();
    let told = raw.response("HEAD", "/version", "", "").await;
    assert_eq!(
        (told.status(), &told.headers()["content-length"]),
        (
            http::StatusCode::OK,
            &got.len().to_string().parse().unwrap()
        )
    );
    assert_eq!(told.into_body().collect_bytes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn health_tells_of_the_other_parts_and_readiness_does_not_depend_on_them() {
    let server = testing::server().await;
    let raw = Raw::of(&server, UserInfo::component("test"));
    let health = |well| server.health().tell("controllers", well);
    health(true);
    let get = |path: &'static str| raw.get(path);
    assert_eq!(get("/healthz").await, (200, json!("ok")));
    health(false);
    let (code, text) = get("/healthz").await;
    assert_eq!(code, 500);
    assert!(
        text.as_str()
            .unwrap()
            .contains("[-]controllers failed: it has died and is started again\n"),
        "{text}"
    );
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(path).await, (200, json!("ok")), "{path}");
    }
    health(true);
    assert_eq!(
        get("/healthz?verbose")
            .await
            .1
            .as_str()
            .unwrap()
            .lines()
            .filter(|line| line.contains("controllers ok"))
            .count(),
        1
    );
}
