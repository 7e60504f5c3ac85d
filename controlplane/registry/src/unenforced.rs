//! What this cluster takes, keeps and shows, and nothing acts on: whoever relies on it is told so
//! at once.
//!
//! [`acted_on`] is the one list of who acts on which kind, `fields` what is not acted on of a kind
//! that somebody does act on. Whoever makes one of them work changes its line. A writer is told
//! when an object is made and when more than its metadata changes, so that a controller that takes
//! a finalizer away, or writes a status, reads nothing.
//!
//! Not here: fields that a strategy warns of itself (quotas'), fields of pods that some
//! nodes can do or that the scheduler judges, and kinds that come at run time, which are somebody
//! else's by nature.

pub mod acted_on;
mod fields;

use serde_json::Value;

use self::acted_on::ActedOn;
use super::api_resource::ApiResource;

/// Warnings about an object that is made, or changed from what it was.
pub(crate) fn warnings(info: &ApiResource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut said = about(info, object);
    if let Some(old) = old
        && !said.is_empty()
        && is_same_but_for_metadata(object, old)
    {
        // A label or an annotation may ask for more than was asked before.
        let known = about(info, old);
        said.retain(|warning| !known.contains(warning));
    }
    said
}

fn about(info: &ApiResource, object: &Value) -> Vec<String> {
    let kind = &info.kind;
    match acted_on::who(&info.group, &info.plural) {
        Some(ActedOn::Nobody(consequence)) => vec![format!(
            "{kind} is not acted on by this cluster yet: {consequence}"
        )],
        Some(ActedOn::Addon(consequence)) => vec![format!(
            "{kind} needs an addon that is not part of this cluster: without it {consequence}"
        )],
        Some(ActedOn::By(_) | ActedOn::Record(_)) | None => fields::warnings(info, object),
    }
}

fn is_same_but_for_metadata(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    new.keys()
        .chain(old.keys())
        .filter(|field| !matches!(field.as_str(), "metadata" | "status"))
        .all(|field| new.get(field) == old.get(field))
}

#[cfg(test)]
mod tests;
