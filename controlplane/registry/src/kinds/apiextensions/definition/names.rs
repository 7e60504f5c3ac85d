//! Names: which there may be, and which of those asked for a definition gets.
//!
//! Source: `ValidateCustomResourceDefinitionNames`, and
//! `k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go` at v1.37.

use std::collections::HashSet;

use coracle_api::{name, status::FieldErrors};
use serde_json::{Map, Value};

use super::conditions::{self, Condition};
use crate::{
    check,
    value::{items, string},
};

/// Those that a spec must have and a status need not.
pub(super) fn required(errors: &mut FieldErrors, names: &Value) {
    for field in ["plural", "singular", "kind", "listKind"] {
        check::required(errors, &format!("spec.names.{field}"), &names[field]);
    }
}

/// How names look.
pub(super) fn allowed(errors: &mut FieldErrors, path: &str, names: &Value) {
    for field in ["plural", "singular"] {
        label(errors, &format!("{path}.{field}"), &names[field], "");
    }
    for field in ["kind", "listKind"] {
        let but = "may have mixed case, but should otherwise match: ";
        label(errors, &format!("{path}.{field}"), &names[field], but);
    }
    for list in ["shortNames", "categories"] {
        for (at, one) in items(&names[list]).iter().enumerate() {
            label(errors, &format!("{path}.{list}[{at}]"), one, "");
        }
        let (kind, list_kind) = (string(&names["kind"]), &names["listKind"]);
        if list == "shortNames" && !kind.is_empty() && *list_kind == kind {
            let what = "kind and listKind may not be the same";
            errors.invalid(format!("{path}.listKind"), list_kind, what);
        }
    }
}

fn label(errors: &mut FieldErrors, path: &str, value: &Value, but: &str) {
    let text = string(value);
    let text = if but.is_empty() {
        text.to_owned()
    } else {
        text.to_lowercase()
    };
    let wrong = name::dns_1035_label_errors(&text);
    if !text.is_empty() && !wrong.is_empty() {
        errors.invalid(path, value, format!("{but}{}", wrong.join(",")));
    }
}

/// What the definitions of a group have been given.
#[derive(Debug, Default)]
pub struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl Taken {
    /// By all of these but the one of this name.
    pub fn by_others<'a>(all: impl Iterator<Item = &'a Value>, group: &str, own: &str) -> Self {
        let mut taken = Self::default();
        let others =
            all.filter(|one| one["spec"]["group"] == group && one["metadata"]["name"] != own);
        for other in others {
            let names = &other["status"]["acceptedNames"];
            let text =
                |field: &str| Some(string(&names[field]).to_owned()).filter(|t| !t.is_empty());
            taken
                .resources
                .extend(["plural", "singular"].into_iter().filter_map(text));
            let short = items(&names["shortNames"])
                .iter()
                .map(string)
                .map(str::to_owned);
            taken.resources.extend(short);
            taken
                .kinds
                .extend(["kind", "listKind"].into_iter().filter_map(text));
        }
        taken
    }
}

/// The names that a definition has from now on, and whether it has all that it asked for.
#[must_use]
pub fn accepted(definition: &Value, taken: &Taken) -> (Value, Condition) {
    let (asked, had) = (
        &definition["spec"]["names"],
        &definition["status"]["acceptedNames"],
    );
    let mut names: Map<String, Value> = had.as_object().cloned().unwrap_or_default();
    let mut refused: Option<(&str, String)> = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let wanted = &asked[field];
        let texts: Vec<&str> = match wanted {
            Value::Array(list) => list.iter().map(string).collect(),
            one => vec![string(one)],
        };
        let conflicts = texts.into_iter().filter(|text| used.contains(*text));
        let conflicts: Vec<String> = conflicts
            .map(|text| format!("{text:?} is already in use"))
            .collect();
        if *wanted != had[field] && !conflicts.is_empty() {
            let message = match &conflicts[..] {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            refused = Some((reason, message));
        } else {
            put(&mut names, field, wanted);
        }
    }
    put(&mut names, "categories", &asked["categories"]);
    let condition = match refused {
        Some((reason, message)) => Condition {
            kind: "NamesAccepted",
            status: "False",
            reason: reason.to_owned(),
            message,
        },
        None => Condition {
            kind: "NamesAccepted",
            status: "True",
            reason: "NoConflicts".to_owned(),
            message: "no conflicts found".to_owned(),
        },
    };
    (Value::Object(names), condition)
}

/// Whether a definition is served: it has names, and had them when it was first served.
#[must_use]
pub fn is_served(definition: &Value) -> bool {
    conditions::is_true(definition, "NamesAccepted")
        || conditions::is_true(definition, "Established")
}

fn put(names: &mut Map<String, Value>, field: &str, value: &Value) {
    if value.is_null() {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value.clone());
    }
}
