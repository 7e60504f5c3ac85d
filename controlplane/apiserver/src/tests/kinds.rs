//! Kinds as clients see them, through a whole server in memory.

use coracle_registry::{
    kinds::all,
    strategy::{BuiltIn, Scope, Subresource},
    testing::minimal::minimal,
};
use serde_json::{Value, json};

use crate::testing;

struct Api(kube::Client);

impl Api {
    async fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("accept", accept);
        self.request(request.header("content-type", "application/json"), body)
            .await
    }

    async fn patch(&self, path: &str, format: &str, body: &Value) -> Value {
        let request = http::Request::builder()
            .method("PATCH")
            .uri(path)
            .header("content-type", format);
        self.request(request, Some(body)).await.unwrap()
    }

    async fn request(
        &self,
        request: http::request::Builder,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let of = format!("{:?} {:?}", request.method_ref(), request.uri_ref());
        let body = body
            .map(|body| serde_json::to_vec(body).unwrap())
            .unwrap_or_default();
        let answer = self.0.request::<Value>(request.body(body).unwrap()).await;
        answer.map_err(|error| format!("{of}: {error}"))
    }

    async fn get(&self, path: &str) -> Value {
        self.send("GET", path, "application/json", None)
            .await
            .unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, "application/json", Some(body))
            .await
            .unwrap()
    }
}

pub(super) fn collection(strategy: &dyn BuiltIn) -> String {
    let info = strategy.resource();
    let root = if info.group.is_empty() {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{}/{}", info.group, info.version)
    };
    match info.scope {
        Scope::Namespaced => format!("{root}/namespaces/default/{}", info.plural),
        Scope::Cluster => format!("{root}/{}", info.plural),
    }
}

/// A minimal object as a client would send it.
pub(super) fn sent(strategy: &dyn BuiltIn) -> Value {
    let mut object = minimal(strategy);
    let text = object
        .to_string()
        .replace(r#""namespace":"n""#, r#""namespace":"default""#);
    object = serde_json::from_str(&text).unwrap();
    let name = object["metadata"]["name"].clone();
    object["metadata"] = json!({ "name": name });
    object
}

#[tokio::test]
async fn every_kind_is_made_shown_and_removed() {
    let api = Api(testing::client().await);
    let mut count = 0;
    for strategy in all() {
        let info = strategy.resource();
        if info.kind == "CertificateSigningRequest" || info.kind == "Namespace" {
            continue;
        }
        let made = api.post(&collection(*strategy), &sent(*strategy)).await;
        assert_eq!(
            (&made["kind"], made["metadata"]["uid"].is_string()),
            (&json!(info.kind), true),
            "{made}"
        );
        check_is_shown(&api, *strategy, &made).await;
        check_goes(&api, *strategy, &made).await;
        count += 1;
    }
    eprintln!(
        "{count} of {} kinds were made, shown and removed",
        all().len()
    );
}

/// The path of an object.
fn own_path(strategy: &dyn BuiltIn, object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap();
    format!("{}/{name}", collection(strategy))
}

/// It is read as it was answered, alone, in a list and in a table, and stays so if nothing changes.
async fn check_is_shown(api: &Api, strategy: &dyn BuiltIn, made: &Value) {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (info, path, own) = (
        strategy.resource(),
        collection(strategy),
        own_path(strategy, made),
    );
    let read = api.get(&own).await;
    assert_eq!(&read, made, "{} is stored as it was answered", info.kind);
    let list = api.get(&path).await;
    assert_eq!(list["kind"], format!("{}List", info.kind));
    assert!(
        list["items"].as_array().unwrap().contains(&read),
        "{} is listed",
        info.kind
    );
    let table = api.send("GET", &path, TABLE, None).await.unwrap();
    assert_eq!(
        table["columnDefinitions"].as_array().unwrap().len(),
        strategy.columns().len()
    );
    assert!(!table["rows"].as_array().unwrap().is_empty());
    let again = api.send("PUT", &own, "application/json", Some(&read)).await;
    assert_eq!(
        again.unwrap(),
        read,
        "{}: nothing changed, nothing written",
        info.kind
    );
    if info.subresources.contains(&Subresource::Status) {
        let path = format!("{own}/status");
        let status = api
            .send("PUT", &path, "application/json", Some(&read))
            .await;
        assert_eq!(status.unwrap()["metadata"]["uid"], read["metadata"]["uid"]);
        check_status_is_apart(api, strategy, &own).await;
    }
}

async fn check_goes(api: &Api, strategy: &dyn BuiltIn, made: &Value) {
    let own = own_path(strategy, made);
    let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    api.send("DELETE", &own, "application/json", Some(&now))
        .await
        .unwrap();
    let is_definition = strategy.resource().kind == "CustomResourceDefinition";
    if made["metadata"]["finalizers"].is_array() || is_definition {
        // There is no controller that looks whether it is used, or what there is of it.
        let unprotected = json!({"metadata": {"finalizers": null}});
        let format = "application/merge-patch+json";
        api.patch(&own, format, &unprotected).await;
    }
    let read = api.send("GET", &own, "application/json", None).await;
    assert!(read.is_err(), "{} is gone", strategy.resource().kind);
}

/// A write of the status leaves what is wanted alone and may change metadata, unless the kind keeps
/// that; what is applied there is owned there.
async fn check_status_is_apart(api: &Api, strategy: &dyn BuiltIn, own: &str) {
    let info = strategy.resource();
    let path = format!("{own}/status");
    let before = api.get(own).await;
    let marks = json!({"metadata": {"annotations": {"a": "x"}, "labels": {"l": "x"}}, "spec": {"no": "such"}});
    let marked = api
        .patch(&path, "application/merge-patch+json", &marks)
        .await;
    assert_eq!(marked["spec"], before["spec"], "{}", info.kind);
    assert_eq!(
        marked["metadata"]["generation"], before["metadata"]["generation"],
        "{}",
        info.kind
    );
    let config = json!({"apiVersion": before["apiVersion"], "kind": info.kind,
        "metadata": {"name": before["metadata"]["name"], "annotations": {"b": "x"}}});
    let applied = api
        .patch(
            &format!("{path}?fieldManager=m"),
            "application/apply-patch+yaml",
            &config,
        )
        .await;
    for (field, key) in [("annotations", "a"), ("annotations", "b"), ("labels", "l")] {
        let is_kept = strategy.status_keeps().contains(&field);
        assert_eq!(
            applied["metadata"][field][key].is_null(),
            is_kept,
            "{} {field} {key}",
            info.kind
        );
    }
    let owner = applied["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["manager"] == "m");
    let is_owner = owner.is_some_and(|owner| owner["subresource"] == "status");
    assert_eq!(
        is_owner,
        !strategy.status_keeps().contains(&"annotations"),
        "{}: {applied}",
        info.kind
    );
}

#[tokio::test]
async fn an_autoscaler_is_one_object_in_two_versions() {
    let api = Api(testing::client().await);
    let [v1, v2] = ["v1", "v2"]
        .map(|v| format!("/apis/autoscaling/{v}/namespaces/default/horizontalpodautoscalers"));
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 4, "targetCPUUtilizationPercentage": 60,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let made = api.post(&v1, &object).await;
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 60);
    let mut newer = api.get(&format!("{v2}/h")).await;
    assert_eq!(newer["apiVersion"], "autoscaling/v2");
    assert_eq!(
        newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        60
    );
    assert_eq!(newer["metadata"]["uid"], made["metadata"]["uid"]);
    newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] = json!(70);
    api.send("PUT", &format!("{v2}/h"), "application/json", Some(&newer))
        .await
        .unwrap();
    let older = api.get(&v1).await;
    assert_eq!(older["apiVersion"], "autoscaling/v1");
    assert_eq!(
        older["items"][0]["spec"]["targetCPUUtilizationPercentage"],
        70
    );
    let mut wrong = object;
    wrong["spec"]["maxReplicas"] = json!(0);
    wrong["metadata"]["name"] = json!("i");
    let refused = api
        .send("POST", &v1, "application/json", Some(&wrong))
        .await
        .unwrap_err();
    assert!(
        refused.contains("spec.maxReplicas: Invalid value: 0: must be greater than 0"),
        "{refused}"
    );
}

