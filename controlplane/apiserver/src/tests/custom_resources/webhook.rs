//! A kind whose versions a webhook turns into one another: `spec.hostPort` of v1, in which it is
//! stored, is `spec.host` and `spec.port` of v2.

mod apply;
mod failures;
mod way_of_a_post;

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_registry::{
    converter::{CallConverter, NoAnswer, ReviewVersion},
    custom_resource::WebhookConversion,
    strategy::ScalePaths,
};
use http::{Request, header};
use parking_lot::Mutex;

use super::*;

pub(in crate::tests) const ENDS: &str = "/apis/example.org/v1/namespaces/default/ends";
pub(in crate::tests) const ENDS_V2: &str = "/apis/example.org/v2/namespaces/default/ends";

/// A webhook that can be told to do wrong.
pub(in crate::tests) struct Webhook {
    calls: AtomicUsize,
    objects: AtomicUsize,
    mode: Mutex<Mode>,
}

#[derive(Clone, Copy, PartialEq)]
pub(in crate::tests) enum Mode {
    Works,
    Refuses,
    Hangs,
    SaysTheWrongUid,
    /// Its answer is too long if it has more than so many objects.
    AnswersAtMost(usize),
}

#[async_trait]
impl CallConverter for Webhook {
    async fn call(&self, review: Vec<u8>, _: Duration) -> Result<Bytes, NoAnswer> {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let mode = *self.mode.lock();
        let objects = review["request"]["objects"].as_array().unwrap();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.objects.fetch_add(objects.len(), Ordering::Relaxed);
        let uid = match mode {
            Mode::Works => review["request"]["uid"].clone(),
            Mode::SaysTheWrongUid => "other".into(),
            Mode::Refuses => return Err("connection refused".to_owned().into()),
            Mode::AnswersAtMost(most) if objects.len() > most => {
                return Err(NoAnswer {
                    why: "the answer is too long".to_owned(),
                    is_too_long: true,
                });
            }
            Mode::AnswersAtMost(_) => review["request"]["uid"].clone(),
            Mode::Hangs => std::future::pending().await,
        };
        let objects: Vec<Value> = objects.iter().map(converted).collect();
        let answer = json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": {
            "uid": uid, "result": {"status": "Success"}, "convertedObjects": objects}});
        Ok(answer.to_string().into())
    }
}

/// Also of what is not whole: of an object without what an applier names no more.
fn converted(object: &Value) -> Value {
    let mut object = object.clone();
    let is_v1 = object["apiVersion"] == "example.org/v1";
    let version = if is_v1 {
        "example.org/v2"
    } else {
        "example.org/v1"
    };
    object["apiVersion"] = version.into();
    let Some(spec) = object["spec"].as_object_mut() else {
        return object;
    };
    let mut take = |field: &str| Some(spec.remove(field)?.as_str()?.to_owned());
    let made = if is_v1 {
        take("hostPort").map(|both| {
            let (host, port) = both.split_once(':').unwrap();
            vec![("host", host.to_owned()), ("port", port.to_owned())]
        })
    } else {
        let both = take("host").zip(take("port"));
        both.map(|(host, port)| vec![("hostPort", format!("{host}:{port}"))])
    };
    for (field, value) in made.into_iter().flatten() {
        spec.insert(field.to_owned(), value.into());
    }
    object
}

fn end_version(name: &str, fields: &[&str]) -> CustomResourceVersion {
    let mut spec = json!({"type": "object", "required": fields, "properties": {
        "replicas": {"type": "integer", "default": 1}}});
    for field in fields {
        spec["properties"][*field] = json!({"type": "string"});
    }
    let path = |part: &str| vec![part.to_owned(), "replicas".to_owned()];
    CustomResourceVersion {
        scale: Some(ScalePaths {
            spec_replicas: path("spec"),
            status_replicas: path("status"),
            selector: None,
        }),
        subresources: vec![Subresource::Status, Subresource::Scale],
        selectable_fields: fields.iter().map(|field| format!("spec.{field}")).collect(),
        ..version(
            name,
            spec,
            vec![column("Host", "string", &format!(".spec.{}", fields[0]))],
        )
    }
}

fn end_v1() -> CustomResourceVersion {
    end_version("v1", &["hostPort"])
}

fn end_v2() -> CustomResourceVersion {
    end_version("v2", &["host", "port"])
}

