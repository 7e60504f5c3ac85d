//! Calls over real connections, to webhooks that answer, lie, err and are silent.

mod server;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::net::TcpListener;

use self::server::{Behaviour, Identity, Server, To};
use crate::{
    CallError, ClientConfig, Credentials, ServiceReference, Target, Webhooks, words::MAX_ANSWER,
};

const LONG: Duration = Duration::from_secs(20);
const NAME: &str = "hook.ns.svc";

fn service(name: &str, bundle: &[u8]) -> ClientConfig {
    ClientConfig {
        target: Target::Service(ServiceReference {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            port: 443,
            path: "/mutate/".to_owned(),
        }),
        ca_bundle: bundle.to_vec(),
        credentials: Credentials::default(),
    }
}

/// Calls the Service `hook` where there is such a server; the answer, or what is said.
async fn ask(identity: Identity, behaviour: Behaviour, timeout: Duration) -> String {
    let server = Server::start(identity, behaviour).await;
    let config = service("hook", &server.bundle);
    said(call(&server, &config, timeout).await)
}

async fn call(
    server: &Server,
    config: &ClientConfig,
    timeout: Duration,
) -> Result<Bytes, CallError> {
    let webhooks = Webhooks::new(Arc::new(To(server.address)));
    webhooks.post(config, "{}".into(), timeout).await
}

fn said(answer: Result<Bytes, CallError>) -> String {
    match answer {
        Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
        Err(error) => error.to_string(),
    }
}

fn post(why: &str) -> String {
    format!("Post \"https://{NAME}:443/mutate?timeout=20s\": {why}")
}

#[tokio::test]
async fn a_service_is_asked_under_its_name_and_told_the_deadline() {
    let said = ask(
        Identity::of(&[NAME]),
        Behaviour::Echo,
        Duration::from_millis(9001),
    )
    .await;
    assert_eq!(said, "POST /mutate?timeout=10s hook.ns.svc:443 {}");
}

#[tokio::test]
async fn a_url_is_asked_where_it_leads() {
    let server = Server::start(Identity::of(&["localhost", "127.0.0.1"]), Behaviour::Echo).await;
    let url = format!("https://{}/a/b", server.address);
    let config = ClientConfig {
        target: Target::Url(url),
        ca_bundle: server.bundle.clone(),
        credentials: Credentials::default(),
    };
    let answer = said(call(&server, &config, LONG).await);
    let expect = format!("POST /a/b?timeout=20s {} {{}}", server.address);
    assert_eq!(answer, expect);
}

#[tokio::test]
async fn connections_are_used_again_until_the_other_side_goes() {
    for (behaviour, connections) in [(Behaviour::Echo, 1), (Behaviour::SaysOnce, 3)] {
        let server = Server::start(Identity::of(&[NAME]), behaviour).await;
        let config = service("hook", &server.bundle);
        let webhooks = Webhooks::new(Arc::new(To(server.address)));
        for _ in 0..3 {
            webhooks.post(&config, "{}".into(), LONG).await.unwrap();
        }
        assert_eq!((server.connections(), server.requests()), (connections, 3));
    }
}

#[tokio::test]
async fn who_does_not_answer_is_given_up_and_holds_up_nobody_else() {
    let hanging = Server::start(Identity::of(&[NAME]), Behaviour::Hangs).await;
    let webhooks = Webhooks::new(Arc::new(To(hanging.address)));
    let config = service("hook", &hanging.bundle);
    let given_up = webhooks.post(&config, "{}".into(), Duration::from_millis(300));
    let echo = Server::start(Identity::of(&["127.0.0.1"]), Behaviour::Echo).await;
    let other = ClientConfig {
        target: Target::Url(format!("https://{}", echo.address)),
        ca_bundle: echo.bundle.clone(),
        credentials: Credentials::default(),
    };
    let begun = Instant::now();
    let (given_up, answered) = tokio::join!(given_up, async {
        let answered = webhooks.post(&other, "{}".into(), LONG).await;
        answered.map(|_| begun.elapsed())
    });
    assert_eq!(
        said(given_up),
        "Post \"https://hook.ns.svc:443/mutate?timeout=1s\": context deadline exceeded"
    );
    assert!(answered.unwrap() < Duration::from_millis(300));
}

#[tokio::test]
async fn what_is_no_success_is_told() {
    let says = |code, kind, body: &str| Behaviour::Says(code, kind, body.to_owned().into());
    for (behaviour, expect) in [
        (
            Behaviour::Redirects,
            "the server responded with the status code 302 but did not return more information",
        ),
        (
            says(500, "text/plain", "no\n"),
            "an error on the server (\"no\") has prevented the request from succeeding",
        ),
        (
            says(
                403,
                "application/json",
                r#"{"kind":"Status","status":"Failure","message":"not you"}"#,
            ),
            "not you",
        ),
    ] {
        assert_eq!(ask(Identity::of(&[NAME]), behaviour, LONG).await, expect);
    }
}

