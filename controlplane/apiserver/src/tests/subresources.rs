use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, admin, pod};
use crate::testing;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        }},
    })
}

#[tokio::test]
async fn pod_is_bound_once() {
    let raw = admin().await;
    raw.post(PODS, pod("x")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"},
        "target": {"kind": "Node", "name": "n1"}});
    let (code, answer) = raw
        .post(&format!("{PODS}/x/binding"), binding.clone())
        .await;
    assert_eq!(
        (code, &answer["status"]),
        (201, &json!("Success")),
        "{answer}"
    );
    let (_, bound) = raw.get(&format!("{PODS}/x")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let (code, again) = raw.post(&format!("{PODS}/x/binding"), binding).await;
    assert_eq!(code, 409);
    assert!(
        again["message"]
            .as_str()
            .unwrap()
            .contains("pod x is already assigned to node \"n1\""),
        "{again}"
    );
}

#[tokio::test]
async fn scale_changes_replicas_alone() {
    let raw = admin().await;
    raw.post(DEPLOYMENTS, deployment()).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let (code, scale) = raw.get(&path).await;
    assert_eq!(
        (code, &scale["kind"], &scale["spec"]["replicas"]),
        (200, &json!("Scale"), &json!(2))
    );
    assert_eq!(scale["status"]["selector"], "app=d");
    let (code, patched) = raw.merge(&path, json!({"spec": {"replicas": 5}})).await;
    assert_eq!(
        (code, &patched["spec"]["replicas"]),
        (200, &json!(5)),
        "{patched}"
    );
    let (code, stale) = raw.put(&path, scale).await;
    assert_eq!(code, 409, "{stale}");
    let (code, negative) = raw.merge(&path, json!({"spec": {"replicas": -1}})).await;
    assert_eq!(code, 422, "{negative}");
    let (_, object) = raw.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(
        (
            &object["spec"]["replicas"],
            &object["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
}

#[tokio::test]
async fn token_lives_as_long_as_its_account() {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw::of(&listening.server, UserInfo::master("test"));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin
        .post(
            accounts,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
        )
        .await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let (code, answer) = admin
        .post(&format!("{accounts}/robot/token"), request.clone())
        .await;
    assert_eq!(code, 201, "{answer}");
    let mut headers = http::HeaderMap::new();
    let bearer = format!("Bearer {}", answer["status"]["token"].as_str().unwrap());
    headers.insert("authorization", bearer.parse().unwrap());
    let user = listening
        .server
        .state
        .authenticator
        .credentials(None, &headers, async { Ok(()) })
        .await
        .unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:robot");
    assert!(user.is_in("system:serviceaccounts:default"));
    let elsewhere = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"]}});
    let (_, other) = admin
        .post(&format!("{accounts}/robot/token"), elsewhere)
        .await;
    let bearer = format!("Bearer {}", other["status"]["token"].as_str().unwrap());
    headers.insert("authorization", bearer.parse().unwrap());
    assert!(
        listening
            .server
            .state
            .authenticator
            .credentials(None, &headers, async { Ok(()) })
            .await
            .is_err(),
        "another audience"
    );
    let (_, last) = admin
        .post(&format!("{accounts}/robot/token"), request)
        .await;
    admin.delete(&format!("{accounts}/robot"), json!({})).await;
    let bearer = format!("Bearer {}", last["status"]["token"].as_str().unwrap());
    headers.insert("authorization", bearer.parse().unwrap());
    assert!(
        listening
            .server
            .state
            .authenticator
            .credentials(None, &headers, async { Ok(()) })
            .await
            .is_err(),
        "deleted account"
    );
}

#[tokio::test]
async fn certificate_request_says_who_made_it() {
    let server = testing::server().await;
    let joining = Raw::of(
        &server,
        UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers"]),
    );
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let pki = &server.state.config.pki;
    let csr = testing::certificate_request("system:node:n1", "system:nodes");
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "n1"}, "spec": {"request": csr, "username": "forged",
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["digital signature", "client auth"]}});
    let (code, made) = joining.post(path, request).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    assert_eq!(joining.get(PODS).await.0, 403, "may do nothing else");
    assert!(pki.ca_hash().unwrap().len() == 64);
    let admin = Raw::of(&server, UserInfo::master("test"));
    let mut approved = made.clone();
    approved["status"] = json!({"certificate": "Zm9yZ2Vk", "conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
    let (code, answer) = admin.put(&format!("{path}/n1/approval"), approved).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["status"]["conditions"][0]["type"], "Approved");
    assert!(answer["status"]["certificate"].is_null(), "{answer}");
}

#[tokio::test]
async fn logs_and_exec_say_what_is_missing() {
    let raw = admin().await;
    let mut two = pod("two");
    two["spec"]["containers"] = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    raw.post(PODS, two).await;
    raw.post(PODS, pod("one")).await;
    let (code, answer) = raw.get(&format!("{PODS}/two/log")).await;
    assert_eq!(code, 400);
    assert_eq!(
        answer["message"],
        "a container name must be specified for pod two, choose one of: [a b]"
    );
    let (code, answer) = raw.get(&format!("{PODS}/one/log?tailLines=-1")).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(raw.get(&format!("{PODS}/one/log")).await.0, 204);
    let (code, answer) = raw
        .get(&format!("{PODS}/one/exec?command=ls&stdout=true"))
        .await;
    assert_eq!(
        (code, &answer["message"]),
        (400, &json!("pod one does not have a host assigned"))
    );
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test]
async fn ephemeral_containers_are_added_and_stay() {
    let raw = admin().await;
    raw.post(PODS, pod("x")).await;
    let path = format!("{PODS}/x/ephemeralcontainers");
    let patch =
        |containers: Value| json!({"spec": {"ephemeralContainers": containers}}).to_string();
    let debugger = json!([{"name": "debugger", "image": "busybox", "targetContainerName": "c", "stdin": true}]);
    let (code, made) = raw.send("PATCH", &path, STRATEGIC, patch(debugger)).await;
    assert_eq!(code, 200, "{made}");
    let container = &made["spec"]["ephemeralContainers"][0];
    assert_eq!(
        (&container["name"], &container["imagePullPolicy"]),
        (&json!("debugger"), &json!("Always")),
        "{made}"
    );
    let (_, mut without) = raw.get(&path).await;
    without["spec"]
        .as_object_mut()
        .unwrap()
        .remove("ephemeralContainers");
    let (code, answer) = raw.put(&path, without.clone()).await;
    assert_eq!(code, 422);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("existing ephemeral containers \"debugger\" may not be removed"),
        "{answer}"
    );
    let other = json!([{"name": "debugger", "image": "other"}]);
    let (code, answer) = raw.send("PATCH", &path, STRATEGIC, patch(other)).await;
    assert_eq!(code, 422, "{answer}");
    let double = json!([{"name": "c", "image": "busybox"}]);
    let (code, answer) = raw.send("PATCH", &path, STRATEGIC, patch(double)).await;
    assert_eq!(code, 422);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains(".name: Duplicate value"),
        "{answer}"
    );
    let (code, answer) = raw.put(&format!("{PODS}/x"), without).await;
    assert_eq!(code, 422, "not by the pod itself: {answer}");
}

