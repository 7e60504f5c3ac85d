//! What joins a client with what runs comes through admission, too, with its options.

use coracle_admission::Operation;
use serde_json::{Value, json};

use super::{
    super::raw::{PODS, Raw},
    SERVICES,
    recorder::{Recorder, world},
};

/// Asks, and says what both looks have seen of it: resource, object and options. The pod is on no
/// node and the others are not there: as far as it gets without a network.
async fn connect(
    (alice, recorder): (&Raw, &Recorder),
    method: &str,
    path: &str,
    code: u16,
) -> (String, String, Value) {
    let (answered, answer) = alice.send(method, path, "", "").await;
    assert_eq!(answered, code, "{path}: {answer}");
    let (mutating, validating) = recorder.take();
    assert_eq!(mutating, validating, "{path}");
    let [look] = &mutating[..] else {
        panic!("{path}: {mutating:?}");
    };
    assert_eq!(
        (look.operation, &*look.user),
        (Operation::Connect, "alice"),
        "{path}"
    );
    (
        look.resource.clone(),
        look.object.clone(),
        look.content.clone(),
    )
}

fn options(kind: &str, mut rest: Value) -> Value {
    (rest["kind"], rest["apiVersion"]) = (kind.into(), "v1".into());
    rest
}

#[tokio::test]
async fn what_joins_a_client_with_a_pod_is_a_connect() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    for (method, below, kind, rest) in [
        (
            "GET",
            "exec?command=ls&command=-l&stdout=true&tty=false&container=c",
            "PodExecOptions",
            json!({"command": ["ls", "-l"], "stdout": true, "container": "c"}),
        ),
        (
            "POST",
            "exec?command=ls&stdin=1",
            "PodExecOptions",
            json!({"command": ["ls"], "stdin": true}),
        ),
        (
            "GET",
            "attach?stdout=true&tty=true",
            "PodAttachOptions",
            json!({"stdout": true, "tty": true}),
        ),
        (
            "POST",
            "portforward?ports=80,81&ports=82",
            "PodPortForwardOptions",
            json!({"ports": [80, 81, 82]}),
        ),
    ] {
        let path = format!("{PODS}/web/{below}");
        let seen = connect((&alice, &recorder), method, &path, 400).await;
        let (subresource, _) = below.split_once('?').unwrap();
        let expect = (
            format!("pods/{subresource}"),
            "default/web".to_owned(),
            options(kind, rest),
        );
        assert_eq!(seen, expect);
    }
}

#[tokio::test]
async fn what_goes_through_a_proxy_is_a_connect() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    let service = format!("{SERVICES}/https:none:443/proxy/x");
    for (method, path, code, resource, object, kind, rest) in [
        (
            "GET",
            &*format!("{PODS}/web/proxy/a%20b/?c=d"),
            400,
            "pods/proxy",
            "default/web",
            "PodProxyOptions",
            json!({"path": "/a b/"}),
        ),
        (
            "HEAD",
            &*format!("{PODS}/web/proxy"),
            301,
            "pods/proxy",
            "default/web",
            "PodProxyOptions",
            json!({}),
        ),
        (
            "DELETE",
            &*format!("{PODS}/web/proxy"),
            400,
            "pods/proxy",
            "default/web",
            "PodProxyOptions",
            json!({}),
        ),
        (
            "PUT",
            &*service,
            404,
            "services/proxy",
            "default/https:none:443",
            "ServiceProxyOptions",
            json!({"path": "/x"}),
        ),
        (
            "GET",
            "/api/v1/nodes/none/proxy/metrics",
            404,
            "nodes/proxy",
            "/none",
            "NodeProxyOptions",
            json!({"path": "/metrics"}),
        ),
    ] {
        let seen = connect((&alice, &recorder), method, path, code).await;
        let expect = (resource.to_owned(), object.to_owned(), options(kind, rest));
        assert_eq!(seen, expect);
    }
}

#[tokio::test]
async fn nothing_is_joined_to_see_what_would_happen() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    let path = format!("{PODS}/web/exec?command=ls&stdout=1&dryRun=All");
    let (code, refused) = alice.get(&path).await;
    assert_eq!(
        (code, &refused["message"]),
        (400, &json!("dryRun is not supported"))
    );
    assert_eq!(recorder.take(), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn logs_and_reads_are_nobodys_matter() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    assert_eq!(alice.get(&format!("{PODS}/web/log")).await.0, 204);
    assert_eq!(alice.get(&format!("{PODS}/web/status")).await.0, 200);
    assert_eq!(recorder.take(), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn what_a_plugin_makes_of_the_options_counts() {
    let (_server, alice, _) = world(Recorder::choosing("other")).await;
    let (code, refused) = alice
        .get(&format!("{PODS}/web/exec?command=ls&stdout=1&container=c"))
        .await;
    assert_eq!(
        (code, &refused["message"]),
        (400, &json!("container other is not valid for pod web"))
    );
}
