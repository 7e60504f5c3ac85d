use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_api::schema::Structural;
use serde_json::{Value, json};

use super::*;

/// Answers with what `answer` makes of a review.
struct Answering<F>(F);

#[async_trait]
impl<F: Fn(&Value) -> Value + Send + Sync> CallConverter for Answering<F> {
    async fn call(&self, review: Vec<u8>, _: Duration) -> Result<Bytes, NoAnswer> {
        let review = serde_json::from_slice(&review).unwrap();
        match (self.0)(&review) {
            Value::String(text) => Ok(text.into()),
            answer => Ok(answer.to_string().into()),
        }
    }
}

fn version(name: &str, property: &str) -> Version {
    let schema = json!({"type": "object", "properties": {property: {"type": "integer"}}});
    Version {
        api_version: format!("example.org/{name}"),
        schema: Structural::read(&schema).unwrap(),
    }
}

fn object(name: &str) -> Value {
    json!({"kind": "A", "apiVersion": "example.org/v1", "old": 1, "metadata": {
        "name": name, "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
        "labels": {"a": "b"}, "annotations": {"c": "d"}}})
}

/// As a webhook answers that does what it should.
fn answered(review: &Value) -> Value {
    let request = &review["request"];
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        object["new"] = object["old"].clone();
        object
    };
    let objects: Vec<Value> = request["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(convert)
        .collect();
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

async fn converted(
    review: ReviewVersion,
    objects: Vec<Value>,
    answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> Result<Vec<Value>, String> {
    let versions = ["example.org/v1", "example.org/v2"].map(str::to_owned);
    let converter = Converter::new(Arc::new(Answering(answer)), review, versions.into());
    let to = version("v2", "new");
    let converting = converter.convert(objects, &to);
    converting.await.map_err(|why| {
        let status = why.status;
        assert_eq!((status.code, status.reason), (500, Reason::Unknown));
        status.message
    })
}

#[tokio::test]
async fn what_is_converted_keeps_its_metadata_and_fits_its_schema() {
    let objects = vec![object("a"), object("b")];
    let answer = |review: &Value| {
        let asked = &review["request"]["objects"][1]["metadata"];
        assert_eq!(
            (&asked["name"], asked.get("resourceVersion")),
            (&json!("b"), None)
        );
        let mut answer = answered(review);
        let first = &mut answer["response"]["convertedObjects"][0];
        first["metadata"]["generation"] = 9.into();
        first["metadata"]["finalizers"] = json!(["its.own/f"]);
        first["metadata"]["labels"] = json!({"x": "y"});
        first["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        answer
    };
    let found = converted(ReviewVersion::V1, objects, answer).await.unwrap();
    let mut expect = object("a");
    expect["apiVersion"] = "example.org/v2".into();
    expect["new"] = 1.into();
    expect.as_object_mut().unwrap().remove("old");
    expect["metadata"]["labels"] = json!({"x": "y"});
    expect["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    assert_eq!(found[0], expect);
    assert_eq!(found[1]["metadata"], object("b")["metadata"]);
}

#[tokio::test]
async fn what_a_webhook_does_wrong_is_told_as_upstream_tells_it() {
    type Wrong = fn(&mut Value);
    let wrongs: [(Wrong, &str); 18] = [
        (
            |a| a["response"]["uid"] = "other".into(),
            " failed: expected response.uid=",
        ),
        (
            |a| a["kind"] = "Pod".into(),
            " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Pod",
        ),
        (
            |a| a["apiVersion"] = "v1".into(),
            " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=ConversionReview",
        ),
        (
            |a| a["response"] = Value::Null,
            " failed: no response provided",
        ),
        (
            |a| a["response"]["result"] = json!({"status": "Failure", "message": "no way"}),
            " failed: no way",
        ),
        (
            |a| a["response"]["result"] = json!({}),
            " failed: response.result.status was '', not 'Success'",
        ),
        (
            |a| a["response"]["convertedObjects"] = json!([]),
            " returned 0 objects, expected 1",
        ),
        (
            |a| a["response"]["convertedObjects"] = Value::Null,
            " returned 0 objects, expected 1",
        ),
        (
            |a| *a = "garbage".into(),
            " failed: the answer is no ConversionReview: ",
        ),
        (
            |a| *a = "x".repeat(3 << 20).into(),
            " failed: the answer is no ConversionReview: ",
        ),
        (
            |a| a["response"]["convertedObjects"][0] = json!({}),
            " returned invalid object at index 0: Object 'Kind' is missing",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["apiVersion"] = "example.org/v3".into(),
            " returned invalid object at index 0: invalid groupVersion (expected example.org/v2, received example.org/v3)",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["kind"] = "B".into(),
            " returned invalid object at index 0: invalid kind (expected A, received B)",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            " returned invalid object: must have the same name: a != b",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["metadata"]["namespace"] = "b".into(),
            " returned invalid object: must have the same namespace: n != b",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["metadata"]["uid"] = "b".into(),
            " returned invalid object: must have the same UID: u != b",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": 1}),
            " returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            |a| a["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": "-"}),
            " returned invalid metadata: metadata.labels: Invalid value: \"-\"",
        ),
    ];
    for (spoil, expect) in wrongs {
        let answer = move |review: &Value| {
            let mut answer = answered(review);
            spoil(&mut answer);
            answer
        };
        let found = converted(ReviewVersion::V1, vec![object("a")], answer)
            .await
            .unwrap_err();
        let expect = format!("conversion webhook for example.org/v1, Kind=A{expect}");
        assert!(found.starts_with(&expect), "{found}\n{expect}");
    }
    let long = |review: &Value| {
        let mut answer = answered(review);
        let message = "é".repeat(1 << 20);
        answer["response"]["result"] = json!({"status": "Failure", "message": message});
        answer
    };
    let found = converted(ReviewVersion::V1, vec![object("a")], long).await;
    let told = found.unwrap_err().len();
    assert!((4000..=super::MOST_TOLD).contains(&told), "{told}");
    let spoilt = |review: &Value| {
        let mut answer = answered(review);
        answer["response"]["convertedObjects"][1]["metadata"]["name"] = "c".into();
        answer
    };
    let both = vec![object("a"), object("b")];
    assert_eq!(
        converted(ReviewVersion::V1, both, spoilt)
            .await
            .unwrap_err(),
        "conversion webhook for example.org/v1, Kind=A returned invalid converted object at index 1: must have the same name: b != c"
    );
}

#[tokio::test]
async fn an_older_review_is_believed_without_its_uid() {
    let answer = |review: &Value| {
        assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1beta1");
        let mut answer = answered(review);
        answer["response"]["uid"] = "".into();
        answer["kind"] = "".into();
        answer
    };
    let found = converted(ReviewVersion::V1Beta1, vec![object("a")], answer).await;
    assert_eq!(found.unwrap().len(), 1);
    assert_eq!(
        ReviewVersion::of(["v2", "v1beta1", "v1"].into_iter()),
        Some(ReviewVersion::V1Beta1)
    );
    assert_eq!(ReviewVersion::of(["v2"].into_iter()), None);
}

#[tokio::test]
async fn a_version_that_nobody_defines_is_not_sent() {
    let mut foreign = object("a");
    foreign["apiVersion"] = "example.org/v0".into();
    let asked = |_: &Value| unreachable!("it is asked");
    assert_eq!(
        converted(ReviewVersion::V1, vec![foreign], asked)
            .await
            .unwrap_err(),
        "request to convert CR from an invalid group/version: example.org/v0"
    );
}

/// Never answers.
#[derive(Default)]
struct Silent(AtomicUsize);

#[async_trait]
impl CallConverter for Silent {
    async fn call(&self, _: Vec<u8>, _: Duration) -> Result<Bytes, NoAnswer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_silent_webhook_are_bounded_and_end() {
    let silent = Arc::new(Silent::default());
    let versions = vec!["example.org/v1".to_owned()];
    let caller = Arc::clone(&silent) as Arc<dyn CallConverter>;
    let converter = Converter::new(caller, ReviewVersion::V1, versions);
    let to = version("v2", "new");
    let calls = (0..AT_ONCE + WAITING + 1).map(|_| converter.convert(vec![object("a")], &to));
    let all = futures::future::join_all(calls).await;
    let codes: Vec<u16> = all
        .iter()
        .map(|one| one.as_ref().unwrap_err().status.code)
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 1);
    assert_eq!(
        codes.iter().filter(|code| **code == 500).count(),
        AT_ONCE + WAITING
    );
    assert!(silent.0.load(Ordering::Relaxed) <= 2 * AT_ONCE);
    let message = &all[0].as_ref().unwrap_err().status.message;
    assert!(
        message.ends_with("it did not answer within 30 s"),
        "{message}"
    );
}

/// Answers, and keeps what has come of each call.
struct Counting<F>(F, parking_lot::Mutex<Vec<(String, Option<Failure>)>>);

#[async_trait]
impl<F: Fn(&Value) -> Result<Value, String> + Send + Sync> CallConverter for Counting<F> {
    async fn call(&self, review: Vec<u8>, _: Duration) -> Result<Bytes, NoAnswer> {
        let review = serde_json::from_slice(&review).unwrap();
        Ok((self.0)(&review)?.to_string().into())
    }

    fn called(&self, outcome: &Outcome<'_>) {
        let way = format!("{} {}", outcome.from_version, outcome.to_version);
        self.1.lock().push((way, outcome.failure));
    }
}

#[tokio::test]
async fn what_has_come_of_a_call_is_told_to_who_counts() {
    let with = |change: fn(&mut Value)| {
        move |review: &Value| {
            let mut answer = answered(review);
            change(&mut answer["response"]["convertedObjects"]);
            answer
        }
    };
    type Answer = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;
    let table: [(Answer, Option<Failure>); 7] = [
        (Box::new(|review| Ok(answered(review))), None),
        (Box::new(|_| Err("refused".to_owned())), Some(Failure::Call)),
        (Box::new(|_| Ok(json!({}))), Some(Failure::Call)),
        (
            Box::new(move |review| Ok(with(|objects| *objects = json!([]))(review))),
            Some(Failure::PartialResponse),
        ),
        (
            Box::new(move |review| Ok(with(|objects| objects[0] = json!(1))(review))),
            Some(Failure::MalformedResponse),
        ),
        (
            Box::new(move |review| Ok(with(|objects| objects[0]["kind"] = "B".into())(review))),
            Some(Failure::InvalidConvertedObject),
        ),
        (
            Box::new(move |review| {
                Ok(with(|objects| objects[0]["metadata"]["labels"] = json!(1))(
                    review,
                ))
            }),
            Some(Failure::InvalidConvertedObject),
        ),
    ];
    for (answer, failure) in table {
        let caller = Arc::new(Counting(answer, parking_lot::Mutex::default()));
        let versions = ["v1", "v2"].map(|name| format!("example.org/{name}"));
        let converter = Converter::new(
            Arc::clone(&caller) as Arc<dyn CallConverter>,
            ReviewVersion::V1,
            versions.into(),
        );
        let converted = converter
            .convert(vec![object("a")], &version("v2", "new"))
            .await;
        assert_eq!(converted.is_ok(), failure.is_none(), "{converted:?}");
        assert_eq!(*caller.1.lock(), [("v1 v2".to_owned(), failure)]);
    }
}