#[tokio::test]
async fn a_resize_changes_resources_alone() {
    let raw = admin().await;
    let mut sized = pod("x");
    sized["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    raw.post(PODS, sized).await;
    let path = format!("{PODS}/x/resize");
    let patch = |resources: Value, image: &str| {
        json!({"spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}})
            .to_string()
    };
    let (code, answer) = raw
        .send(
            "PATCH",
            &path,
            STRATEGIC,
            patch(json!({"requests": {"cpu": "200m"}}), "other"),
        )
        .await;
    assert_eq!(code, 200, "{answer}");
    let container = &answer["spec"]["containers"][0];
    assert_eq!(
        (
            &container["image"],
            &container["resources"]["requests"]["cpu"]
        ),
        (&json!("nginx"), &json!("200m"))
    );
    assert_eq!(answer["metadata"]["generation"], 2);
    let (code, answer) = raw
        .send(
            "PATCH",
            &path,
            STRATEGIC,
            patch(json!({"requests": {"cpu": null}}), "nginx"),
        )
        .await;
    assert_eq!(code, 422);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("resource requests cannot be removed"),
        "{answer}"
    );
    let guaranteed = json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}});
    let (code, answer) = raw
        .send("PATCH", &path, STRATEGIC, patch(guaranteed, "nginx"))
        .await;
    assert_eq!(code, 422);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("Pod QOS Class may not change as a result of resizing"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_pod_is_bound_by_the_old_path_too() {
    let raw = admin().await;
    raw.post(PODS, pod("x")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"}, "target": {"name": "n1"}});
    let (code, answer) = raw
        .post("/api/v1/namespaces/default/bindings", binding)
        .await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(
        raw.get(&format!("{PODS}/x")).await.1["spec"]["nodeName"],
        "n1"
    );
    assert_eq!(raw.get("/api/v1/namespaces/default/bindings").await.0, 405);
}

#[tokio::test]
async fn component_statuses_are_told() {
    let raw = admin().await;
    let (code, list) = raw.get("/api/v1/componentstatuses").await;
    let items = list["items"].as_array().unwrap().iter();
    let names: Vec<_> = items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        (code, names),
        (200, vec!["controller-manager", "scheduler"])
    );
    let (code, one) = raw.get("/api/v1/componentstatuses/scheduler").await;
    assert_eq!(
        (code, &one["conditions"][0]["status"]),
        (200, &json!("True"))
    );
    assert_eq!(raw.get("/api/v1/componentstatuses/nobody").await.0, 404);
}

/// Admission would be shown one namespace by the URL and another by the object.
#[tokio::test]
async fn what_names_another_namespace_than_its_url_is_refused() {
    let raw = admin().await;
    raw.post(PODS, pod("x")).await;
    raw.post(DEPLOYMENTS, deployment()).await;
    let elsewhere = |name: &str| json!({"name": name, "namespace": "kube-system"});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": elsewhere("x"),
        "target": {"kind": "Node", "name": "n1"}});
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": elsewhere("x")});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": elsewhere(""), "spec": {"user": "u",
            "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": elsewhere("d"),
        "spec": {"replicas": 5}});
    let token = |metadata: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata});
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let renamed = "the name of the object (other) does not match the name on the URL (default)";
    let made =
        "the namespace of the provided object does not match the namespace sent on the request";
    let changed = "the namespace of the object (kube-system) does not match the namespace on the URL (default)";
    for (method, path, body, expected) in [
        ("POST", format!("{PODS}/x/binding"), binding, made),
        ("POST", format!("{PODS}/x/eviction"), eviction, made),
        ("POST", reviews.to_owned(), review, made),
        ("PUT", format!("{DEPLOYMENTS}/d/scale"), scale, changed),
        (
            "POST",
            tokens.to_owned(),
            token(elsewhere("default")),
            changed,
        ),
        ("POST", tokens.to_owned(), token(elsewhere("")), changed),
        (
            "POST",
            tokens.to_owned(),
            token(json!({"name": "other"})),
            renamed,
        ),
    ] {
        let (code, answer) = raw.write(method, &path, body).await;
        assert_eq!(
            (code, &answer["message"]),
            (400, &json!(expected)),
            "{method} {path}"
        );
    }
    let (_, pod) = raw.get(&format!("{PODS}/x")).await;
    assert_eq!(pod["spec"]["nodeName"], Value::Null, "{pod}");
}
