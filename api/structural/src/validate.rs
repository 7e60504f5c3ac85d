//! Values against a schema: what does not fit, in upstream's words and order.
//!
//! Of a node first the type is told, then what junctors say, then length, pattern, format, bounds,
//! elements, choices, members. What is wrong with one hides nothing of the others. A null is asked
//! for type and choices only.
//!
//! An update is told nothing of what it leaves as it was: [`Schema::validate_update`] walks along
//! the old value too, as far as the two can be told to be the same field.
//!
//! Source: `k8s.io/kube-openapi/pkg/validation/{validate,errors}`,
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go` at v1.37.

mod junctors;
mod scalar;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{
    schema::{Additional, Bounds, ListKind, Node, Schema, Type},
    violation::{Violations, Wrong, child},
};

impl Schema {
    /// What does not fit. Time is bounded by the sizes of the two, multiplied where there are
    /// junctors.
    #[must_use]
    pub fn validate(&self, value: &Value) -> Violations {
        self.root.check(value, None, "").violations
    }

    /// What does not fit and was not there before.
    #[must_use]
    pub fn validate_update(&self, new: &Value, old: &Value) -> Violations {
        self.root.check(new, Some(old), "").violations
    }
}

/// What came of one node.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Violations,
    /// How much was fit: of several alternatives that do not fit, the best is told.
    pub(crate) matches: usize,
}

impl Outcome {
    pub(crate) fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.matches += other.matches;
    }
}

impl Node {
    /// Checks a value, which was `old` before if that is known.
    pub(crate) fn check(&self, value: &Value, old: Option<&Value>, path: &str) -> Outcome {
        let found = self.check_anew(value, old, path);
        if !found.is_valid() && old.is_some_and(|old| old == value) {
            return Outcome::default();
        }
        found
    }

    fn check_anew(&self, value: &Value, old: Option<&Value>, path: &str) -> Outcome {
        let mut out = Outcome::default();
        if !self.types.is_empty() || !self.format_name.is_empty() {
            match self.misfit(value) {
                Some((expected, found)) => {
                    let detail = format!("{path} in body must be of type {expected}: {found:?}");
                    let value = found.into();
                    out.violations
                        .add(path, Wrong::TypeInvalid { value, detail });
                }
                None => out.matches += 1,
            }
            out.matches += 1;
        }
        if value.is_null() {
            self.check_choices(value, path, &mut out);
            return out;
        }
        if let Some(junctors) = &self.junctors {
            junctors.check(value, path, &mut out);
        }
        out.matches += 2;
        match value {
            Value::String(text) => self.check_text(text, path, &mut out),
            Value::Number(number) => self.number.check(number, path, &mut out),
            Value::Array(list) => self.check_list(list, old, path, &mut out),
            Value::Object(_) | Value::Bool(_) | Value::Null => {}
        }
        self.check_choices(value, path, &mut out);
        if let Value::Object(map) = value {
            self.check_map(map, old, path, &mut out);
        }
        out.matches += 1;
        out
    }

    /// The type that was expected, and the one that was found, if they are not the same.
    fn misfit(&self, value: &Value) -> Option<(String, &'static str)> {
        let has = |one: Type| self.types.contains(&one);
        let (found, number_format) = match value {
            Value::Null => {
                let is_refused = !self.types.is_empty() && !self.nullable;
                return is_refused.then(|| (self.type_names(), "null"));
            }
            Value::Bool(_) => (Type::Boolean, ""),
            Value::String(_) => (Type::String, ""),
            Value::Number(number) if number.is_i64() => (Type::Integer, "int64"),
            Value::Number(_) => (Type::Number, "float64"),
            Value::Array(_) => (Type::Array, ""),
            Value::Object(_) => (Type::Object, ""),
        };
        let is_whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
        let is_fit = has(found)
            || (found == Type::Number && has(Type::Integer) && is_whole())
            || (found == Type::Integer && has(Type::Number));
        if is_fit {
            return None;
        }
        if !self.format_name.is_empty() {
            let is_series = matches!(found, Type::String | Type::Array);
            if !is_series && number_format != self.format_name {
                return Some((self.format_name.clone(), number_format));
            }
            // Upstream takes any text or list for what has a format of texts.
            if is_series && !has(Type::Number) && !has(Type::Integer) {
                return None;
            }
        }
        Some((self.type_names(), found.name()))
    }

    fn type_names(&self) -> String {
        let names: Vec<&str> = self.types.iter().map(|one| one.name()).collect();
        names.join(",")
    }

    fn check_choices(&self, value: &Value, path: &str, out: &mut Outcome) {
        let is_one = |choice: &Value| !choice.is_null() && same_value(choice, value);
        let is_chosen = match value {
            _ if self.choice_texts.is_empty() => self.choices.iter().any(is_one),
            Value::String(text) => self.choice_texts.contains(text),
            _ => false,
        };
        if self.choices.is_empty() || is_chosen {
            out.matches += 1;
            return;
        }
        if out.violations.only_counts(path) {
            return;
        }
        let text = |choice: &Value| {
            choice
                .as_str()
                .map_or_else(|| choice.to_string(), str::to_owned)
        };
        let supported = self.choices.iter().map(text).collect();
        out.violations.not_supported(path, value, supported);
    }

    fn check_list(&self, list: &[Value], old: Option<&Value>, path: &str, out: &mut Outcome) {
        if let Some(items) = &self.items {
            let before = Before::of(&self.list, old);
            for (at, item) in list.iter().enumerate() {
                let old = before.same_as(item);
                out.merge(items.check(item, old, &format!("{path}[{at}]")));
            }
        }
        let Bounds { min, max } = self.items_count;
        if let Some(min) = min.filter(|min| size(list.len()) < *min) {
            let detail = format!("{path} in body should have at least {min} items");
            out.violations.invalid(path, &list.len().into(), detail);
        }
        if let Some(max) = max.filter(|max| size(list.len()) > *max) {
            let actual = list.len();
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            out.violations.add(path, Wrong::TooMany { actual, max });
        }
        out.matches += 1;
    }

    fn check_map(
        &self,
        map: &Map<String, Value>,
        old: Option<&Value>,
        path: &str,
        out: &mut Outcome,
    ) {
        let Bounds { min, max } = self.members_count;
        if let Some(min) = min.filter(|min| size(map.len()) < *min) {
            let detail = format!("{path} in body should have at least {min} properties");
            return out.violations.invalid(path, &map.len().into(), detail);
        }
        if let Some(max) = max.filter(|max| size(map.len()) > *max) {
            let actual = map.len();
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            return out.violations.add(path, Wrong::TooMany { actual, max });
        }
        let old = old.filter(|_| !self.is_atomic_map);
        let before = |name: &str| {
            let is_type = path.is_empty() && matches!(name, "kind" | "apiVersion");
            old.filter(|_| !is_type).and_then(|old| old.get(name))
        };
        self.check_additional(map, &before, path, out);
        for (name, node) in &self.properties {
            if let Some(value) = map.get(name) {
                out.merge(node.check(value, before(name), &child(path, name)));
            }
        }
        for name in &self.required {
            if !map.contains_key(name) {
                out.violations.required(&child(path, name), "");
            }
        }
    }

    fn check_additional<'a>(
        &self,
        map: &Map<String, Value>,
        before: &dyn Fn(&str) -> Option<&'a Value>,
        path: &str,
        out: &mut Outcome,
    ) {
        if matches!(self.additional, Additional::Any) {
            return;
        }
        let others = map
            .iter()
            .filter(|(name, _)| !self.properties.contains_key(*name));
        for (name, value) in others {
            match &self.additional {
                Additional::Of(node) => {
                    out.merge(node.check(value, before(name), &child(path, name)));
                }
                Additional::Forbidden => {
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    out.violations.invalid(path, &name.as_str().into(), detail);
                }
                Additional::Any => {}
            }
        }
    }
}

/// The elements of a list as it was, by their keys, if they can be told apart.
struct Before<'a> {
    keys: &'a [String],
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Before<'a> {
    fn of(list: &'a ListKind, old: Option<&'a Value>) -> Self {
        let mut before = Self {
            keys: &[],
            by_key: HashMap::new(),
        };
        if let (ListKind::Map(keys), Some(old)) = (list, old.and_then(Value::as_array)) {
            before.keys = keys;
            let keyed = old.iter().map(|item| (key_of(keys, item), item));
            before.by_key = keyed.collect();
        }
        before
    }

    fn same_as(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(self.keys, item)).copied()
    }
}

fn key_of(keys: &[String], item: &Value) -> String {
    let values: Vec<&Value> = keys.iter().map(|key| &item[key]).collect();
    json!(values).to_string()
}

fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Whether two values are the same; numbers by what they are worth.
fn same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}
