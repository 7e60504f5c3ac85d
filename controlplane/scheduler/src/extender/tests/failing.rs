use std::time::{Duration, Instant};

use super::*;

async fn refused(reply: fn() -> Reply) -> String {
    let server = Server::start(move |_, _| reply()).await;
    let mut says = json!({"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true,
        "httpTimeout": "60s"});
    if matches!(reply(), Reply::Silence | Reply::Stall) {
        says["httpTimeout"] = json!("300ms");
    }
    let cache = cache(&[("a", "4")]);
    let why = place(&framework(&json!([says])), &cache, &small("p")).unwrap_err();
    says["ignorable"] = json!(true);
    let without_it = place(&framework(&json!([says])), &cache, &small("p"));
    assert_eq!(without_it, Ok("a".to_owned()), "{why}");
    why.replace(&server.url, "URL")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_fails_the_attempt_unless_it_may_be_ignored() {
    for (reply, expect) in [
        (
            (|| Reply::Code(500)) as fn() -> Reply,
            "error: failed f with extender at URL URL/f, code 500",
        ),
        (
            || Reply::Code(404),
            "error: failed f with extender at URL URL/f, code 404",
        ),
        (
            || Reply::Code(302),
            "error: failed f with extender at URL URL/f, code 302",
        ),
        (
            || Reply::Silence,
            "error: extender URL/f has not answered within 300ms",
        ),
        (
            || Reply::Stall,
            "error: extender URL/f has not answered within 300ms",
        ),
        (
            || Reply::Flood,
            "error: the answer of extender URL/f is longer than 10",
        ),
        (
            || Reply::Json(json!({"Error": "out of order"})),
            "error: out of order",
        ),
        (
            || Reply::Json(json!({"NodeNames": ["z"]})),
            "error: extender \"URL\" claims a filtered node \"z\" which is not found in the input node list",
        ),
        (
            || Reply::Json(json!({"Nodes": {"items": [{"metadata": {"name": "z"}}]}})),
            "error: extender \"URL\" claims a filtered node \"z\"",
        ),
        (
            || Reply::Json(json!({"NodeNames": "a"})),
            "error: read the answer of extender URL/f: NodeNames: ",
        ),
        (
            || Reply::Text("{\"NodeNames\": [\"a\""),
            "error: read the answer of extender URL/f: ",
        ),
        (
            || Reply::Text(""),
            "error: read the answer of extender URL/f: ",
        ),
    ] {
        let why = refused(reply).await;
        assert!(why.starts_with(expect), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_says_nothing_leaves_no_node() {
    for text in ["null", "{}", "{\"NodeNames\": null, \"FailedNodes\": null}"] {
        let server = Server::start(move |_, _| Reply::Text(text)).await;
        let says = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true}]);
        let why = place(&framework(&says), &cache(&[("a", "4")]), &small("p"));
        assert_eq!(why, Err("0/1 nodes are available:".to_owned()), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_it_says_of_a_node_is_cut() {
    let long = "ä".repeat(5000);
    let server = Server::start(move |_, _| Reply::Json(json!({"FailedNodes": {"a": long}}))).await;
    let says = json!([{"urlPrefix": server.url, "filterVerb": "f", "nodeCacheCapable": true}]);
    let why = place(&framework(&says), &cache(&[("a", "4")]), &small("p")).unwrap_err();
    assert_eq!(why.chars().filter(|c| *c == 'ä').count(), 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_is_there() {
    let gone = Server::start(|_, _| Reply::Silence).await.url;
    let says = json!([{"urlPrefix": gone, "filterVerb": "f"}]);
    let framework = framework(&says);
    // Its port is closed once its task has seen that it is dropped.
    let deadline = Instant::now() + Duration::from_secs(10);
    while tokio::net::TcpStream::connect(gone.trim_start_matches("http://"))
        .await
        .is_ok()
    {
        assert!(Instant::now() < deadline, "the port stays open");
    }
    let why = place(&framework, &cache(&[("a", "4")]), &small("p")).unwrap_err();
    assert!(
        why.starts_with(&format!("error: ask extender {gone}/f: ")),
        "{why}"
    );
}

/// A scheduler that is told to end does not wait for the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_scheduler_ends_the_wait() {
    let stop = CancellationToken::new();
    let end = stop.clone();
    let server = Server::start(move |_, _| {
        end.cancel();
        Reply::Silence
    })
    .await;
    let config = config(
        &json!([{"urlPrefix": server.url, "filterVerb": "f", "httpTimeout": "1h", "ignorable": true}]),
    );
    let one = Box::new(HttpExtender::new(config.extenders[0].clone()));
    let framework = Arc::new(Framework {
        extenders: Arc::new(Extenders::new(vec![one], stop)),
        ..Framework::default()
    });
    let why = place(&framework, &cache(&[("a", "4")]), &small("p"));
    assert_eq!(why, Err("error: the scheduler stops".to_owned()));
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_not_held_up() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let framework = framework(&json!([{"urlPrefix": server.url, "filterVerb": "f"}]));
    let why = place(&framework, &cache(&[("a", "4")]), &small("p")).unwrap_err();
    assert!(why.contains("a runtime of one thread"), "{why}");
}
