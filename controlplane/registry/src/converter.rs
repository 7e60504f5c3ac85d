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

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

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
    async fn call(&self, review: Vec<u8>, deadline: Duration) -> Result<Bytes, NoAnswer>;

    /// Is told what has come of each call, for who counts.
    fn called(&self, _outcome: &Outcome<'_>) {}
}

/// Why there is no answer.
#[derive(Debug)]
pub struct NoAnswer {
    /// In a sentence, with the webhook's address.
    pub why: String,
    /// It was longer than is read: that to a smaller question may be shorter.
    pub is_too_long: bool,
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self {
            why,
            is_too_long: false,
        }
    }
}

/// What has come of a call.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// Of the first object, such as `v1`.
    pub from_version: &'a str,
    /// In which they were wanted.
    pub to_version: &'a str,
    /// From the request to the last object that was looked at.
    pub took: Duration,
    /// What it has failed for.
    pub failure: Option<Failure>,
}

/// What conversions fail for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There was no answer, or it is none, or says that the webhook has failed.
    Call,
    /// The answer was longer than is read.
    TooLong,
    /// An object in the answer is none.
    MalformedResponse,
    /// There are not as many as were asked for.
    PartialResponse,
    /// One is another object than the one that was asked for.
    InvalidConvertedObject,
}

/// Why nothing was converted.
#[derive(Debug)]
pub(crate) struct Unconverted {
    pub(crate) status: Status,
    /// Of fewer objects the answer may be short enough.
    pub(crate) is_too_long: bool,
}

impl From<Status> for Unconverted {
    fn from(status: Status) -> Self {
        Self {
            status,
            is_too_long: false,
        }
    }
}

impl From<Unconverted> for Status {
    fn from(why: Unconverted) -> Self {
        why.status
    }
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
    ) -> Result<Vec<Value>, Unconverted> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        let of = shown(first);
        let unknown = objects.iter().map(api_version);
        let unknown = unknown.map(str::to_owned).find(|one| !self.knows(one));
        if let Some(unknown) = unknown {
            let what = format!("request to convert CR from an invalid group/version: {unknown}");
            return Err(failure(what).into());
        }
        let revisions: Vec<Option<Value>> = objects
            .iter_mut()
            .map(|object| meta::remove(object, &["metadata", "resourceVersion"]))
            .collect();
        let Ok(_in_line) = self.line.try_acquire() else {
            let what = format!("too many requests wait for the conversion webhook for {of}");
            let status = Status::new(429, Reason::TooManyRequests, what);
            return Err(status.with_retry_after(RETRY_SECS).into());
        };
        let begun = Instant::now();
        let converted = self.converted(&of, &objects, to).await;
        let from_version = objects.first().map(api_version).unwrap_or_default();
        self.caller.called(&Outcome {
            from_version: version(from_version),
            to_version: version(&to.api_version),
            took: begun.elapsed(),
            failure: converted.as_ref().err().map(|(failure, _)| *failure),
        });
        let mut all = converted.map_err(|(why, what)| Unconverted {
            status: failure(what),
            is_too_long: why == Failure::TooLong,
        })?;
        for (object, revision) in all.iter_mut().zip(revisions) {
            to.schema.prune(object);
            if let Some(revision) = revision {
                object["metadata"]["resourceVersion"] = revision;
            }
        }
        Ok(all)
    }

    /// What the webhook makes of objects that have no revision, or why they cannot be had.
    async fn converted(
        &self,
        of: &str,
        objects: &[Value],
        to: &Version,
    ) -> Result<Vec<Value>, (Failure, String)> {
        let uid = uuid::Uuid::new_v4().to_string();
        let question = Question {
            version: self.review,
            uid: &uid,
            desired: &to.api_version,
        };
        let failed = |no: NoAnswer| {
            let what = format!("conversion webhook for {of} failed: {}", no.why);
            match no.is_too_long {
                true => (Failure::TooLong, what),
                false => (Failure::Call, what),
            }
        };
        let answer = self.ask(question.text(objects)).await.map_err(failed)?;
        let converted = question.converted(&answer);
        let converted = converted.map_err(|why| failed(why.into()))?;
        if converted.len() != objects.len() {
            let (is, wanted) = (converted.len(), objects.len());
            let what =
                format!("conversion webhook for {of} returned {is} objects, expected {wanted}");
            return Err((Failure::PartialResponse, what));
        }
        let is_one = objects.len() == 1;
        let pairs = objects.iter().zip(converted).enumerate();
        let restored = pairs.map(|(at, (original, converted))| {
            let failure = match converted.is_object() {
                true => Failure::InvalidConvertedObject,
                false => Failure::MalformedResponse,
            };
            restored(original, converted, &to.api_version)
                .map_err(|wrong| (failure, told(of, &wrong, at, is_one)))
        });
        restored.collect()
    }

    fn knows(&self, version: &str) -> bool {
        self.versions.iter().any(|known| known == version)
    }

    async fn ask(&self, review: Vec<u8>) -> Result<Bytes, NoAnswer> {
        let turn = tokio::time::timeout(DEADLINE, self.places.acquire()).await;
        let Ok(Ok(_place)) = turn else {
            let secs = DEADLINE.as_secs();
            return Err(format!("other calls of it took all of {secs} s").into());
        };
        match tokio::time::timeout(DEADLINE, self.caller.call(review, DEADLINE)).await {
            Ok(answer) => answer,
            Err(_) => {
                let secs = DEADLINE.as_secs();
                Err(format!("it did not answer within {secs} s").into())
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

/// Of `example.org/v1`.
fn version(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
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
