//! Where the visitor is, what it found on the way, and the words for that.

use serde::de::Error;
use serde_json::Value;

use crate::status::{FieldErrors, quote};

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

/// The way to a value, each step on the stack of whoever took it.
#[derive(Clone, Copy)]
pub(in crate::decode) struct Path<'p> {
    pub(super) parent: Option<&'p Self>,
    pub(super) step: Step<'p>,
}

#[derive(Clone, Copy)]
pub(in crate::decode) enum Step<'p> {
    /// A field of a struct.
    Field(&'p str),
    /// A member of anything else.
    Key(&'p str),
    Index(usize),
}

impl Path<'_> {
    /// The steps from the object on.
    fn steps(&self) -> Vec<Step<'_>> {
        let mut steps: Vec<Step<'_>> = std::iter::successors(Some(self), |path| path.parent)
            .map(|path| path.step)
            .collect();
        steps.reverse();
        steps
    }
}

/// Such as `spec.containers[0].name`.
fn print(path: Option<&Path<'_>>) -> String {
    let mut out = String::new();
    for step in path.map(Path::steps).unwrap_or_default() {
        match step {
            Step::Field(name) | Step::Key(name) => push_name(&mut out, name),
            Step::Index(at) => out.push_str(&format!("[{at}]")),
        }
    }
    out
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// What the visitor found on its way.
pub(in crate::decode) struct Context {
    pub(super) collects: bool,
    /// Unknown and duplicate fields.
    pub(in crate::decode) strict: Vec<String>,
    /// The first value that does not fit its type.
    pub(in crate::decode) mismatch: Option<String>,
    pub(in crate::decode) no_object: Option<&'static str>,
}

impl Context {
    pub(in crate::decode) fn new(collects: bool) -> Self {
        Self {
            collects,
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

    pub(super) fn strict(&mut self, what: &str, path: Option<&Path<'_>>, key: &str) {
        if !self.collects || self.strict.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let mut path = print(path);
        push_name(&mut path, key);
        let text = format!("{what} field {}", quote(&path));
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    /// Remembers that a value does not fit, in Go's words.
    pub(super) fn misfit<E: Error>(
        &mut self,
        path: Option<&Path<'_>>,
        fitting: Fitting,
        value: Misfit,
    ) -> E {
        let value = match value {
            Misfit::Other(kind) => kind.to_owned(),
            Misfit::Int(number) if fitting.is_integer => format!("number {number}"),
            Misfit::Float(number) if fitting.is_integer => format!("number {number}"),
            Misfit::Int(_) | Misfit::Float(_) => "number".to_owned(),
        };
        let into = match fitting.owner {
            Some(owner) => format!("struct field {owner}.{}", fields(path)),
            None => "value".to_owned(),
        };
        let go_type = fitting.go_type;
        self.fail(format!(
            "json: cannot unmarshal {value} into Go {into} of type {go_type}"
        ))
    }

    /// Remembers what is wrong with a value that is known as a whole.
    pub(super) fn invalid<E: Error>(
        &mut self,
        path: Option<&Path<'_>>,
        value: &Value,
        why: &str,
    ) -> E {
        let mut errors = FieldErrors::new();
        errors.invalid(print(path), value, why);
        self.fail(errors.to_string())
    }

    pub(super) fn fail<E: Error>(&mut self, text: String) -> E {
        self.mismatch.get_or_insert(text);
        E::custom("a value does not fit its type")
    }
}

/// What a type must be named as when a value does not fit it.
pub(in crate::decode) struct Fitting {
    /// The struct with the field; none for a whole object.
    pub(super) owner: Option<&'static str>,
    /// In Go's words.
    pub(super) go_type: String,
    pub(super) is_integer: bool,
}

/// What does not fit.
#[derive(Clone, Copy)]
pub(super) enum Misfit {
    Int(i64),
    Float(f64),
    Other(&'static str),
}

/// The fields on the way, as Go names them: neither keys of maps nor indexes.
fn fields(path: Option<&Path<'_>>) -> String {
    let steps = path.map(Path::steps).unwrap_or_default();
    let names: Vec<&str> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Field(name) => Some(*name),
            Step::Key(_) | Step::Index(_) => None,
        })
        .collect();
    names.join(".")
}
