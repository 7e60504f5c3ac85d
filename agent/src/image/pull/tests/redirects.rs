//! Where a registry sends the node, and who gets to see credentials on the way.

use super::registry::{Answer, Lab, Server, ok, redirect};

#[tokio::test(flavor = "multi_thread")]
async fn token_is_fetched_from_the_realm_and_shown_to_the_registry_only() {
    let Some(lab) = Lab::new().await else { return };
    // Another host by name, as far as credentials go.
    let (realm, blobs) = (
        Server::start("127.0.0.2").await,
        Server::start("127.0.0.3").await,
    );
    realm.put("/token", ok(r#"{"token":"t"}"#));
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\",scope=\"repository:x:push\"",
        realm.address
    );
    for path in [
        "/v2/a/b/manifests/1",
        &lab.manifest,
        &lab.config,
        &lab.layer,
    ] {
        lab.server.change(path, |answer| {
            answer.authorization = Some("Bearer t".to_owned());
            answer.challenge.clone_from(&challenge);
        });
    }
    let layer = lab.server.answers.lock()[&lab.layer].body.clone();
    lab.server.change(&lab.layer, |answer| {
        answer.status = 307;
        answer
            .headers
            .push(("Location", format!("http://{}/elsewhere", blobs.address)));
    });
    blobs.put("/elsewhere", ok(layer));
    lab.pull(&lab.login()).await.expect("pull");
    assert_eq!(
        *realm.asked.lock(),
        [(
            "/token?service=s&scope=repository%3Aa%2Fb%3Apull".to_owned(),
            Some("Basic dTpw".to_owned())
        )]
    );
    assert_eq!(*blobs.asked.lock(), [("/elsewhere".to_owned(), None)]);
    assert!(
        lab.server
            .asked("")
            .iter()
            .all(|(_, shown)| shown.as_deref() != Some("Basic dTpw"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_shown_on_request_and_to_the_registry_only() {
    let Some(lab) = Lab::new().await else { return };
    let blobs = Server::start("127.0.0.2").await;
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Basic dTpw".to_owned());
        answer.challenge = "Basic realm=\"r\"".to_owned();
    });
    let layer = std::mem::replace(
        lab.server
            .answers
            .lock()
            .get_mut(&lab.layer)
            .expect("layer"),
        redirect(format!("http://{}/elsewhere", blobs.address)),
    );
    // Asks for what only the registry may have.
    blobs.put(
        "/elsewhere",
        Answer {
            authorization: Some("Basic dTpw".to_owned()),
            challenge: "Basic realm=\"r\"".to_owned(),
            ..layer.clone()
        },
    );
    let error = lab.pull(&lab.login()).await.expect_err("refused");
    assert!(error.contains("access denied"), "{error}");
    assert_eq!(*blobs.asked.lock(), [("/elsewhere".to_owned(), None)]);
    blobs.put("/elsewhere", layer);
    lab.pull(&lab.login()).await.expect("pull");
    let error = lab.pull(&[]).await.expect_err("no password");
    assert!(error.contains("access denied"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_cannot_send_the_node_to_inner_addresses() {
    let Some(lab) = Lab::new().await else { return };
    for to in [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1%25eth0]/",
        "http://0.0.0.0/",
        "ftp://x/y",
    ] {
        lab.server
            .put("/v2/a/b/manifests/1", redirect(to.to_owned()));
        let error = lab.pull(&[]).await.expect_err(to);
        assert!(
            error.contains("sends to") || error.contains("redirect to"),
            "{to}: {error}"
        );
        lab.server.put(
            "/v2/a/b/manifests/1",
            Answer {
                authorization: Some("nothing".to_owned()),
                challenge: format!("Bearer realm=\"{to}\",service=\"s\""),
                ..ok("")
            },
        );
        let error = lab.pull(&lab.login()).await.expect_err(to);
        assert!(
            error.contains("sends to") || error.contains("token realm"),
            "{to}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_challenges_end() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.put(
        "/v2/a/b/manifests/1",
        redirect("/v2/a/b/manifests/1".to_owned()),
    );
    assert!(lab.pull(&[]).await.expect_err("loop").contains("redirects"));
    lab.server.put("/token", ok(r#"{"token":"never enough"}"#));
    let challenge = format!("Bearer realm=\"http://{}/token\"", lab.server.address);
    lab.server.put(
        "/v2/a/b/manifests/1",
        Answer {
            authorization: Some("Bearer other".to_owned()),
            challenge,
            ..ok("")
        },
    );
    assert!(
        lab.pull(&[])
            .await
            .expect_err("denied")
            .contains("access denied")
    );
    assert_eq!(lab.server.asked("/token").len(), 1);
    lab.server.put(
        "/token",
        Answer {
            endless: true,
            ..ok("")
        },
    );
    assert!(
        lab.pull(&[])
            .await
            .expect_err("endless token")
            .contains("longer than")
    );
}
