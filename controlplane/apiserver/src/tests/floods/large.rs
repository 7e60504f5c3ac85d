//! What is large is worked on beside everything else.

use http::StatusCode;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bodies_are_refused_and_nobody_waits_for_it() {
    let server = testing::server().await;
    let alias = format!(
        "kind: SelfSubjectAccessReview\nspec:\n  nonResourceAttributes:\n    verb: &a \"{}\"\n",
        "x".repeat(100_000)
    );
    let aliases: String = (0..20_000).map(|at| format!("    k{at}: *a\n")).collect();
    let bodies = [
        ("application/yaml", "{a: ".repeat(150_000)),
        ("application/yaml", "[".repeat(3 << 20)),
        ("application/json", "[".repeat(3 << 20)),
        (
            "application/yaml",
            format!("{alias}metadata:\n  annotations:\n{aliases}"),
        ),
    ];
    // All that there is for large bodies is taken: those of the attack wait.
    let cores = server.state.limits.take_cores().await;
    // One user has no room for all of them.
    let attack: Vec<_> = bodies
        .iter()
        .cycle()
        .take(8)
        .enumerate()
        .map(|(at, (kind, body))| {
            let user = Raw::outside(&server, UserInfo::new(format!("u{at}"), &[]));
            let (kind, body) = (*kind, body.clone());
            coracle_telemetry::spawn("task of a test", async move {
                user.send("POST", REVIEWS, kind, body).await
            })
        })
        .collect();
    let admin = Raw::outside(&server, UserInfo::master("admin"));
    let rest = async {
        while server.state.limits.large_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(admin.get(PODS).await.0, 200);
        assert!(
            attack.iter().all(|request| !request.is_finished()),
            "nobody waited for them"
        );
        drop(cores);
        // While they are looked at, others are answered as well.
        assert_eq!(admin.get(PODS).await.0, 200);
        for request in attack {
            let (code, answer) = request.await.unwrap();
            assert_eq!(code, 400, "{answer}");
        }
    };
    tokio::time::timeout(HUNG, rest).await.unwrap();
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Method, name of the ConfigMap (empty for all), content type (of a read what is accepted), body.
type Sent = (&'static str, &'static str, &'static str, &'static str);

/// The code of the answer to the user with this number.
async fn send(server: &Arc<ApiServer>, at: usize, (method, name, kind, body): Sent) -> StatusCode {
    let user = Raw::outside(server, UserInfo::new(format!("u{at}"), &[]));
    let path = if name.is_empty() {
        CONFIG_MAPS.to_owned()
    } else {
        format!("{CONFIG_MAPS}/{name}")
    };
    let header = if method == "GET" {
        "accept"
    } else {
        "content-type"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header, kind)
        .body(kube::client::Body::from(body.as_bytes().to_vec()));
    user.0.send(request.unwrap()).await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_request_about_a_large_object_is_a_large_one() {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    open_to_everybody(&admin).await;
    for (name, bytes) in [("small", 10), ("large", 300_000)] {
        let mut object = config_map(name);
        object["data"]["n"] = "x".repeat(bytes).into();
        assert_eq!(admin.post(CONFIG_MAPS, object).await.0, 201);
    }
    // From here on the cache has them.
    assert_eq!(admin.get(CONFIG_MAPS).await.0, 200);
    let cores = server.state.limits.take_cores().await;
    let (merge, json) = (
        "application/merge-patch+json",
        "application/json-patch+json",
    );
    let label = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let copy = r#"[{"op":"copy","from":"/data/n","path":"/data/m"}]"#;
    let small = [
        ("PATCH", "small", merge, label),
        ("GET", "small", TABLE, ""),
        ("GET", "large", "application/json", ""),
        ("GET", "", "application/json", ""),
    ];
    for (at, request) in small.into_iter().enumerate() {
        assert_eq!(
            tokio::time::timeout(HUNG, send(&server, at, request))
                .await
                .unwrap(),
            200,
            "{request:?} waits for nobody"
        );
    }
    let large = [
        ("PATCH", "large", merge, label),
        ("PATCH", "small", json, copy),
        ("GET", "large", TABLE, ""),
        ("DELETE", "large", "", ""),
    ];
    for (at, request) in large.into_iter().enumerate() {
        let before = server.state.limits.large_bytes();
        let mut waiting = send(&server, at, request).boxed();
        let waits = async {
            while server.state.limits.large_bytes() == before {
                assert!(
                    futures::poll!(waiting.as_mut()).is_pending(),
                    "{request:?} did not wait"
                );
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(HUNG, waits).await.unwrap();
    }
    // Of what is made as it is sent each piece waits, and what has come by then is there.
    let user = Raw::outside(&server, UserInfo::new("reader", &[]));
    let request = Request::get(CONFIG_MAPS).header("accept", TABLE);
    let request = request.body(kube::client::Body::empty()).unwrap();
    let answer = user.0.send(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body().collect_bytes().boxed();
    for _ in 0..100 {
        assert!(
            futures::poll!(body.as_mut()).is_pending(),
            "it did not wait"
        );
        tokio::task::yield_now().await;
    }
    drop(cores);
    let text = tokio::time::timeout(HUNG, body).await.unwrap().unwrap();
    assert!(text.ends_with(b"]}\n"));
}
