//! Which credentials are tried, and how.

use super::{
    super::*,
    registry::{Lab, kept_in, login, ok},
};

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_tried_one_after_the_other() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Basic dTpw".to_owned());
        answer.challenge = "Basic realm=\"r\"".to_owned();
    });
    let (wrong, right, other) = (
        login(&lab, "/a", "u", "old"),
        login(&lab, "", "u", "p"),
        login(&lab, "/c", "u", "c"),
    );
    assert!(
        lab.pull(std::slice::from_ref(&wrong))
            .await
            .expect_err("refused")
            .contains("access denied")
    );
    let record = lab
        .pull(&[right.clone(), wrong, other])
        .await
        .expect("pull");
    assert!(
        record
            .access
            .values()
            .all(|keys| *keys == [fingerprint(&right)].into()),
        "{:?}",
        record.access
    );
    let shown: Vec<_> = lab
        .server
        .asked("/manifests/1")
        .into_iter()
        .filter_map(|(_, shown)| shown)
        .collect();
    assert_eq!(shown, ["Basic dTpvbGQ=", "Basic dTpvbGQ=", "Basic dTpw"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_is_exchanged_for_a_token_in_a_body() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.put("/token", ok(r#"{"access_token":"t"}"#));
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\"",
        lab.server.address
    );
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Bearer t".to_owned());
        answer.challenge = challenge;
    });
    let auth = RegistryAuth {
        identity_token: "secret".into(),
        ..login(&lab, "", "", "")
    };
    lab.pull(&[auth]).await.expect("pull");
    assert_eq!(lab.server.asked("/token"), [("/token".to_owned(), None)]);
    let auth = RegistryAuth {
        registry_token: "t".into(),
        ..login(&lab, "", "", "")
    };
    lab.pull(&[auth]).await.expect("pull");
    assert_eq!(lab.server.asked("/token").len(), 1);
}

#[test]
fn few_of_many_credentials_are_tried() {
    let registries = Registries::default();
    let image = reference::parse("r.test/a/b:1").expect("name");
    let endpoint = &registries.endpoints("r.test")[0];
    let auth = |password: usize| {
        let auth = RegistryAuth {
            registry: "r.test".into(),
            username: "u".into(),
            ..RegistryAuth::default()
        };
        kept_in(
            "s",
            "1",
            RegistryAuth {
                password: password.to_string(),
                ..auth
            },
        )
    };
    let many: Vec<_> = (0..4000).map(|n| auth(n % 1000)).collect();
    let tried = credentials(&registries, endpoint, &image, &many);
    assert_eq!(tried.len(), CREDENTIALS_MAX);
    assert!(
        tried.iter().all(|(_, access)| access.len() == 1),
        "its secret is named once"
    );
}