fn ends(storage: CustomResourceVersion, other: CustomResourceVersion) -> CustomResource {
    CustomResource {
        info: ApiResource::new("example.org", "", "End", "ends"),
        storage,
        others: vec![other],
        conversion: Some(WebhookConversion {
            definition: "ends.example.org".to_owned(),
            client_config: json!({}),
            review: ReviewVersion::V1,
        }),
        definition: None,
        rule_metrics: RuleMetrics::default(),
    }
}

pub(in crate::tests) fn end(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "End", "metadata": {"name": name},
        "spec": {"hostPort": host_port}})
}

pub(in crate::tests) fn end_in_v2(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "example.org/v2", "kind": "End", "metadata": {"name": name},
        "spec": {"host": host, "port": port}})
}

pub(in crate::tests) async fn served() -> (Arc<ApiServer>, Raw, Arc<Webhook>) {
    served_as(ends(end_v1(), end_v2())).await
}

async fn served_as(kind: CustomResource) -> (Arc<ApiServer>, Raw, Arc<Webhook>) {
    let server = testing::server().await;
    let webhook = Arc::new(Webhook {
        calls: AtomicUsize::new(0),
        objects: AtomicUsize::new(0),
        mode: Mutex::new(Mode::Works),
    });
    serve(&server, kind, &webhook).await;
    let admin = Raw::of(&server, UserInfo::master("test"));
    (server, admin, webhook)
}

async fn serve(server: &Arc<ApiServer>, kind: CustomResource, webhook: &Arc<Webhook>) {
    let caller = Arc::clone(webhook) as Arc<dyn CallConverter>;
    let coming = custom_resources::Coming { kind, ends: false };
    let kinds = vec![(coming, Some(caller))];
    let mut served = custom_resources::serve_with(&server.state, kinds).await;
    served.pop().unwrap().unwrap();
}

impl Webhook {
    pub(in crate::tests) fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    pub(in crate::tests) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
    }
}

/// The names in a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn each_verb_speaks_the_version_of_its_path_and_one_is_stored() {
    let (server, admin, webhook) = served().await;
    let (code, made) = admin.post(ENDS_V2, end_in_v2("a", "h", "1")).await;
    assert_eq!((code, &made["spec"]["host"]), (201, &json!("h")), "{made}");
    let path = format!("{ENDS_V2}/a");
    let mut sent = made.clone();
    sent["spec"]["port"] = "2".into();
    let apply = |field: &str| format!("{path}?fieldManager={field}&force=true");
    let applied = end_in_v2("a", "h", "4").to_string();
    let kind = "application/apply-patch+yaml";
    let status = json!({"status": {"phase": "Up"}});
    let answers = [
        admin.put(&path, sent).await,
        admin.merge(&path, json!({"spec": {"port": "3"}})).await,
        admin.merge(&format!("{path}/status"), status).await,
        admin.send("PATCH", &apply("m"), kind, applied).await,
        admin.get(&path).await,
    ];
    for (code, answer) in &answers {
        assert_eq!(
            (*code, &answer["apiVersion"]),
            (200, &json!("example.org/v2")),
            "{answer}"
        );
    }
    let scale = format!("{path}/scale");
    let (code, scaled) = admin.merge(&scale, json!({"spec": {"replicas": 5}})).await;
    assert_eq!(
        (code, &scaled["spec"]["replicas"]),
        (200, &json!(5)),
        "{scaled}"
    );
    assert_eq!(admin.get(&scale).await.1["spec"]["replicas"], 5);
    let (_, in_v1) = admin.get(&format!("{ENDS}/a")).await;
    assert_eq!(in_v1["apiVersion"], "example.org/v1");
    assert_eq!(in_v1["spec"], json!({"hostPort": "h:4", "replicas": 5}));
    assert_eq!(in_v1["status"], json!({"phase": "Up"}));
    let key = "/registry/example.org/ends/default/a";
    let stored = server.state.store.backend.get(key).await.unwrap().unwrap();
    let stored: Value = serde_json::from_slice(&stored.value).unwrap();
    assert_eq!(stored["spec"]["hostPort"], "h:4");
    // What changes nothing writes nothing.
    let (_, now) = admin.get(&path).await;
    let (_, again) = admin.put(&path, now.clone()).await;
    assert_eq!(again, now);
    let (code, refused) = admin
        .post(
            ENDS_V2,
            json!({"apiVersion": "example.org/v2", "kind": "End",
        "metadata": {"name": "b"}, "spec": {"host": "h"}}),
        )
        .await;
    assert_eq!(code, 422, "{refused}");
    webhook.calls();
    // The version in which all is stored asks nobody.
    let (_, list) = admin.get(ENDS).await;
    assert_eq!((names(&list), webhook.calls()), (vec!["a"], 0));
    let (code, gone) = admin.delete(&path, json!({})).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
}

