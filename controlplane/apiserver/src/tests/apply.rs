//! Server-side apply over the wire, and that no way of writing passes admission by.

mod admission;

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod};
use crate::{ApiServer, testing};

const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

impl Raw {
    async fn apply(&self, path: &str, manager: &str, config: Value) -> (u16, Value) {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={manager}"),
            APPLY,
            config.to_string(),
        )
        .await
    }

    async fn force(&self, path: &str, manager: &str, config: Value) -> (u16, Value) {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={manager}&force=true"),
            APPLY,
            config.to_string(),
        )
        .await
    }
}

fn data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

/// `manager operation subresource` of each entry, sorted.
fn managers(object: &Value) -> Vec<String> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut managers: Vec<String> = entries
        .iter()
        .map(|entry| {
            format!(
                "{} {} {}",
                text(entry, "manager"),
                text(entry, "operation"),
                text(entry, "subresource")
            )
            .trim_end()
            .to_owned()
        })
        .collect();
    managers.sort();
    managers
}

/// What a manager owns.
fn fields_of<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    &entries
        .iter()
        .find(|entry| entry["manager"] == manager)
        .unwrap()["fieldsV1"]
}

#[tokio::test]
async fn who_applies_to_what_is_there_need_not_name_it() {
    let raw = admin().await;
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}});
    let path = format!("{CONFIG_MAPS}/a");
    let (code, answer) = raw.apply(&path, "m", nameless.clone()).await;
    let why = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!((code, answer["message"].as_str()), (400, Some(why)));
    raw.apply(&path, "n", data(json!({"y": "2"}))).await;
    let (code, answer) = raw.apply(&path, "m", nameless).await;
    assert_eq!((code, &answer["data"]), (200, &json!({"x": "1", "y": "2"})));
    assert_eq!(answer["metadata"]["name"], "a");
    assert_eq!(managers(&answer), ["m Apply", "n Apply"]);
}

#[tokio::test]
async fn apply_makes_changes_and_removes() {
    let raw = admin().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, made) = raw
        .apply(&path, "m", data(json!({"x": "1", "y": "2"})))
        .await;
    assert_eq!(
        (code, managers(&made)),
        (201, vec!["m Apply".to_owned()]),
        "{made}"
    );
    let (code, same) = raw
        .apply(&path, "m", data(json!({"x": "1", "y": "2"})))
        .await;
    assert_eq!(
        (code, &same["metadata"]),
        (200, &made["metadata"]),
        "nothing is written"
    );
    let (code, changed) = raw.apply(&path, "m", data(json!({"x": "3"}))).await;
    assert_eq!((code, &changed["data"]), (200, &json!({"x": "3"})));
    let (code, answer) = raw.apply(&path, "n", data(json!({"x": "4"}))).await;
    assert_eq!(
        (
            code,
            answer["message"].as_str().unwrap(),
            answer["details"]["causes"][0]["reason"].as_str().unwrap()
        ),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"m\": .data.x",
            "FieldManagerConflict"
        ),
    );
    let (code, forced) = raw.force(&path, "n", data(json!({"x": "4"}))).await;
    assert_eq!((code, &forced["data"]["x"]), (200, &json!("4")));
    assert_eq!(managers(&forced), ["n Apply"]);
}

