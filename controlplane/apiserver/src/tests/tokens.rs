//! Service-account tokens: what is in them, whom they are for, and when they are no good any more.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::raw::{PODS, Raw, pod};
use crate::{ApiServer, testing};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn world() -> (Arc<ApiServer>, Raw) {
    let server = testing::server().await;
    let admin = Raw::of(&server, UserInfo::master("admin"));
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    assert_eq!(admin.post(ACCOUNTS, account).await.0, 201);
    (server, admin)
}

async fn request(admin: &Raw, spec: Value) -> (u16, Value) {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    admin
        .post(&format!("{ACCOUNTS}/robot/token"), request)
        .await
}

async fn token(admin: &Raw, spec: Value) -> String {
    let (code, answer) = request(admin, spec).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn who(server: &ApiServer, token: &str) -> Option<Arc<UserInfo>> {
    let mut headers = HeaderMap::new();
    headers.insert(
        "authorization",
        HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
    );
    server
        .state
        .authenticator
        .credentials(None, &headers, async { Ok(()) })
        .await
        .ok()
}

async fn review(admin: &Raw, token: &str, audiences: Value) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences}});
    let (code, answer) = admin.post(REVIEWS, review).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

#[tokio::test]
async fn requests_are_bounded_and_answered_in_full() {
    let (_, admin) = world().await;
    assert_eq!(
        request(&admin, json!({"expirationSeconds": 599})).await.0,
        422
    );
    assert_eq!(
        request(&admin, json!({"expirationSeconds": 4_294_967_297_i64}))
            .await
            .0,
        422
    );
    let (_, answer) = request(&admin, json!({})).await;
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(
        answer["spec"]["audiences"],
        json!(["https://kubernetes.default.svc.cluster.local"])
    );
    assert!(answer["status"]["expirationTimestamp"].is_string());
    let unbound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    assert_eq!(request(&admin, unbound).await.0, 404);
    let service = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Service", "name": "p"}});
    assert_eq!(request(&admin, service).await.0, 400);
}

#[tokio::test]
async fn a_token_dies_with_its_pod_and_its_account() {
    let (server, admin) = world().await;
    let mut object = pod("p");
    object["spec"]["serviceAccountName"] = "robot".into();
    object["spec"]["nodeName"] = "n1".into();
    assert_eq!(admin.post(PODS, object).await.0, 201);
    let bound = token(
        &admin,
        json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}),
    )
    .await;
    let free = token(&admin, json!({})).await;
    let user = who(&server, &bound).await.unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:robot");
    let extra = |key: &str| {
        let key = format!("authentication.kubernetes.io/{key}");
        user.extra
            .iter()
            .find(|(own, _)| *own == key)
            .map(|(_, values)| values[0].clone())
            .unwrap_or_default()
    };
    assert_eq!(
        (extra("pod-name").as_str(), extra("node-name").as_str()),
        ("p", "n1")
    );
    assert!(extra("credential-id").starts_with("JTI="));
    admin
        .delete(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0}))
        .await;
    assert!(
        who(&server, &bound).await.is_none(),
        "remembered, but its pod is gone"
    );
    assert!(who(&server, &free).await.is_some());
    admin.delete(&format!("{ACCOUNTS}/robot"), json!({})).await;
    assert!(who(&server, &free).await.is_none(), "the account is gone");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin.post(ACCOUNTS, account).await;
    assert!(
        who(&server, &free).await.is_none(),
        "another account of that name"
    );
}

#[tokio::test]
async fn tokens_are_for_their_audience() {
    let (server, admin) = world().await;
    let vault = token(&admin, json!({"audiences": ["vault", "other"]})).await;
    assert!(who(&server, &vault).await.is_none());
    let status = review(&admin, &vault, json!(["vault"])).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["vault"])),
        "{status}"
    );
    assert_eq!(
        status["user"]["username"],
        "system:serviceaccount:default:robot"
    );
    let status = review(&admin, &vault, json!([])).await;
    assert!(
        status.get("authenticated").is_none() && status["error"].is_string(),
        "{status}"
    );
    let own = token(&admin, json!({})).await;
    assert_eq!(review(&admin, &own, json!([])).await["authenticated"], true);
    assert!(
        review(&admin, "nonsense", json!([]))
            .await
            .get("authenticated")
            .is_none()
    );
}

#[tokio::test]
async fn keys_are_published_for_service_accounts() {
    let (server, _) = world().await;
    let robot = Raw::of(&server, UserInfo::service_account("default", "robot"));
    let (code, configuration) = robot.get("/.well-known/openid-configuration").await;
    assert_eq!(
        (code, &configuration["issuer"]),
        (200, &json!("https://kubernetes.default.svc.cluster.local"))
    );
    assert!(
        configuration["jwks_uri"]
            .as_str()
            .unwrap()
            .ends_with("/openid/v1/jwks")
    );
    let (code, keys) = robot.get("/openid/v1/jwks").await;
    assert_eq!((code, &keys["keys"][0]["kty"]), (200, &json!("EC")));
    assert_eq!(keys["keys"][0]["x"].as_str().unwrap().len(), 43);
    let other = Raw::of(&server, UserInfo::new("alice", &[]));
    assert_eq!(other.get("/openid/v1/jwks").await.0, 403);
}

#[tokio::test]
async fn a_token_secret_gets_a_token_that_lasts_as_long_as_it_does() {
    let (server, admin) = world().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str, account: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}})
    };
    let (code, made) = admin.post(secrets, secret("t", "robot")).await;
    assert_eq!(code, 201, "{made}");
    let decode = |key: &str| {
        use base64::{Engine as _, prelude::BASE64_STANDARD};
        String::from_utf8(
            BASE64_STANDARD
                .decode(made["data"][key].as_str().unwrap())
                .unwrap(),
        )
        .unwrap()
    };
    assert_eq!(decode("namespace"), "default");
    assert!(decode("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(
        made["metadata"]["annotations"]["kubernetes.io/service-account.uid"].is_string(),
        "{made}"
    );
    let token = decode("token");
    assert_eq!(
        who(&server, &token).await.unwrap().name,
        "system:serviceaccount:default:robot"
    );
    let without = json!({"data": {"token": null, "namespace": null, "ca.crt": "b2xk"}});
    let (code, again) = admin.merge(&format!("{secrets}/t"), without).await;
    assert_eq!(
        (code, again["data"]["token"].is_string()),
        (200, true),
        "what is taken out comes back: {again}"
    );
    assert_eq!(
        (&again["data"]["namespace"], &again["data"]["ca.crt"]),
        (&made["data"]["namespace"], &made["data"]["ca.crt"])
    );
    assert_eq!(
        admin.delete(&format!("{secrets}/t"), json!({})).await.0,
        200
    );
    assert!(who(&server, &token).await.is_none(), "its Secret is gone");
    let (code, made) = admin.post(secrets, secret("u", "nobody")).await;
    assert_eq!(
        (code, made["data"]["token"].is_null()),
        (201, true),
        "{made}"
    );
}
