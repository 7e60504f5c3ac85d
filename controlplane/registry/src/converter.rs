//! Kinds whose versions are turned into one another by somebody else: a conversion webhook.
//!
//! ```text
//! write   object of the request's version > webhook > the storage version > store
//! cache   each object in the version in which it is stored: it waits for no webhook
//! read    objects of other versions > webhook, in batches, once for all who read them about then
//! ```
//!
//! A converter that is down, slow or wrong costs those who need it, and nobody else: what is
//! stored, watched and counted in its own version never comes here, and neither does whoever looks
//! at metadata alone. So many calls of one kind are under way at once, so many more wait for their
//! turn, and each has a deadline.
//!
//! Not here: how a webhook is reached ([`CallConverter`] is somebody else's), and conversion by
//! `apiVersion` alone (`storage_version`).
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go` at v1.37.

mod review;
pub(crate) mod versions;

pub use review::ReviewVersion;
pub use versions::Converted;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_api::{
    meta,
    status::{Reason, Status},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::storage_version::Version;
use review::{Question, Wrong, restored, shown_kind};

/// Longest that a call takes, the wait for its turn included. Upstream's is the same.
const DEADLINE: Duration = Duration::from_secs(30);
/// Calls of one kind's webhook at once. An answer has 3 MB at most, of which some 50 MB of values
/// can be made: four of them are bearable.
const AT_ONCE: usize = 4;
/// And so many more wait for their turn. Each has a request or a watch behind it.
const WAITING: usize = 128;
/// Most bytes of what is told of a failure.
const MOST_TOLD: usize = 4096;
/// When one that found no place may try again.
const RETRY_SECS: u32 = 1;

/// Reaches the webhook of a kind.
#[async_trait]
pub trait CallConverter: Send + Sync {
    /// Sends a ConversionReview. The answer is the one that came; of what is wrong with reaching
    /// the webhook the error tells, with its address. `deadline` is how long it may take.
    async fn call(&self, review: Vec<u8>, deadline: Duration) -> Result<Bytes, String>;
}

/// Turns objects of a kind into other versions of it.
pub(crate) struct Converter {
    caller: Arc<dyn CallConverter>,
    review: ReviewVersion,
    /// Those of the definition, such as `example.org/v1`.
    versions: Vec<String>,
    places: Semaphore,
    line: Semaphore,
}

impl Converter {
    pub(crate) fn new(
        caller: Arc<dyn CallConverter>,
        review: ReviewVersion,
        versions: Vec<String>,
    ) -> Self {
        Self {
            caller,
            review,
            versions,
            places: Semaphore::new(AT_ONCE),
            line: Semaphore::new(AT_ONCE + WAITING),
        }
    }

    /// Each object in another version, in one call. Their own may differ.
    ///
    /// # Errors
    /// 500 for what the webhook does wrong, as upstream has it; 429 when too many wait for it.
    pub(crate) async fn convert(
        &self,
        mut objects: Vec<Value>,
        to: &Version,
    ) -> Result<Vec<Value>, Status> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        let of = shown(first);
        let unknown = objects.iter().map(api_version);
        let unknown = unknown.map(str::to_owned).find(|one| !self.knows(one));
        if let Some(unknown) = unknown {
            let what = format!("request to convert CR from an invalid group/version: {unknown}");
            return Err(failure(what));
        }
        let revisions: Vec<Option<Value>> = objects
            .iter_mut()
            .map(|object| meta::remove(object, &["metadata", "resourceVersion"]))
            .collect();
        let uid = uuid::Uuid::new_v4().to_string();
        let question = Question {
            version: self.review,
            uid: &uid,
            desired: &to.api_version,
        };
        let failed = |why: String| failure(format!("conversion webhook for {of} failed: {why}"));
        let answer = self.ask(&of, question.text(&objects)).await?;
        let converted = question.converted(&answer).map_err(failed)?;
        if converted.len() != objects.len() {
            let (is, wanted) = (converted.len(), objects.len());
            return Err(failure(format!(
                "conversion webhook for {of} returned {is} objects, expected {wanted}"
            )));
        }
        let is_one = objects.len() == 1;
        let mut all = Vec::with_capacity(objects.len());
        for (at, (original, converted)) in objects.iter().zip(converted).enumerate() {
            let mut object = restored(original, converted, &to.api_version)
                .map_err(|wrong| failure(told(&of, &wrong, at, is_one)))?;
            to.schema.prune(&mut object);
            if let Some(revision) = &revisions[at] {
                object["metadata"]["resourceVersion"] = revision.clone();
            }
            all.push(object);
        }
        Ok(all)
    }

    fn knows(&self, version: &str) -> bool {
        self.versions.iter().any(|known| known == version)
    }

    async fn ask(&self, of: &str, review: Vec<u8>) -> Result<Bytes, Status> {
        let Ok(_in_line) = self.line.try_acquire() else {
            let what = format!("too many requests wait for the conversion webhook for {of}");
            let status = Status::new(429, Reason::TooManyRequests, what);
            return Err(status.with_retry_after(RETRY_SECS));
        };
        let failed = |why: String| failure(format!("conversion webhook for {of} failed: {why}"));
        let turn = tokio::time::timeout(DEADLINE, self.places.acquire()).await;
        let Ok(Ok(_place)) = turn else {
            let secs = DEADLINE.as_secs();
            return Err(failed(format!("other calls of it took all of {secs} s")));
        };
        match tokio::time::timeout(DEADLINE, self.caller.call(review, DEADLINE)).await {
            Ok(answer) => answer.map_err(failed),
            Err(_) => {
                let secs = DEADLINE.as_secs();
                Err(failed(format!("it did not answer within {secs} s")))
            }
        }
    }
}

fn told(of: &str, wrong: &Wrong, at: usize, is_one: bool) -> String {
    let start = format!("conversion webhook for {of} returned");
    match (wrong, is_one) {
        (Wrong::Object(why), true) => format!("{start} invalid object at index {at}: {why}"),
        (Wrong::Identity(why), true) => format!("{start} invalid object: {why}"),
        (Wrong::Metadata(why), true) => format!("{start} invalid metadata: {why}"),
        (Wrong::Object(why) | Wrong::Identity(why), false) => {
            format!("{start} invalid converted object at index {at}: {why}")
        }
        (Wrong::Metadata(why), false) => {
            format!("{start} invalid metadata in object at index {at}: {why}")
        }
    }
}

/// Upstream knows no better reason for what a webhook does.
fn failure(mut message: String) -> Status {
    // The webhook's words may be megabytes, and everybody who waited for it is told.
    message.truncate(message.floor_char_boundary(MOST_TOLD));
    Status::new(500, Reason::Unknown, message)
}

fn api_version(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

fn shown(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    shown_kind(api_version(object), kind)
}

/// Whatever a webhook answers, what is believed of it is the object that was asked about, in the
/// version that was asked for.
#[cfg(feature = "fuzzing")]
pub fn fuzz(answer: &[u8]) {
    let object = serde_json::json!({"kind": "A", "apiVersion": "example.org/v1", "metadata": {
        "name": "a", "namespace": "n", "uid": "u", "generation": 2, "labels": {"a": "b"}}});
    for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
        let question = Question {
            version,
            uid: "0",
            desired: "example.org/v2",
        };
        for converted in question.converted(answer).unwrap_or_default() {
            let Ok(found) = restored(&object, converted, question.desired) else {
                continue;
            };
            assert_eq!(found["apiVersion"], "example.org/v2");
            assert_eq!(found["kind"], object["kind"]);
            for member in ["name", "namespace", "uid", "generation", "finalizers"] {
                assert_eq!(
                    found["metadata"][member], object["metadata"][member],
                    "{member}"
                );
            }
            let texts = crate::texts::validate(&found);
            assert!(texts.is_empty(), "{texts}");
        }
    }
}

#[cfg(test)]
mod tests;
