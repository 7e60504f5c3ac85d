//! What is wrong with a value or a schema, in upstream's words, without how it is answered.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation/field/errors.go`,
//! `kubeOpenAPIResultToFieldErrors` in `k8s.io/apiextensions-apiserver/pkg/apiserver/validation`
//! at v1.37.

use serde_json::Value;

/// Most that is told of one value; the rest is counted.
const MOST: usize = 100;
/// Bytes of values and of choices that are told with it: each may be as large as an object.
const MOST_BYTES: usize = 1 << 20;
/// What upstream prints for the path of a junctor's violation, and of the object itself.
pub(crate) const NOWHERE: &str = "<nil>";

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Such as `spec.parts[0].name`.
    pub path: String,
    /// What is wrong there.
    pub what: Wrong,
}

/// The sorts of wrong, named as upstream's.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "upstream's names; the fields say themselves")]
pub enum Wrong {
    Required {
        detail: String,
    },
    Invalid {
        value: Value,
        detail: String,
    },
    TypeInvalid {
        value: Value,
        detail: String,
    },
    NotSupported {
        value: Value,
        supported: Vec<String>,
    },
    TooLong {
        max: usize,
    },
    TooMany {
        actual: usize,
        max: usize,
    },
    Duplicate {
        value: Value,
    },
    Forbidden {
        detail: String,
    },
}

impl Wrong {
    /// What texts of it are ordered by.
    fn order(&self) -> String {
        match self {
            Self::Required { detail } => format!("Required value: {detail}"),
            Self::Invalid { value, detail } | Self::TypeInvalid { value, detail } => {
                format!("Invalid value: {value}: {detail}")
            }
            Self::NotSupported { value, .. } => format!("Unsupported value: {value}"),
            Self::TooLong { max } => format!("Too long: {max}"),
            Self::TooMany { actual, .. } => format!("Too many: {actual}"),
            Self::Duplicate { value } => format!("Duplicate value: {value}"),
            Self::Forbidden { detail } => format!("Forbidden: {detail}"),
        }
    }
}

/// All that is wrong with a value, in the order found; equal ones once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Violations {
    told: Vec<Violation>,
    /// About how many.
    bytes: usize,
    more: usize,
}

impl Violations {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// How much is wrong besides what is told one by one.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// What is told one by one.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.told.iter()
    }

    /// Takes over what another walk found.
    pub fn extend(&mut self, others: Self) {
        for one in others.told {
            self.push(one);
        }
        self.more += others.more;
    }

    pub(crate) fn add(&mut self, path: &str, what: Wrong) {
        let path = if path.is_empty() { NOWHERE } else { path };
        self.push(Violation {
            path: path.strip_prefix('.').unwrap_or(path).to_owned(),
            what,
        });
    }

    pub(crate) fn invalid(&mut self, path: &str, value: &Value, detail: impl Into<String>) {
        self.add(
            path,
            Wrong::Invalid {
                value: value.clone(),
                detail: detail.into(),
            },
        );
    }

    pub(crate) fn required(&mut self, path: &str, detail: &str) {
        let detail = detail.to_owned();
        self.add(path, Wrong::Required { detail });
    }

    pub(crate) fn forbidden(&mut self, path: &str, detail: impl Into<String>) {
        let detail = detail.into();
        self.add(path, Wrong::Forbidden { detail });
    }

    pub(crate) fn not_supported(&mut self, path: &str, value: &Value, supported: Vec<String>) {
        let value = value.clone();
        self.add(path, Wrong::NotSupported { value, supported });
    }

    /// By their texts, for an order that does not hang on the walk.
    pub(crate) fn sort(&mut self) {
        self.told
            .sort_by_cached_key(|one| format!("{}: {}", one.path, one.what.order()));
    }

    /// As one that is told there: for what is dear to make, and would only be counted. Whether it
    /// was.
    pub(crate) fn only_counts(&mut self, path: &str) -> bool {
        let is_known = || self.told.iter().any(|one| one.path == path);
        let counts = self.is_full() && !is_known();
        self.more += usize::from(counts);
        counts
    }

    fn is_full(&self) -> bool {
        self.told.len() >= MOST || self.bytes >= MOST_BYTES
    }

    fn push(&mut self, one: Violation) {
        if self.told.contains(&one) {
            return;
        }
        if self.is_full() {
            self.more += 1;
        } else {
            self.bytes += one.what.size();
            self.told.push(one);
        }
    }
}

impl Wrong {
    fn size(&self) -> usize {
        match self {
            Self::Required { detail } | Self::Forbidden { detail } => detail.len(),
            Self::Invalid { value, detail } | Self::TypeInvalid { value, detail } => {
                size(value) + detail.len()
            }
            Self::NotSupported { value, supported } => {
                let choices = supported.iter().map(String::len);
                size(value) + choices.sum::<usize>()
            }
            Self::Duplicate { value } => size(value),
            Self::TooLong { .. } | Self::TooMany { .. } => 0,
        }
    }
}

/// Of a value's JSON, about.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| name.len() + size(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

impl IntoIterator for Violations {
    type Item = Violation;
    type IntoIter = std::vec::IntoIter<Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.told.into_iter()
    }
}

/// The path of a member.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
