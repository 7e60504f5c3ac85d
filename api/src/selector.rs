//! Label and field selectors: parsed once, matched often, without allocation.
//!
//! Which fields of a kind can be selected is the registry's to say; here a field is only a name.
//!
//! Source: `k8s.io/apimachinery/pkg/labels/selector.go`, `pkg/fields/selector.go`.

mod field;
mod parse;

pub use self::field::{FieldRequirement, FieldSelector};

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::{name, status::quote};

/// A selector that cannot be understood; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ParseSelectorError(pub(crate) String);

/// The conjunction of requirements on labels, ordered by key. Without requirements it matches
/// everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the value is looked at.
    pub operator: Operator,
    /// The values, sorted, each once.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `=`, `==` or `in`
    In,
    /// `!=` or `notin`; an absent label matches
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `>`, integers
    GreaterThan,
    /// `<`, integers
    LessThan,
}

impl LabelSelector {
    /// Matches every object.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches no object.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// Parses the form of the `labelSelector` parameter: `a=b,c!=d,e in (f,g),!h`.
    ///
    /// # Errors
    /// With upstream's text, such as `unable to parse requirement: ...`.
    pub fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        let mut requirements = parse::parse(text)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Reads a `LabelSelector` object (`matchLabels`, `matchExpressions`). Absent (null) matches
    /// nothing, empty matches everything, as upstream.
    ///
    /// # Errors
    /// With upstream's text for unknown operators and values that do not fit the operator.
    pub fn from_object(object: &Value) -> Result<Self, ParseSelectorError> {
        let Value::Object(object) = object else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in object
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::checked(key, Operator::In, vec![value])?);
        }
        for expression in object
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |key| {
                expression
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(ParseSelectorError(format!(
                        "{} is not a valid label selector operator",
                        quote(other)
                    )));
                }
            };
            let values = expression
                .get("values")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            let values = values
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            requirements.push(Requirement::checked(text("key"), operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// The selector of a plain map of labels, such as a Service's. It is not validated; an empty
    /// map matches everything.
    #[must_use]
    pub fn from_map(labels: &Value) -> Self {
        let labels = labels.as_object().into_iter().flatten();
        let requirements = labels
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            })
            .collect();
        Self {
            requirements,
            nothing: false,
        }
    }

    /// Also asks for what `other` asks for; one that matches nothing asks for nothing.
    ///
    /// Source: `Selector.Add(Requirements()...)` in upstream.
    pub fn narrow(&mut self, other: &Self) {
        for requirement in other.requirements() {
            if !self.requirements.contains(requirement) {
                self.requirements.push(requirement.clone());
            }
        }
        self.requirements.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// Whether an object with these labels is selected. `label` looks a label up.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Whether the labels of an object held as JSON are selected.
    #[must_use]
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(|key| crate::meta::label(object, key))
    }

    /// Whether it matches everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The requirements, ordered by key.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl Requirement {
    /// A requirement, checked as upstream's `NewRequirement` does.
    ///
    /// # Errors
    /// With upstream's text.
    pub fn checked(
        key: &str,
        operator: Operator,
        mut values: Vec<String>,
    ) -> Result<Self, ParseSelectorError> {
        // A set: neither order nor repetition shows where it is printed.
        values.sort();
        values.dedup();
        let mut errors = crate::status::FieldErrors::new();
        if let Some(error) = name::qualified_name_error(key) {
            errors.invalid("key", &key.into(), error);
        }
        let list = || Value::from(values.clone());
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                errors.invalid(
                    "values",
                    &list(),
                    "for 'in', 'notin' operators, values set can't be empty",
                );
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                errors.invalid(
                    "values",
                    &list(),
                    "values set must be empty for exists and does not exist",
                );
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    errors.invalid(
                        "values",
                        &list(),
                        "for 'Gt', 'Lt' operators, exactly one value is required",
                    );
                }
                for (i, value) in values
                    .iter()
                    .enumerate()
                    .filter(|(_, v)| v.parse::<i64>().is_err())
                {
                    let text = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.invalid(format!("values[{i}]"), &value.as_str().into(), text);
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            if let Some(error) = name::label_value_error(value) {
                errors.invalid(format!("values[{i}][{key}]"), &value.as_str().into(), error);
            }
        }
        if errors.is_empty() {
            Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            })
        } else {
            Err(ParseSelectorError(errors.to_string()))
        }
    }

    /// Whether a label with this value, or an absent one, is as required.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|v| self.lists(v)),
            Operator::NotIn => value.is_none_or(|v| !self.lists(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(have, want)| have > want),
            Operator::LessThan => self.compare(value).is_some_and(|(have, want)| have < want),
        }
    }

    fn lists(&self, value: &str) -> bool {
        self.values
            .binary_search_by(|listed| listed.as_str().cmp(value))
            .is_ok()
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match (self.operator, self.values.as_slice()) {
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::GreaterThan, values) => write!(f, "{key}>{}", values.join(",")),
            (Operator::LessThan, values) => write!(f, "{key}<{}", values.join(",")),
            (Operator::In, [one]) => write!(f, "{key}={one}"),
            (Operator::NotIn, [one]) => write!(f, "{key}!={one}"),
            (Operator::In, values) => write!(f, "{key} in ({})", values.join(",")),
            (Operator::NotIn, values) => write!(f, "{key} notin ({})", values.join(",")),
        }
    }
}

#[cfg(test)]
mod tests;
