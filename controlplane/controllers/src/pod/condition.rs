//! A condition of a pod, in a third of the memory that the whole type takes: each pod has four or
//! five, of the same few types, and most say no more than since when.

use std::{borrow::Cow, ops::Deref};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, Serialize};

/// Types and statuses that nearly all conditions have.
const COMMON: [&str; 9] = [
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodScheduled",
    "PodReadyToStartContainers",
    "DisruptionTarget",
    "True",
    "False",
    "Unknown",
];

/// One condition, with all that the whole type has.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", from = "Whole", into = "Whole")]
pub(crate) struct PodCondition {
    pub(crate) type_: Word,
    pub(crate) status: Word,
    pub(crate) last_transition_time: Option<Time>,
    pub(crate) said: Option<Box<Said>>,
}

/// What few conditions say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    reason: Option<String>,
    message: Option<String>,
    last_probe_time: Option<Time>,
    observed_generation: Option<i64>,
}

impl PodCondition {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.said.as_ref()?.reason.as_deref()
    }
}

/// As it is read and written.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(default, rename = "type")]
    type_: Word,
    #[serde(default)]
    status: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_probe_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
}

impl From<Whole> for PodCondition {
    fn from(whole: Whole) -> Self {
        let said = Said {
            reason: whole.reason,
            message: whole.message,
            last_probe_time: whole.last_probe_time,
            observed_generation: whole.observed_generation,
        };
        Self {
            type_: whole.type_,
            status: whole.status,
            last_transition_time: whole.last_transition_time,
            said: (said != Said::default()).then(|| Box::new(said)),
        }
    }
}

impl From<PodCondition> for Whole {
    fn from(condition: PodCondition) -> Self {
        let said = condition.said.map(|said| *said).unwrap_or_default();
        Self {
            type_: condition.type_,
            status: condition.status,
            last_transition_time: condition.last_transition_time,
            reason: said.reason,
            message: said.message,
            last_probe_time: said.last_probe_time,
            observed_generation: said.observed_generation,
        }
    }
}

/// A text that is mostly one of a few.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Word(Cow<'static, str>);

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        let common = COMMON.into_iter().find(|common| *common == text);
        Self(common.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed))
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Of a reader a text is copied; of most it is borrowed.
        Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_comes_back_as_it_was() {
        let plain = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let whole = json!({"type": "example.org/gate", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "Why", "message": "because", "lastProbeTime": "2026-01-01T00:00:00Z", "observedGeneration": 3});
        for condition in [plain, whole] {
            let held: PodCondition = serde_json::from_value(condition.clone()).unwrap();
            assert_eq!(held.reason(), condition["reason"].as_str());
            assert_eq!(serde_json::to_value(&held).unwrap(), condition);
        }
        assert!(size_of::<PodCondition>() <= 80);
    }
}
