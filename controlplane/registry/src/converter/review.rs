//! What is asked of a conversion webhook, and what of its answer is believed. Pure.
//!
//! A converter may change what it likes but for the identity of an object: kind, name, namespace
//! and UID must be as they were, and of the metadata only labels and annotations are taken over.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go` at v1.37.

use coracle_api::status::{FieldErrors, quote};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use crate::{go, texts};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// Of the metadata, what is the converter's to say.
const ITS_OWN: [&str; 2] = ["labels", "annotations"];

/// In which version of the API a webhook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// Its answers are told apart by their UID.
    V1,
    /// Its answers may say less of what they are.
    V1Beta1,
}

impl ReviewVersion {
    /// The first that this server knows of those that a webhook takes.
    pub fn of<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<Self> {
        names.find_map(|name| match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn api_version(self) -> String {
        let version = match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        };
        format!("{GROUP}/{version}")
    }
}

/// One call of a webhook.
pub(super) struct Question<'a> {
    pub(super) version: ReviewVersion,
    pub(super) uid: &'a str,
    /// In which version the objects are wanted, such as `example.org/v2`.
    pub(super) desired: &'a str,
}

/// An answer, as far as it is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    response: Option<Response<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default, borrow)]
    converted_objects: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    result: Outcome,
}

#[derive(Default, Deserialize)]
struct Outcome {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
}

impl Question<'_> {
    /// The text to send. Objects go without a version of their own, as they are stored.
    pub(super) fn text(&self, objects: &[Value]) -> Vec<u8> {
        let review = json!({
            "kind": KIND, "apiVersion": self.version.api_version(),
            "request": {"uid": self.uid, "desiredAPIVersion": self.desired, "objects": objects},
        });
        serde_json::to_vec(&review).unwrap_or_default()
    }

    /// The converted objects, none of which has been looked at.
    ///
    /// # Errors
    /// It is no answer to this question, or says that it has failed.
    pub(super) fn converted(&self, answer: &[u8]) -> Result<Vec<Value>, String> {
        let answer: Answer<'_> = serde_json::from_slice(answer)
            .map_err(|error| format!("the answer is no {KIND}: {error}"))?;
        let response = answer.response.ok_or("no response provided")?;
        if self.version == ReviewVersion::V1 {
            let (wanted, is) = (
                shown_kind(&self.version.api_version(), KIND),
                shown_kind(&answer.api_version, &answer.kind),
            );
            if wanted != is {
                return Err(format!("expected webhook response of {wanted}, got {is}"));
            }
            if response.uid != self.uid {
                let (wanted, is) = (quote(self.uid), quote(&response.uid));
                return Err(format!("expected response.uid={wanted}, got {is}"));
            }
        }
        let Outcome { status, message } = response.result;
        if status != "Success" {
            return Err(match message.is_empty() {
                true => format!("response.result.status was '{status}', not 'Success'"),
                false => message,
            });
        }
        let objects = response.converted_objects.unwrap_or_default();
        let read = |object: &RawValue| serde_json::from_str(object.get());
        // One that cannot be read is told of where it is compared with what it was.
        Ok(objects
            .into_iter()
            .map(|object| read(object).unwrap_or(Value::Null))
            .collect())
    }
}

/// A converted object with the metadata that it had, but for labels and annotations.
///
/// # Errors
/// What is wrong with it, to stand behind whose converter has returned it.
pub(super) fn restored(
    original: &Value,
    mut converted: Value,
    desired: &str,
) -> Result<Value, Wrong> {
    if !converted["kind"].is_string() || !converted.is_object() {
        return Err(Wrong::Object("Object 'Kind' is missing".to_owned()));
    }
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let differs = |what: &str, wanted: &str, is: &str| {
        let what = format!("invalid {what} (expected {wanted}, received {is})");
        Err(Wrong::Object(what))
    };
    let is = text(&converted, "apiVersion");
    if is != desired {
        return differs("groupVersion", desired, &is);
    }
    let (wanted, is) = (text(original, "kind"), text(&converted, "kind"));
    if wanted != is {
        return differs("kind", &wanted, &is);
    }
    for (field, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (was, is) = (
            text(&original["metadata"], field),
            text(&converted["metadata"], field),
        );
        if was != is {
            return Err(Wrong::Identity(format!(
                "must have the same {what}: {was} != {is}"
            )));
        }
    }
    let metadata = metadata(&original["metadata"], &converted["metadata"])?;
    converted["metadata"] = metadata.into();
    Ok(converted)
}

/// What is wrong with a converted object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wrong {
    /// It is of another kind, or none.
    Object(String),
    /// It is another one.
    Identity(String),
    /// Its metadata cannot be taken over.
    Metadata(String),
}

fn metadata(original: &Value, converted: &Value) -> Result<Map<String, Value>, Wrong> {
    let mut metadata = original.as_object().cloned().unwrap_or_default();
    for member in ITS_OWN {
        let given = match &converted[member] {
            Value::Null => {
                metadata.remove(member);
                continue;
            }
            Value::Object(given) => given,
            other => {
                let of = go::type_name(other);
                return Err(Wrong::Metadata(format!(
                    "invalid metadata.{member} of type {of} in converted object"
                )));
            }
        };
        if let Some((key, value)) = given.iter().find(|(_, value)| !value.is_string()) {
            let of = go::type_name(value);
            return Err(Wrong::Metadata(format!(
                "metadata.{member}[{key}] must be a string, but is {of} in converted object"
            )));
        }
        // What was so before is not checked again.
        if original[member].as_object() != Some(given) {
            let errors: FieldErrors = texts::validate(&json!({"metadata": {member: given}}));
            if !errors.is_empty() {
                return Err(Wrong::Metadata(errors.to_string()));
            }
        }
        metadata.insert(member.to_owned(), given.clone().into());
    }
    Ok(metadata)
}

/// A kind as upstream's errors name it.
pub(super) fn shown_kind(api_version: &str, kind: &str) -> String {
    match api_version.contains('/') {
        true => format!("{api_version}, Kind={kind}"),
        false => format!("/{api_version}, Kind={kind}"),
    }
}
