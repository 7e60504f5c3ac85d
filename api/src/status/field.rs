//! What is wrong with the fields of an object, collected over a whole validation: the first of it,
//! and how much more there is. Who sends a list of a million nothings is not told so a million
//! times.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation/field/errors.go`.

mod print;

use std::{collections::HashSet, fmt};

use serde_json::Value;

use super::{Cause, quote};

/// Most errors that are told one by one, and most bytes of them together.
const MOST: usize = 100;
const MOST_BYTES: usize = 64 << 10;
/// Most bytes of one text. Upstream bounds none of these.
const MOST_OF_ONE: usize = 8 << 10;

/// All that is wrong with an object, in the order found.
///
/// Displays as upstream's aggregate: one error as it is, several as `[a, b]`, equal texts once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FieldErrors {
    told: Vec<FieldError>,
    /// Of those that are told.
    bytes: usize,
    /// How many are not.
    more: usize,
    /// What is wrong and was so before.
    tolerated: Vec<FieldError>,
}

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What sort of wrong.
    pub kind: FieldErrorKind,
    /// Path such as `spec.containers[0].image`.
    pub path: String,
    /// The text without the path.
    pub body: String,
}

/// The sorts of field errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "upstream's names, with the texts below")]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    TypeInvalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
}

impl FieldErrorKind {
    /// The cause's reason on the wire.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body)
    }
}

impl FieldErrors {
    /// Nothing wrong yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A value must be there.
    pub fn required(&mut self, path: impl Into<String>, detail: impl AsRef<str>) {
        self.push(FieldErrorKind::Required, path, None, detail.as_ref());
    }

    /// A value is malformed.
    pub fn invalid(&mut self, path: impl Into<String>, value: &Value, detail: impl AsRef<str>) {
        self.push(FieldErrorKind::Invalid, path, Some(value), detail.as_ref());
    }

    /// A value is of another type, or has another format, than its schema says.
    pub fn type_invalid(
        &mut self,
        path: impl Into<String>,
        value: &Value,
        detail: impl AsRef<str>,
    ) {
        let kind = FieldErrorKind::TypeInvalid;
        self.push(kind, path, Some(value), detail.as_ref());
    }

    /// The same for a value that upstream prints otherwise than as JSON.
    pub fn invalid_text(&mut self, path: impl Into<String>, value: &str, detail: impl AsRef<str>) {
        let kind = FieldErrorKind::Invalid;
        self.add(kind, path, || {
            format!(
                "{}: {}: {}",
                kind.title(),
                print::cut(value),
                print::cut(detail.as_ref())
            )
        });
    }

    /// The same where the value says nothing: it is not shown.
    pub fn invalid_unshown(&mut self, path: impl Into<String>, detail: impl AsRef<str>) {
        self.push(FieldErrorKind::Invalid, path, None, detail.as_ref());
    }

    /// A value that must be unique is there twice.
    pub fn duplicate(&mut self, path: impl Into<String>, value: &Value) {
        self.push(FieldErrorKind::Duplicate, path, Some(value), "");
    }

    /// The same where the value says nothing: it is not shown.
    pub fn duplicate_unshown(&mut self, path: impl Into<String>) {
        self.push(FieldErrorKind::Duplicate, path, None, "");
    }

    /// The same, with what makes it one.
    pub fn duplicate_because(
        &mut self,
        path: impl Into<String>,
        value: &Value,
        detail: impl AsRef<str>,
    ) {
        self.push(
            FieldErrorKind::Duplicate,
            path,
            Some(value),
            detail.as_ref(),
        );
    }

