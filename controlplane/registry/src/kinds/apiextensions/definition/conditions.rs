//! What is told of a definition in its status.

use coracle_api::meta;
use serde_json::{Value, json};

use crate::value::items;

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Such as `Established`.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

impl Condition {
    /// Whether the definition has it, as it is.
    #[must_use]
    pub fn is_in(&self, definition: &Value) -> bool {
        find(definition, self.kind).is_some_and(|condition| {
            condition["status"] == self.status
                && condition["reason"] == self.reason
                && condition["message"] == self.message
        })
    }

    /// Puts it into a definition. Its time is that of the last change of its status.
    pub fn set(&self, definition: &mut Value) {
        if self.is_in(definition) {
            return;
        }
        let before = find(definition, self.kind);
        let same = before.filter(|condition| condition["status"] == self.status);
        let since = same.map(|condition| condition["lastTransitionTime"].clone());
        let condition = json!({
            "type": self.kind, "status": self.status, "reason": self.reason, "message": self.message,
            "lastTransitionTime": since.unwrap_or_else(|| meta::now().into()),
        });
        let mut all = items(&definition["status"]["conditions"]).to_vec();
        match all.iter_mut().find(|one| one["type"] == self.kind) {
            Some(place) => *place = condition,
            None => all.push(condition),
        }
        if !definition["status"].is_object() {
            definition["status"] = json!({});
        }
        definition["status"]["conditions"] = all.into();
    }
}

/// Whether a condition holds.
#[must_use]
pub fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Since when a condition is as it is.
#[must_use]
pub fn since<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    find(definition, kind)?["lastTransitionTime"].as_str()
}

fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = items(&definition["status"]["conditions"]).iter();
    all.find(|condition| condition["type"] == kind)
}
