//! Names: which there may be, and which of those asked for a definition gets.
//!
//! Source: `ValidateCustomResourceDefinitionNames`, and
//! `k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go` at v1.37.

use std::collections::HashMap;

use coracle_api::{name, status::FieldErrors};
use serde_json::{Map, Value};

use super::conditions::{self, Condition};
use crate::{
    api_resource::ApiResource,
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

/// The names that are given, group by group, and how often each.
#[derive(Debug, Default)]
pub struct Taken(HashMap<String, Names>);

#[derive(Debug, Default)]
struct Names {
    resources: HashMap<String, usize>,
    kinds: HashMap<String, usize>,
}

impl Taken {
    /// What a definition has been given is taken.
    pub fn add(&mut self, definition: &Value) {
        let names = self.of_group(string(&definition["spec"]["group"]));
        for (sort, name) in given(definition) {
            *names.of(sort).entry(name.to_owned()).or_default() += 1;
        }
    }

    /// It is no more.
    pub fn remove(&mut self, definition: &Value) {
        let names = self.of_group(string(&definition["spec"]["group"]));
        for (sort, name) in given(definition) {
            let of = names.of(sort);
            match of.get_mut(name) {
                Some(times) if *times > 1 => *times -= 1,
                _ => drop(of.remove(name)),
            }
        }
    }

    /// Names of a kind that nobody has defined are taken for good.
    pub fn add_built_in(&mut self, info: &ApiResource) {
        let names = self.of_group(&info.group);
        let resources = [&info.plural, &info.singular].into_iter();
        for name in resources.chain(&*info.short_names) {
            *names.resources.entry(name.to_string()).or_default() += 1;
        }
        for name in [info.kind.to_string(), format!("{}List", info.kind)] {
            *names.kinds.entry(name).or_default() += 1;
        }
    }

    fn of_group(&mut self, group: &str) -> &mut Names {
        self.0.entry(group.to_owned()).or_default()
    }

    fn has(&self, group: &str, sort: Sort, name: &str) -> bool {
        let of = |names: &Names| match sort {
            Sort::Resource => names.resources.contains_key(name),
            Sort::Kind => names.kinds.contains_key(name),
        };
        self.0.get(group).is_some_and(of)
    }
}

impl Names {
    fn of(&mut self, sort: Sort) -> &mut HashMap<String, usize> {
        match sort {
            Sort::Resource => &mut self.resources,
            Sort::Kind => &mut self.kinds,
        }
    }
}

/// What a name must be alone among.
#[derive(Debug, Clone, Copy)]
enum Sort {
    Resource,
    Kind,
}

fn given(definition: &Value) -> impl Iterator<Item = (Sort, &str)> {
    let names = &definition["status"]["acceptedNames"];
    let short = items(&names["shortNames"]).iter();
    let resources = [&names["plural"], &names["singular"]].into_iter();
    let resources = resources.chain(short).map(|name| (Sort::Resource, name));
    let kinds = [&names["kind"], &names["listKind"]].into_iter();
    let all = resources.chain(kinds.map(|name| (Sort::Kind, name)));
    all.map(|(sort, name)| (sort, string(name)))
        .filter(|(_, name)| !name.is_empty())
}

/// The names that a definition has from now on, and whether it has all that it asked for.
///
/// `taken` is what all others have.
#[must_use]
pub fn accepted(definition: &Value, taken: &Taken) -> (Value, Condition) {
    let (asked, had) = (
        &definition["spec"]["names"],
        &definition["status"]["acceptedNames"],
    );
    let mut names: Map<String, Value> = had.as_object().cloned().unwrap_or_default();
    let mut refused: Option<(&str, String)> = None;
    let group = string(&definition["spec"]["group"]);
    for (field, reason, sort) in [
        ("plural", "PluralConflict", Sort::Resource),
        ("singular", "SingularConflict", Sort::Resource),
        ("shortNames", "ShortNamesConflict", Sort::Resource),
        ("kind", "KindConflict", Sort::Kind),
        ("listKind", "ListKindConflict", Sort::Kind),
    ] {
        let wanted = &asked[field];
        let texts: Vec<&str> = match wanted {
            Value::Array(list) => list.iter().map(string).collect(),
            one => vec![string(one)],
        };
        let conflicts = texts
            .into_iter()
            .filter(|text| taken.has(group, sort, text));
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
