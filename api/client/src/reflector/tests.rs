//! What a reflector asks, and what it makes of the answers.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{raw::LISTED, *};

type Asked = Arc<Mutex<Vec<String>>>;

/// A server that gives these answers one after the other, and the revisions it was asked for.
fn server(answers: Vec<(u16, String)>) -> (Reflector<ConfigMap>, Asked) {
    let asked = Asked::default();
    let (seen, answers) = (Arc::clone(&asked), Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let what = match (value("watch"), value("sendInitialEvents")) {
            (Some("true"), Some("true")) => "stream".to_owned(),
            (Some("true"), _) => format!(
                "watch from {}",
                value("resourceVersion").unwrap_or_default()
            ),
            _ => format!("list {}", value("continue").unwrap_or_default()),
        };
        seen.lock().push(what);
        let (code, body) = answers.lock().pop_front().expect("no more questions");
        let response = http::Response::builder()
            .status(code)
            .body(Body::from(body.into_bytes()))
            .expect("valid");
        async move { Ok::<_, Infallible>(response) }
    });
    let api = Api::default_namespaced(Client::new(service, "default"));
    (Reflector::new(api, Selection::all()), asked)
}

fn line(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn object(name: &str, revision: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "resourceVersion": revision});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn mark(revision: &str, is_listed: bool) -> String {
    let annotations = if is_listed {
        json!({LISTED: "true"})
    } else {
        json!({})
    };
    let metadata = json!({"resourceVersion": revision, "annotations": annotations});
    line(
        "BOOKMARK",
        &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}),
    )
}

fn refusal(code: u16) -> (u16, String) {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "message": "no", "code": code}).to_string(),
    )
}

/// The next events in words, failures among them.
async fn told(reflector: &mut Reflector<ConfigMap>, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..count {
        let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
        words.push(match reflector.next().await {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitApply(object)) => format!("has {}", name(&object)),
            Ok(Event::InitDone) => "listed".to_owned(),
            Ok(Event::Apply(object)) => format!("apply {}", name(&object)),
            Ok(Event::Delete(object)) => format!("delete {}", name(&object)),
            Ok(Event::Progress(revision)) => format!("at {revision}"),
            Err(_) => "failed".to_owned(),
        });
    }
    words
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_where_it_was() {
    let first = [
        line("ADDED", &object("a", "3")),
        mark("5", true),
        line("ADDED", &object("b", "7")),
    ]
    .concat();
    let second = [mark("9", false), line("DELETED", &object("a", "11"))].concat();
    let third = line("MODIFIED", &object("b", "12"));
    let (mut reflector, asked) = server(vec![(200, first), (200, second), (200, third)]);
    let expected = [
        "init", "has a", "listed", "at 5", "apply b", "at 9", "delete a", "apply b",
    ];
    assert_eq!(told(&mut reflector, expected.len()).await, expected);
    assert_eq!(*asked.lock(), ["stream", "watch from 7", "watch from 11"]);
}

#[tokio::test]
async fn what_fails_is_asked_again_and_what_is_too_old_listed_anew() {
    let listed = mark("5", true);
    let gone = line(
        "ERROR",
        &json!({"kind": "Status", "status": "Failure", "message": "too old", "code": 410}),
    );
    let answers = vec![
        refusal(500),
        (200, listed.clone()),
        refusal(503),
        (200, gone),
        (200, listed),
        refusal(410),
    ];
    let (mut reflector, asked) = server([answers, vec![(200, mark("8", true))]].concat());
    let expected = [
        "failed", "init", "listed", "at 5", "failed", "failed", "init", "listed", "at 5", "failed",
        "init", "listed", "at 8",
    ];
    assert_eq!(told(&mut reflector, expected.len()).await, expected);
    assert_eq!(
        *asked.lock(),
        [
            "stream",
            "stream",
            "watch from 5",
            "watch from 5",
            "stream",
            "watch from 5",
            "stream"
        ]
    );
}

#[tokio::test]
async fn a_list_that_breaks_off_is_no_list() {
    let half = line("ADDED", &object("a", "3"));
    let whole = [line("ADDED", &object("b", "4")), mark("5", true)].concat();
    let (mut reflector, _) = server(vec![(200, half), (200, whole)]);
    let expected = ["init", "has a", "failed", "init", "has b", "listed", "at 5"];
    assert_eq!(told(&mut reflector, expected.len()).await, expected);
}

#[tokio::test]
async fn where_lists_are_not_streamed_they_come_by_pages() {
    let page = |name: &str, next: &str, revision: &str| {
        let metadata = json!({"continue": next, "resourceVersion": revision});
        json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [object(name, "3")]})
            .to_string()
    };
    let watched = line("ADDED", &object("c", "8"));
    let answers = vec![
        refusal(422),
        (200, page("a", "more", "7")),
        (200, page("b", "", "7")),
        (200, watched),
    ];
    let (mut reflector, asked) = server(answers);
    let expected = ["init", "has a", "has b", "listed", "at 7", "apply c"];
    assert_eq!(told(&mut reflector, expected.len()).await, expected);
    assert_eq!(
        *asked.lock(),
        ["stream", "list ", "list more", "watch from 7"]
    );
}

#[tokio::test]
async fn a_watch_that_brings_nothing_is_a_failure() {
    let (mut reflector, _) = server(vec![
        (200, mark("5", true)),
        (200, String::new()),
        (200, mark("6", false)),
    ]);
    let expected = ["init", "listed", "at 5", "failed", "at 6"];
    assert_eq!(told(&mut reflector, expected.len()).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again() {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let api = Api::<ConfigMap>::default_namespaced(Client::new(service, "default"));
    let mut reflector = Reflector::new(api, Selection::all());
    for _ in 0..2 {
        let failure = reflector.next().await.expect_err("nothing answers");
        assert_eq!(
            failure.to_string(),
            "watch from the beginning: no answer within 60 s"
        );
    }
}
