//! What a registry is asked again for, and whom.

use super::{
    super::*,
    registry::{Answer, Lab, Server, refused},
};

const TAG: &str = "/v2/a/b/manifests/1";

fn busy(status: u16, retry_after: &str) -> Answer {
    Answer {
        headers: vec![("Retry-After", retry_after.to_owned())],
        ..refused(status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_cannot_answer_now_is_asked_again() {
    let Some(lab) = Lab::new().await else { return };
    let passing = |path: &str, before: Vec<Answer>| {
        lab.server.change(path, |answer| answer.before = before);
    };
    passing(TAG, vec![refused(503), busy(429, "0"), refused(408)]);
    passing(&lab.manifest, vec![refused(500), refused(500)]);
    passing(&lab.config, vec![refused(502)]);
    passing(&lab.layer, vec![busy(429, "0"), refused(504)]);
    lab.pull(&[]).await.expect("pull");
    let asked = |path: &str| lab.server.asked(path).len();
    assert_eq!(
        [TAG, &lab.manifest, &lab.config, &lab.layer].map(asked),
        [4, 3, 2, 3]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realm_that_cannot_answer_now_is_asked_again() {
    let Some(lab) = Lab::new().await else { return };
    let token = Answer {
        before: vec![busy(429, "0")],
        ..super::registry::ok(r#"{"token":"t"}"#)
    };
    lab.server.put("/token", token);
    let challenge = format!("Bearer realm=\"http://{}/token\"", lab.server.address);
    lab.server.change(TAG, |answer| {
        answer.authorization = Some("Bearer t".to_owned());
        answer.challenge = challenge;
    });
    lab.pull(&[]).await.expect("pull");
    assert_eq!(lab.server.asked("/token").len(), 2);
}

/// An answer; how often it is asked for, whether the registry is unavailable then, and what it is.
type Case = (Answer, usize, bool, fn(&RegistryError) -> bool);

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_as_what_it_is() {
    let Some(lab) = Lab::new().await else { return };
    let cases: [Case; 6] = [
        (refused(404), 1, false, |error| {
            matches!(error, RegistryError::NotFound { .. })
        }),
        (refused(401), 1, false, |error| {
            matches!(error, RegistryError::Denied { .. })
        }),
        (
            refused(400),
            1,
            false,
            |error| matches!(error, RegistryError::Status { status, .. } if status.as_u16() == 400),
        ),
        (
            refused(500),
            5,
            true,
            |error| matches!(error, RegistryError::Unwell { status, .. } if status.as_u16() == 500),
        ),
        (busy(429, "0"), 5, false, |error| {
            matches!(error, RegistryError::TooManyRequests { .. })
        }),
        // Too far away to wait for.
        (busy(429, "61"), 1, false, |error| {
            matches!(error, RegistryError::TooManyRequests { retry_after: Some(after), .. }
                if after.as_secs() == 61)
        }),
    ];
    for (answer, asked, is_unavailable, is_told) in cases {
        let status = answer.status;
        lab.server.put(TAG, answer);
        lab.server.asked.lock().clear();
        let error = lab.try_pull(&[]).await.expect_err("refused");
        assert_eq!(lab.server.asked(TAG).len(), asked, "{status}: {error:?}");
        assert_eq!(error.is_unavailable(), is_unavailable, "{error:?}");
        let PullError::Resolve { reference, source } = error else {
            panic!("{status}: {error:?}")
        };
        assert!(is_told(&source), "{status}: {source:?}");
        assert_eq!(reference, format!("{}/a/b:1", lab.server.address));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_another_endpoint_does_not_wait_for_the_first() {
    let Some(mut lab) = Lab::new().await else {
        return;
    };
    let mirror = Server::start("127.0.0.2").await;
    let file = format!(
        "mirrors: {{ \"{}\": {{ endpoint: [\"http://{}\"] }} }}",
        lab.server.address, mirror.address
    );
    let path = lab.dir.path().join("registries.yaml");
    std::fs::write(&path, file).expect("file");
    lab.registries = Registries::load(&path).expect("valid");
    mirror.put(TAG, refused(503));
    lab.pull(&[]).await.expect("pull");
    assert_eq!(mirror.asked("").len(), 1);

    // What both say is told.
    lab.server.put(TAG, refused(404));
    let error = lab.try_pull(&[]).await.expect_err("nobody has it");
    assert!(!error.is_unavailable(), "one answers");
    let PullError::Endpoints(answers) = &error else {
        panic!("{error:?}")
    };
    let hosts: Vec<_> = answers.iter().map(|(host, _)| host).collect();
    assert_eq!(hosts, [&mirror.address, &lab.server.address]);
    let reference = format!("{}/a/b:1", lab.server.address);
    assert_eq!(
        error.to_string(),
        format!(
            "{}: failed to resolve reference \"{reference}\": unexpected status 503 Service Unavailable; \
             {}: failed to resolve reference \"{reference}\": {reference}: not found",
            mirror.address, lab.server.address
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_at_a_registrys_address_is_an_unavailable_registry() {
    let Some(lab) = Lab::new().await else { return };
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bind");
    let address = nobody.local_addr().expect("address").to_string();
    drop(nobody);
    let error = lab.pull_at(&address, "a/b:1", &[]).await;
    let error = error.expect_err("nobody there");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(matches!(
        error,
        PullError::Resolve {
            source: RegistryError::Unreachable { .. },
            ..
        }
    ));
}
