//! What is to be done about definitions. Pure.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use coracle_api::meta;
use coracle_registry::kinds::apiextensions::definition::{
    approval,
    conditions::{self, Condition},
    names::{self, Taken},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// What of a definition is served: another one of these, and its kind is served anew.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Served {
    group: String,
    plural: String,
    uid: String,
    generation: Value,
    names: Value,
    is_terminating: bool,
}

impl Served {
    pub(super) fn of(definition: &Value) -> Self {
        let (group, plural) = names_of(definition);
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            uid: meta::uid(definition).to_owned(),
            generation: definition["metadata"]["generation"].clone(),
            names: definition["status"]["acceptedNames"].clone(),
            is_terminating: conditions::is_true(definition, "Terminating"),
        }
    }

    /// Whether all that has come to what was `before` is that it ends.
    pub(super) fn ends(&self, before: &Self) -> bool {
        let ending = Self {
            is_terminating: true,
            generation: self.generation.clone(),
            ..before.clone()
        };
        *self == ending
    }

    pub(super) fn names(&self) -> (&str, &str) {
        (&self.group, &self.plural)
    }
}

/// Group and plural.
pub(super) fn names_of(definition: &Value) -> (&str, &str) {
    let spec = &definition["spec"];
    (
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default(),
    )
}

/// Until the other servers, which follow a definition by themselves, serve it as well.
///
/// Source: `customresource_handler.go` at v1.37, `updateCustomResourceDefinition`.
const OTHERS: SignedDuration = SignedDuration::from_secs(5);

/// Whether a definition has had its names for so long that the other servers serve it.
pub(super) fn is_served_by_others(definition: &Value, now: Timestamp) -> bool {
    let named = conditions::since(definition, "NamesAccepted");
    let named = named.and_then(meta::parse_time);
    // What is written is a whole second, and may be nearly over.
    named.is_none_or(|named| now.duration_since(named) > OTHERS)
}

/// Of all definitions those that are to be served, anew or for the first time, and the names of
/// those that are to be served no more.
pub(super) fn serving<'a>(
    all: &'a [Arc<Value>],
    now: &HashMap<String, Served>,
) -> (Vec<&'a Value>, Vec<String>) {
    let served: Vec<&Value> = all
        .iter()
        .map(|one| &**one)
        .filter(|one| names::is_served(one))
        .collect();
    let there: HashSet<&str> = served.iter().map(|one| meta::name(one)).collect();
    let is_gone = |name: &&String| !there.contains(name.as_str());
    let gone = now.keys().filter(is_gone).cloned().collect();
    let is_new = |one: &&Value| now.get(meta::name(one)) != Some(&Served::of(one));
    (served.iter().copied().filter(is_new).collect(), gone)
}

/// The status that a definition is to have, if it is not the one that it has. `taken` is what all
/// others have.
pub(super) fn status(definition: &Value, taken: &Taken, is_served: bool) -> Option<Value> {
    let (accepted, named) = names::accepted(definition, taken);
    let mut new = definition.clone();
    if !new["status"].is_object() {
        new["status"] = serde_json::json!({});
    }
    new["status"]["acceptedNames"] = accepted;
    named.set(&mut new);
    if let Some(told) = established(&new, is_served) {
        told.set(&mut new);
    }
    if let Some(told) = approval::condition(definition) {
        told.set(&mut new);
    }
    (new["status"] != definition["status"]).then(|| new["status"].take())
}

/// Once established, it stays so.
fn established(definition: &Value, is_served: bool) -> Option<Condition> {
    if conditions::is_true(definition, "Established") {
        return None;
    }
    let is_named = conditions::is_true(definition, "NamesAccepted");
    let (status, reason, message) = match (is_named, is_served) {
        (false, _) => ("False", "NotAccepted", "not all names are accepted"),
        (true, false) => (
            "False",
            "Installing",
            "the initial names have been accepted",
        ),
        (true, true) => (
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    };
    Some(Condition {
        kind: "Established",
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, status: Value) -> Value {
        json!({"metadata": {"name": format!("{name}s.example.org"), "uid": name, "generation": 1},
            "spec": {"group": "example.org", "names": {"plural": format!("{name}s"), "singular": name,
                "kind": name.to_uppercase(), "listKind": format!("{}List", name.to_uppercase())}},
            "status": status})
    }

    #[test]
    fn names_come_first_then_it_is_served_then_it_is_established() {
        let mut one = definition("a", json!({"storedVersions": ["v1"]}));
        let nothing = Taken::default();
        let is = |one: &Value, kind: &str| conditions::is_true(one, kind);
        one["status"] = status(&one, &nothing, false).unwrap();
        assert_eq!(one["status"]["acceptedNames"], one["spec"]["names"]);
        assert!(is(&one, "NamesAccepted") && !is(&one, "Established"));
        assert_eq!(status(&one, &nothing, false), None);
        assert_eq!(
            serving(&[Arc::new(one.clone())], &HashMap::new()).0.len(),
            1
        );
        one["status"] = status(&one, &nothing, true).unwrap();
        assert!(is(&one, "Established"));
        assert_eq!(status(&one, &nothing, true), None);
        assert_eq!(one["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn others_have_five_seconds_to_follow() {
        let named = "2026-01-02T03:04:05Z";
        let condition =
            json!({"type": "NamesAccepted", "status": "True", "lastTransitionTime": named});
        let one = definition("a", json!({"conditions": [condition]}));
        for (now, expect) in [
            ("03:04:05.9", false),
            ("03:04:10", false),
            ("03:04:10.1", true),
        ] {
            let now = format!("2026-01-02T{now}Z").parse().unwrap();
            assert_eq!(is_served_by_others(&one, now), expect, "{now}");
        }
    }

    #[test]
    fn who_has_no_names_is_not_served() {
        let names = json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"});
        let first = definition("a", json!({"acceptedNames": names}));
        let mut second = definition("b", json!({}));
        second["spec"]["names"]["kind"] = "A".into();
        let mut taken = Taken::default();
        taken.add(&first);
        second["status"] = status(&second, &taken, false).unwrap();
        assert!(!names::is_served(&second));
        let conditions = second["status"]["conditions"].to_string();
        assert!(conditions.contains("KindConflict") && conditions.contains("NotAccepted"));
    }

    #[test]
    fn what_changes_is_served_anew_and_its_status_is_no_part_of_it() {
        let mut one = definition("a", json!({}));
        one["status"] = status(&one, &Taken::default(), false).unwrap();
        let now = HashMap::from([(meta::name(&one).to_owned(), Served::of(&one))]);
        one["status"] = status(&one, &Taken::default(), true).unwrap();
        assert_eq!(serving(&[Arc::new(one.clone())], &now), (vec![], vec![]));
        one["metadata"]["generation"] = 2.into();
        assert_eq!(serving(&[Arc::new(one.clone())], &now).0, [&one]);
        assert_eq!(
            serving(&[], &now),
            (vec![], vec!["as.example.org".to_owned()])
        );
    }

    #[test]
    fn what_ends_is_what_it_was_but_for_that() {
        let mut one = definition("a", json!({}));
        one["status"] = status(&one, &Taken::default(), true).unwrap();
        let before = Served::of(&one);
        one["metadata"]["generation"] = 2.into();
        assert!(!Served::of(&one).ends(&before));
        one["status"]["conditions"] = json!([{"type": "Terminating", "status": "True"}]);
        assert!(Served::of(&one).ends(&before));
        one["status"]["acceptedNames"]["kind"] = "Other".into();
        assert!(!Served::of(&one).ends(&before));
    }
}