#[tokio::test]
async fn events_are_selected_by_what_either_group_calls_their_fields() {
    let api = Api(testing::client().await);
    let strategy = all()
        .iter()
        .find(|one| one.resource().group == "events.k8s.io")
        .unwrap();
    let mut event = sent(*strategy);
    event["regarding"]["name"] = json!("p");
    let path = collection(*strategy);
    api.post(&path, &event).await;
    let found = api
        .get(&format!("{path}?fieldSelector=regarding.name%3Dp"))
        .await;
    assert_eq!(found["items"][0]["reportingController"], "c");
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let core = "/api/v1/namespaces/default/events";
    let found = api
        .get(&format!("{core}?fieldSelector=involvedObject.name%3Dp"))
        .await;
    assert_eq!(found["items"][0]["reportingComponent"], "c");
    let found = api
        .get(&format!("{core}?fieldSelector=involvedObject.name%3Dq"))
        .await;
    assert_eq!(found["items"], json!([]));
}

#[tokio::test]
async fn a_replication_controller_scales() {
    let api = Api(testing::client().await);
    let strategy = all()
        .iter()
        .find(|one| one.resource().kind == "ReplicationController")
        .unwrap();
    let path = collection(*strategy);
    api.post(&path, &sent(*strategy)).await;
    let mut scale = api.get(&format!("{path}/a/scale")).await;
    assert_eq!(scale["status"]["selector"], "app=a");
    scale["spec"]["replicas"] = json!(3);
    api.send(
        "PUT",
        &format!("{path}/a/scale"),
        "application/json",
        Some(&scale),
    )
    .await
    .unwrap();
    assert_eq!(api.get(&format!("{path}/a")).await["spec"]["replicas"], 3);
}