#[tokio::test]
async fn an_answer_is_read_to_its_bound() {
    let says = |length: usize| Behaviour::Says(200, "text/plain", vec![b'x'; length].into());
    let whole = ask(Identity::of(&[NAME]), says(MAX_ANSWER), LONG).await;
    assert_eq!(whole.len(), MAX_ANSWER);
    let longer = ask(Identity::of(&[NAME]), says(MAX_ANSWER + 1), LONG).await;
    let expect = format!("the answer is longer than {MAX_ANSWER} bytes");
    assert_eq!(longer, post(&expect));
}

#[tokio::test]
async fn an_answer_that_comes_before_all_was_read_counts() {
    let server = Server::start(Identity::of(&[NAME]), Behaviour::SaysEarly).await;
    let config = service("hook", &server.bundle);
    let webhooks = Webhooks::new(Arc::new(To(server.address)));
    for _ in 0..2 {
        let long = vec![b' '; 16 << 20];
        let answer = webhooks.post(&config, long.into(), LONG).await;
        assert_eq!(said(answer), "early");
    }
    // One that is still being sent to is not used again.
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_told() {
    let said = ask(Identity::of(&[NAME]), Behaviour::BreaksOff, LONG).await;
    assert_eq!(said, post("EOF"));
}

#[tokio::test]
async fn certificates_are_believed_as_in_go() {
    let server = Server::start(Identity::of(&[NAME]), Behaviour::Echo).await;
    let stranger = service("hook", &Identity::of(&[NAME]).bundle);
    assert_eq!(
        said(call(&server, &stranger, LONG).await),
        post("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    );
    let other = ask(Identity::of(&["a.b"]), Behaviour::Echo, LONG).await;
    assert_eq!(
        other,
        post(
            "tls: failed to verify certificate: x509: certificate is valid for a.b, not hook.ns.svc"
        )
    );
    let address = ask(Identity::of(&["10.0.0.1"]), Behaviour::Echo, LONG).await;
    assert!(
        address.ends_with("certificate is valid for 10.0.0.1, not hook.ns.svc"),
        "{address}"
    );
    let old = ask(Identity::until(&[NAME], 2001), Behaviour::Echo, LONG).await;
    assert!(
        old.contains("x509: certificate has expired or is not yet valid: current time ")
            && old.ends_with(" is after 2001-01-01T00:00:00Z"),
        "{old}"
    );
    let own = ask(Identity::own(&[NAME]), Behaviour::Echo, LONG).await;
    assert!(own.starts_with("POST"), "{own}");
    let own = ask(Identity::own(&["a.b"]), Behaviour::Echo, LONG).await;
    assert!(own.contains("certificate is valid for a.b"), "{own}");
}

#[tokio::test]
async fn what_cannot_be_called_is_told() {
    let server = Server::start(Identity::of(&[NAME]), Behaviour::Echo).await;
    let broken = service("hook", b"no PEM");
    assert_eq!(
        said(call(&server, &broken, LONG).await),
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    );
    let missing = service("missing", &server.bundle);
    assert_eq!(
        said(call(&server, &missing, LONG).await),
        "Post \"https://missing.ns.svc:443/mutate?timeout=20s\": service \"missing\" not found"
    );
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let refused = ClientConfig {
        target: Target::Url(format!("https://{address}")),
        ca_bundle: server.bundle.clone(),
        credentials: Credentials::default(),
    };
    assert_eq!(
        said(call(&server, &refused, LONG).await),
        format!(
            "Post \"https://{address}/?timeout=20s\": dial tcp {address}: connect: connection refused"
        )
    );
}

#[tokio::test]
async fn who_does_not_speak_tls_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    coracle_telemetry::spawn("plain", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    let webhooks = Webhooks::new(Arc::new(To(address)));
    let config = service("hook", &Identity::of(&[NAME]).bundle);
    let answer = webhooks.post(&config, "{}".into(), LONG).await;
    let expect = "http: server gave HTTP response to HTTPS client";
    assert_eq!(said(answer), post(expect));
}

#[tokio::test]
async fn who_has_credentials_shows_them() {
    let (certificate, key) = server::client();
    let identity = Identity::of(&["localhost", "127.0.0.1"]);
    let server = Server::of_clients(identity, Behaviour::Who, &certificate).await;
    let config = |credentials| ClientConfig {
        target: Target::Url(format!("https://{}/", server.address)),
        ca_bundle: server.bundle.clone(),
        credentials,
    };
    let known = Credentials {
        authorization: "Bearer secret".to_owned(),
        certificate: certificate.into_bytes(),
        key: key.into_bytes(),
    };
    let answer = said(call(&server, &config(known.clone()), LONG).await);
    assert_eq!(answer, "Bearer secret");
    assert!(!format!("{known:?}").contains("secret"), "{known:?}");
    let nobody = call(&server, &config(Credentials::default()), LONG).await;
    assert!(nobody.is_err(), "{nobody:?}");
    let wrong = Credentials {
        key: b"no key".to_vec(),
        ..known
    };
    let answer = said(call(&server, &config(wrong), LONG).await);
    let expect = "could not get REST client: unable to use the client's key";
    assert_eq!(answer, expect);
}
