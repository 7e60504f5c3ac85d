//! Where the visitor is, what it found on the way, and the words for that.

use serde::de::Error;

use super::scalar;
use crate::{
    schema::{FieldKind, Type},
    status::quote,
};

/// Upstream stops collecting here too.
const MAX_STRICT_ERRORS: usize = 100;

/// Why a body was not decoded.
#[derive(Debug)]
pub(in crate::decode) enum Failure {
    /// It is not JSON or YAML at all.
    Syntax(String),
    /// It holds a value of this type where an object must be.
    NoObject(&'static str),
    /// It is not in the format that its content type says.
    Raw(String),
    /// A field does not fit its type.
    Mismatch(String),
}

pub(super) enum Step {
    Field(&'static str),
    Index(usize),
    Key(String),
}

/// Where the visitor is, and what it found on the way.
pub(in crate::decode) struct Context {
    pub(super) path: Vec<Step>,
    collect: bool,
    /// Unknown and duplicate fields.
    pub(in crate::decode) strict: Vec<String>,
    /// The first value that does not fit its type.
    pub(in crate::decode) mismatch: Option<String>,
    pub(in crate::decode) no_object: Option<&'static str>,
}

impl Context {
    pub(in crate::decode) fn new(collect: bool) -> Self {
        Self {
            path: Vec::new(),
            collect,
            strict: Vec::new(),
            mismatch: None,
            no_object: None,
        }
    }

    pub(in crate::decode) fn failure(&mut self, otherwise: String) -> Failure {
        match (self.no_object, self.mismatch.take()) {
            (Some(value), _) => Failure::NoObject(value),
            (None, Some(text)) => Failure::Mismatch(text),
            (None, None) => Failure::Mismatch(otherwise),
        }
    }

    pub(super) fn strict(&mut self, what: &str, key: &str) {
        if !self.collect || self.strict.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => push_name(&mut path, name),
                Step::Key(name) => push_name(&mut path, name),
                Step::Index(i) => path.push_str(&format!("[{i}]")),
            }
        }
        push_name(&mut path, key);
        let text = format!("{what} field {}", quote(&path));
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    /// Remembers that a value does not fit, in Go's words.
    pub(super) fn misfit<E: Error>(&mut self, value: &str, owner: Type, kind: FieldKind) -> E {
        let names: Vec<&str> = self
            .path
            .iter()
            .filter_map(|s| match s {
                Step::Field(name) => Some(*name),
                _ => None,
            })
            .collect();
        let go = scalar::go_type(kind);
        let (owner, path) = (owner.short_name(), names.join("."));
        let text = format!(
            "json: cannot unmarshal {value} into Go struct field {owner}.{path} of type {go}"
        );
        self.fail(text)
    }

    pub(super) fn fail<E: Error>(&mut self, text: String) -> E {
        self.mismatch.get_or_insert(text);
        E::custom("a value does not fit its type")
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