#[tokio::test]
async fn other_writes_own_what_they_change() {
    let raw = admin().await;
    let path = format!("{DEPLOYMENTS}/d");
    let made = raw
        .post(
            &format!("{DEPLOYMENTS}?fieldManager=creator"),
            deployment(json!({"replicas": 1})),
        )
        .await
        .1;
    assert_eq!(managers(&made), ["creator Update"], "{made}");
    let (_, scaled) = raw
        .send(
            "PATCH",
            &format!("{path}/scale?fieldManager=scaler"),
            "application/merge-patch+json",
            r#"{"spec":{"replicas":3}}"#,
        )
        .await;
    assert_eq!(scaled["spec"]["replicas"], 3, "{scaled}");
    let (_, object) = raw.get(&path).await;
    assert_eq!(
        managers(&object),
        ["creator Update", "scaler Update scale"],
        "{object}"
    );
    let (code, answer) = raw
        .apply(&path, "m", deployment(json!({"replicas": 2})))
        .await;
    assert_eq!(code, 409, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("conflict with \"scaler\" with subresource \"scale\" using apps/v1"),
        "{answer}"
    );
    // What a client has not seen stays: an update without the list keeps it.
    let mut copy = object.clone();
    copy["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    copy["spec"]["paused"] = true.into();
    let (code, updated) = raw.put(&format!("{path}?fieldManager=editor"), copy).await;
    assert_eq!(code, 200, "{updated}");
    assert_eq!(
        managers(&updated),
        ["creator Update", "editor Update", "scaler Update scale"]
    );
}

#[tokio::test]
async fn status_is_owned_apart() {
    let raw = admin().await;
    let path = format!("{DEPLOYMENTS}/d");
    let mut config = deployment(json!({}));
    config["status"] = json!({"replicas": 7});
    let (code, made) = raw.apply(&path, "m", config.clone()).await;
    assert_eq!(
        (code, &made["status"]["replicas"]),
        (201, &Value::Null),
        "{made}"
    );
    let (code, answer) = raw.apply(&format!("{path}/status"), "c", config).await;
    assert_eq!(
        (code, &answer["status"]["replicas"]),
        (200, &json!(7)),
        "{answer}"
    );
    assert_eq!(managers(&answer), ["c Apply status", "m Apply"]);
    assert_eq!(
        fields_of(&answer, "c"),
        &json!({"f:status": {"f:replicas": {}}})
    );
    assert_eq!(answer["metadata"]["generation"], 1);
}

#[tokio::test]
async fn what_is_applied_to_a_subresource_of_a_pod_is_owned_there() {
    let raw = admin().await;
    let path = format!("{PODS}/p");
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    raw.post(&format!("{PODS}?fieldManager=creator"), object)
        .await;
    let config = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"no": "no"}}, "spec": spec});
    let more = config(json!({"nodeName": "no", "containers": [
        {"name": "c", "image": "no", "resources": {"requests": {"cpu": "200m"}}}]}));
    let (code, conflict) = raw
        .apply(&format!("{path}/resize"), "m", more.clone())
        .await;
    assert_eq!(code, 409, "{conflict}");
    let (code, resized) = raw.force(&format!("{path}/resize"), "m", more).await;
    let container = &resized["spec"]["containers"][0];
    assert_eq!(
        (code, &container["resources"]["requests"]["cpu"]),
        (200, &json!("200m")),
        "{resized}"
    );
    assert_eq!(
        (&container["image"], &resized["metadata"]["labels"]),
        (&json!("nginx"), &json!({"app": "p"}))
    );
    assert_eq!(managers(&resized), ["creator Update", "m Apply resize"]);
    assert!(
        !fields_of(&resized, "m").to_string().contains("f:image"),
        "{resized}"
    );
    let debugger = config(json!({"ephemeralContainers": [{"name": "d", "image": "busybox"}]}));
    let (code, debugged) = raw
        .apply(&format!("{path}/ephemeralcontainers"), "d", debugger)
        .await;
    assert_eq!(
        (code, &debugged["spec"]["ephemeralContainers"][0]["name"]),
        (200, &json!("d")),
        "{debugged}"
    );
    assert_eq!(
        managers(&debugged),
        [
            "creator Update",
            "d Apply ephemeralcontainers",
            "m Apply resize"
        ]
    );
    let nothing = config(json!({}));
    let (code, removed) = raw
        .apply(&format!("{path}/ephemeralcontainers"), "d", nothing)
        .await;
    assert_eq!(code, 422, "what is there stays: {removed}");
    let (code, _) = raw
        .apply(&format!("{PODS}/q/resize"), "m", {
            let mut other = config(json!({}));
            other["metadata"]["name"] = "q".into();
            other
        })
        .await;
    assert_eq!(code, 404, "nothing is made by way of a subresource");
}

#[tokio::test]
async fn an_approval_can_be_applied() {
    let raw = admin().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = testing::certificate_request("alice", "people");
    let made = raw.post(path, json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {"request": request, "signerName": "example.org/s", "usages": ["client auth"]}}));
    assert_eq!(made.await.0, 201);
    let config = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r", "annotations": {"by": "m"}},
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    let (code, approved) = raw.apply(&format!("{path}/r/approval"), "m", config).await;
    assert_eq!(
        (code, &approved["status"]["conditions"][0]["type"]),
        (200, &json!("Approved")),
        "{approved}"
    );
    assert_eq!(approved["metadata"]["annotations"]["by"], "m");
    assert!(
        managers(&approved).contains(&"m Apply approval".to_owned()),
        "{approved}"
    );
}

#[tokio::test]
async fn an_object_made_by_a_component_is_tracked_from_its_first_apply() {
    let server = testing::server().await;
    let controller = Raw::of(&server, UserInfo::master("system:kube-controller-manager"));
    let (_, made) = controller.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(managers(&made), Vec::<String>::new());
    let raw = Raw::of(&server, UserInfo::master("test"));
    let (code, answer) = raw
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({"n": "1"})))
        .await;
    assert_eq!(code, 409);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("conflict with \"before-first-apply\" using v1"),
        "{answer}"
    );
    let (code, answer) = raw
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({"o": "1"})))
        .await;
    assert_eq!(
        (code, managers(&answer)),
        (
            200,
            vec!["before-first-apply Update".to_owned(), "m Apply".to_owned()]
        )
    );
}

#[tokio::test]
async fn a_bad_configuration_is_refused() {
    let raw = admin().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, answer) = raw
        .send("PATCH", &path, APPLY, data(json!({})).to_string())
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        answer["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let mut unknown = data(json!({}));
    unknown["colour"] = "red".into();
    let (code, answer) = raw.apply(&path, "m", unknown).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            500,
            "failed to create typed patch object (default/a; v1, Kind=ConfigMap): .colour: field not declared in schema"
        )
    );
    let mut applied = data(json!({}));
    applied["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let (code, answer) = raw.apply(&path, "m", applied).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (400, "metadata.managedFields must be nil")
    );
    let (code, _) = raw
        .apply(&format!("{CONFIG_MAPS}/b"), "m", data(json!({})))
        .await;
    assert_eq!(code, 400, "another name than the URL's");
}