    /// A value is none of the listed ones.
    pub fn not_supported(&mut self, path: impl Into<String>, value: &Value, supported: &[&str]) {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
            detail = format!("supported values: {}", quoted.join(", "));
        }
        self.push(FieldErrorKind::NotSupported, path, Some(value), &detail);
    }

    /// A value may not be set here.
    pub fn forbidden(&mut self, path: impl Into<String>, detail: impl AsRef<str>) {
        self.push(FieldErrorKind::Forbidden, path, None, detail.as_ref());
    }

    /// A value has more than `max` bytes. The value itself is not repeated.
    pub fn too_long(&mut self, path: impl Into<String>, _value: &Value, max: usize) {
        self.push(
            FieldErrorKind::TooLong,
            path,
            None,
            &format!("may not be more than {max} bytes"),
        );
    }

    /// A list has more than `max` items.
    pub fn too_many(&mut self, path: impl Into<String>, actual: usize, max: usize) {
        let detail = format!("must have at most {max} items");
        self.push(FieldErrorKind::TooMany, path, Some(&actual.into()), &detail);
    }

    /// A value refers to something that is not there.
    pub fn not_found(&mut self, path: impl Into<String>, value: &Value) {
        self.push(FieldErrorKind::NotFound, path, Some(value), "");
    }

    /// The same, with what it may refer to: put into words for those that are told alone.
    pub fn not_found_because(
        &mut self,
        path: impl Into<String>,
        value: &Value,
        detail: impl FnOnce() -> String,
    ) {
        let kind = FieldErrorKind::NotFound;
        self.add(kind, path, || {
            let (value, detail) = (print::value(value), detail());
            format!("{}: {value}: {}", kind.title(), print::cut(&detail))
        });
    }

    /// Validation itself failed.
    pub fn internal(&mut self, path: impl Into<String>, detail: impl AsRef<str>) {
        self.push(FieldErrorKind::Internal, path, None, detail.as_ref());
    }

    /// The value of an update differs from the stored one and must not:
    /// `Invalid value: ...: field is immutable`.
    pub fn immutable(&mut self, path: impl Into<String>, value: &Value) {
        self.invalid(path, value, "field is immutable");
    }

    /// There is this much more, of which nothing is told.
    pub fn count(&mut self, more: usize) {
        self.more += more;
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much is wrong.
    #[must_use]
    pub fn len(&self) -> usize {
        self.told.len() + self.more
    }

    /// The single errors that are told.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.told.iter()
    }

    /// Takes over what another validation found.
    pub fn extend(&mut self, others: Self) {
        for FieldError { kind, path, body } in others.told {
            self.add(kind, path, || body);
        }
        self.more += others.more;
        self.tolerate(others.tolerated);
    }

    /// Takes over what another validation found of the object at a path.
    pub fn extend_at(&mut self, at: &str, others: Self) {
        for FieldError { kind, path, body } in others.told {
            self.add(kind, format!("{at}.{path}"), || body);
        }
        self.more += others.more;
    }

    /// Takes over what another validation found, which is no reason to refuse: its writer is
    /// warned.
    pub fn tolerate_all(&mut self, others: Self) {
        self.tolerate(others.told);
        self.tolerate(others.tolerated);
    }

    /// What is wrong and no reason to refuse.
    pub fn tolerated(&self) -> impl Iterator<Item = &FieldError> {
        self.tolerated.iter()
    }

    fn tolerate(&mut self, others: Vec<FieldError>) {
        let room = MOST.saturating_sub(self.tolerated.len());
        self.tolerated.extend(others.into_iter().take(room));
    }

    /// The entries of `details.causes`.
    #[must_use]
    pub fn causes(&self) -> Vec<Cause> {
        let told = self.told.iter().map(|error| Cause {
            kind: error.kind.reason().to_owned(),
            message: error.body.clone(),
            field: error.path.clone(),
        });
        let more = self.more().map(|message| Cause {
            kind: FieldErrorKind::TooMany.reason().to_owned(),
            message,
            field: String::new(),
        });
        told.chain(more).collect()
    }

    fn push(
        &mut self,
        kind: FieldErrorKind,
        path: impl Into<String>,
        value: Option<&Value>,
        detail: &str,
    ) {
        self.add(kind, path, || {
            let mut body = kind.title().to_owned();
            if let Some(value) = value {
                body.push_str(": ");
                body.push_str(&print::value(value));
            }
            if !detail.is_empty() {
                body.push_str(": ");
                body.push_str(&print::cut(detail));
            }
            body
        });
    }

    /// The text is made for those that are told alone.
    fn add(
        &mut self,
        kind: FieldErrorKind,
        path: impl Into<String>,
        body: impl FnOnce() -> String,
    ) {
        if self.told.len() >= MOST || self.bytes >= MOST_BYTES {
            self.more += 1;
            return;
        }
        let path: String = path.into();
        let path = if path.len() > MOST_OF_ONE {
            print::cut(&path).into_owned()
        } else {
            path
        };
        let body = body();
        self.bytes += path.len() + body.len();
        self.told.push(FieldError { kind, path, body });
    }

    fn more(&self) -> Option<String> {
        (self.more > 0).then(|| format!("and {} more", self.more))
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen = HashSet::new();
        let told = self
            .told
            .iter()
            .map(ToString::to_string)
            .filter(|text| seen.insert(text.clone()));
        let texts: Vec<String> = told.chain(self.more()).collect();
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}