#[tokio::test]
async fn a_list_is_converted_in_batches_and_once() {
    let (_server, admin, webhook) = served().await;
    for name in ["a", "b", "c"] {
        admin.post(ENDS, end(name, &format!("h:{name}"))).await;
    }
    webhook.calls();
    webhook.objects.store(0, Ordering::Relaxed);
    for _ in 0..2 {
        let (code, list) = admin.get(ENDS_V2).await;
        assert_eq!(
            (code, &list["items"][2]["spec"]["port"]),
            (200, &json!("c")),
            "{list}"
        );
        assert_eq!(
            list["items"][0]["metadata"]["resourceVersion"]
                .as_str()
                .map(str::is_empty),
            Some(false)
        );
    }
    assert_eq!(
        (webhook.calls(), webhook.objects.load(Ordering::Relaxed)),
        (1, 3)
    );
    let table = Request::get(ENDS_V2).header(
        header::ACCEPT,
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    );
    let table = admin
        .0
        .request_text(table.body(Vec::new()).unwrap())
        .await
        .unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    assert_eq!(table["rows"][1]["cells"][1], "h");
    // Only what has changed is converted anew.
    admin
        .merge(&format!("{ENDS}/b"), json!({"spec": {"hostPort": "g:9"}}))
        .await;
    let (_, list) = admin.get(ENDS_V2).await;
    assert_eq!(list["items"][1]["spec"]["host"], "g");
    assert_eq!(
        (webhook.calls(), webhook.objects.load(Ordering::Relaxed)),
        (1, 4)
    );
}

#[tokio::test]
async fn an_event_is_converted_once_for_all_who_watch() {
    let (_server, admin, webhook) = served().await;
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(watch(&admin, ENDS_V2).await);
    }
    let mut in_v1 = watch(&admin, ENDS).await;
    admin.post(ENDS, end("a", "h:1")).await;
    webhook.calls();
    for watch in &mut watches {
        let event = within(watch.next()).await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["spec"]["port"]),
            (&json!("ADDED"), &json!("1"))
        );
    }
    assert_eq!(webhook.calls(), 1);
    assert_eq!(
        within(in_v1.next()).await.unwrap()["object"]["spec"]["hostPort"],
        "h:1"
    );
}

#[tokio::test]
async fn fields_are_those_of_the_version_of_the_request() {
    let (_server, admin, _webhook) = served().await;
    for (name, host_port) in [("a", "h:1"), ("b", "g:1"), ("c", "h:2")] {
        admin.post(ENDS, end(name, host_port)).await;
    }
    let by = |path: &str, field: &str| format!("{path}?fieldSelector={field}");
    let (_, list) = admin.get(&by(ENDS_V2, "spec.host%3Dh")).await;
    assert_eq!(names(&list), ["a", "c"]);
    let (_, list) = admin
        .get(&by(ENDS_V2, "spec.host%3Dh,spec.port!%3D1"))
        .await;
    assert_eq!(names(&list), ["c"]);
    let (_, list) = admin.get(&by(ENDS, "spec.hostPort%3Dg:1")).await;
    assert_eq!(names(&list), ["b"]);
    assert_eq!(admin.get(&by(ENDS, "spec.host%3Dh")).await.0, 400);
    let path = format!("{}&watch=true&rest=", by(ENDS_V2, "spec.host%3Dg"));
    let mut events = watch(&admin, &path).await;
    let next = within(events.next()).await.unwrap();
    assert_eq!(
        (&next["type"], &next["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("b"))
    );
    for (host_port, kind, port) in [
        ("g:5", "ADDED", "5"),
        ("g:6", "MODIFIED", "6"),
        ("h:7", "DELETED", "6"),
    ] {
        admin
            .merge(
                &format!("{ENDS}/a"),
                json!({"spec": {"hostPort": host_port}}),
            )
            .await;
        let event = within(events.next()).await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["spec"]["port"]),
            (&json!(kind), &json!(port)),
            "{event}"
        );
    }
    let (code, _) = admin.delete(&by(ENDS_V2, "spec.host%3Dh"), json!({})).await;
    assert_eq!(code, 200);
    assert_eq!(names(&admin.get(ENDS).await.1), ["b"]);
}
