use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Answers every request with the code in its path, such as `/404`, or 200.
async fn web_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("address").port();
    coracle_telemetry::spawn("task of a test", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let path = request.uri().path().trim_start_matches('/');
                if let Some(target) = path.strip_prefix("to/") {
                    let target =
                        target.replace("HOST", request.headers()["host"].to_str().expect("text"));
                    let response = Response::builder().status(302).header("Location", target);
                    return Ok::<_, Infallible>(
                        response
                            .body(Full::new(Bytes::from_static(b"gone")))
                            .expect("response"),
                    );
                }
                let code = path.parse().unwrap_or(200);
                let code = if request
                    .headers()
                    .get("x-secret")
                    .is_some_and(|value| value == "1")
                {
                    204
                } else {
                    code
                };
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(code)
                        .body(Full::new(Bytes::new()))
                        .expect("response"),
                )
            });
            coracle_telemetry::spawn(
                "task of a test",
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    port
}

fn action(json: serde_json::Value) -> HTTPGetAction {
    serde_json::from_value(json).expect("action")
}

#[tokio::test]
async fn http_probes_judge_by_status_code() {
    let port = web_server().await;
    let cases = [
        (serde_json::json!({"port": port, "path": "/200"}), true),
        (serde_json::json!({"port": port, "path": "/404"}), false),
        (serde_json::json!({"port": port, "path": "/500"}), false),
        (
            serde_json::json!({"port": port, "path": "/500", "httpHeaders": [{"name": "X-Secret", "value": "1"}]}),
            true,
        ),
        (serde_json::json!({"port": "web"}), true),
        (serde_json::json!({"port": port, "host": "127.0.0.1"}), true),
    ];
    let container: Container = serde_json::from_value(
        serde_json::json!({"name": "c", "ports": [{"name": "web", "containerPort": port}]}),
    )
    .expect("container");
    for (json, fine) in cases {
        let request =
            http::Request::new(&action(json.clone()), &container, "127.0.0.1".parse().ok())
                .expect("request");
        assert_eq!(
            http::probe(&request, LIMIT).await == Outcome::Success,
            fine,
            "{json}"
        );
    }
}

#[tokio::test]
async fn http_probes_follow_redirects_on_their_host() {
    let port = web_server().await;
    let warning = "Probe terminated redirects, Response body: gone";
    let cases = [
        ("/to//204", Outcome::Success),
        ("/to/http://HOST/204", Outcome::Success),
        (
            "/to//500",
            Outcome::Failure("HTTP probe failed with statuscode: 500".to_owned()),
        ),
        (
            "/to//to//404",
            Outcome::Failure("HTTP probe failed with statuscode: 404".to_owned()),
        ),
        (
            "/to/http://login.example/",
            Outcome::Warning(warning.to_owned()),
        ),
        // A redirect that leads nowhere.
        (
            "/302",
            Outcome::Warning("Probe terminated redirects, Response body: ".to_owned()),
        ),
    ];
    for (path, expected) in cases {
        let action = action(serde_json::json!({"port": port, "path": path}));
        let request = http::Request::new(&action, &Container::default(), "127.0.0.1".parse().ok())
            .expect("request");
        assert_eq!(http::probe(&request, LIMIT).await, expected, "{path}");
    }
}

#[tokio::test]
async fn http_probes_do_not_go_round_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("address").port();
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    coracle_telemetry::spawn("task of a test", async move {
        while let Ok((stream, _)) = listener.accept().await {
            *count.lock() += 1;
            let service = service_fn(|_: Request<hyper::body::Incoming>| async move {
                let response = Response::builder().status(302).header("Location", "/again");
                Ok::<_, Infallible>(response.body(Full::new(Bytes::new())).expect("response"))
            });
            coracle_telemetry::spawn(
                "task of a test",
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    let action = action(serde_json::json!({"port": port}));
    let request = http::Request::new(&action, &Container::default(), "127.0.0.1".parse().ok())
        .expect("request");
    let expected = Outcome::Failure("Get \"/again\": stopped after 10 redirects".to_owned());
    assert_eq!(http::probe(&request, LIMIT).await, expected);
    assert_eq!(*asked.lock(), 10);
}

#[tokio::test]
async fn tcp_probes_connect() {
    let port = web_server().await;
    assert_eq!(tcp::probe("127.0.0.1", port, LIMIT).await, Outcome::Success);
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listen")
        .local_addr()
        .expect("address")
        .port();
    assert!(matches!(
        tcp::probe("127.0.0.1", closed, LIMIT).await,
        Outcome::Failure(_)
    ));
}

#[test]
fn ports_are_found_by_name_and_number() {
    let container: Container = serde_json::from_value(
        serde_json::json!({"name": "c", "ports": [{"name": "web", "containerPort": 80}]}),
    )
    .expect("container");
    let cases = [
        (IntOrString::Int(8080), Some(8080)),
        (IntOrString::String("web".to_owned()), Some(80)),
        (IntOrString::String("81".to_owned()), Some(81)),
        (IntOrString::String("none".to_owned()), None),
        (IntOrString::Int(0), None),
        (IntOrString::Int(70000), None),
    ];
    for (port, expected) in cases {
        assert_eq!(port_number(&port, &container), expected, "{port:?}");
    }
}
