//! The tables of `resourceVersion` and `resourceVersionMatch`, row by row, and what else a read may
//! ask for.
//!
//! Source: "Resource Versions" in Kubernetes' API concepts, v1.37.

mod forgotten;
mod selectors;
mod watches;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::{
    raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, grow_old, pod},
    watches::Events,
};
use crate::testing;

/// More events than the cache remembers of a resource at any age.
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
            "resourceVersionMatch=Exact",
            422,
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            422,
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersion=THEN&resourceVersionMatch=Newest",
            422,
            "Unsupported value: \"Newest\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=THEN&continue=TOKEN",
            422,
            "when continue is provided",
        ),
        (
            "resourceVersion=THEN&continue=TOKEN",
            400,
            "not allowed when using continue",
        ),
        (
            "sendInitialEvents=true",
            422,
            "sendInitialEvents is forbidden for list",
        ),
    ] {
        let query = query
            .replace("THEN", &then.to_string())
            .replace("TOKEN", token);
        check_is_refused(&raw, &query, code, message).await;
    }
}

#[tokio::test]
async fn contradicting_parameters_of_watches_are_refused() {
    let raw = admin().await;
    for (query, message) in [
        (
            "watch=1&sendInitialEvents=true",
            "requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            "unless sendInitialEvents is provided",
        ),
    ] {
        check_is_refused(&raw, query, 422, message).await;
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_refused() {
    let raw = admin().await;
    for (query, code, message) in [
        ("continue=nonsense!", 400, "continue key is not valid"),
        ("resourceVersion=x", 422, "invalid"),
        (
            "fieldSelector=spec.nodeName%3Dx",
            400,
            "is not a known field selector",
        ),
        (
            "labelSelector=a%3D%3D%3Db",
            400,
            "unable to parse requirement",
        ),
    ] {
        check_is_refused(&raw, query, code, message).await;
    }
}

async fn check_is_refused(raw: &Raw, query: &str, code: u16, message: &str) {
    let (found, status) = raw.get(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(found, code, "{query}: {status}");
    let said = status["message"].as_str().unwrap();
    assert!(said.contains(message), "{query}: {status}");
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

#[tokio::test(start_paused = true)]
async fn a_token_of_a_version_that_is_not_there_is_refused_at_once() {
    let (raw, _) = history().await;
    let token = crate::list_options::Token::new(999_999, "default/a", None).encode();
    let begun = tokio::time::Instant::now();
    let (code, status) = raw
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(
        status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge",
        "{status}"
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
    let raw = Raw::of(&server, UserInfo::master("test"));
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
            .contains("[-]controllers failed: reason withheld\n"),
        "{text}"
    );
    let why = "internal server error: it has died and is started again\n";
    assert_eq!(get("/healthz/controllers").await, (500, json!(why)));
    assert_eq!(get("/healthz/ping").await, (200, json!("ok")));
    assert_eq!(get("/livez/controllers").await.0, 404);
    let excluding = get("/healthz?exclude=controllers&exclude=x&verbose").await;
    assert_eq!(excluding.0, 200, "{}", excluding.1);
    for line in [
        "[+]controllers excluded: ok",
        "warn: some health checks cannot be excluded: no matches for \"x\"",
        "healthz check passed",
    ] {
        assert!(excluding.1.as_str().unwrap().contains(line), "{line}");
    }
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
