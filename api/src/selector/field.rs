//! The grammar of the `fieldSelector` parameter: `a=b,c==d,e!=f`, with `\` before `\`, `,` and `=`
//! in values.

use std::fmt;

use super::ParseSelectorError;

/// The conjunction of requirements on fields. Without requirements it matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Path, such as `spec.nodeName`.
    pub field: String,
    /// Whether the value must be `value`, or must not.
    pub equals: bool,
    /// The value.
    pub value: String,
}

impl FieldSelector {
    /// Matches every object.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses the form of the `fieldSelector` parameter.
    ///
    /// # Errors
    /// With upstream's text, such as `invalid selector: 'x'; can't understand 'x'`.
    pub fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        let mut requirements = Vec::new();
        for term in split_terms(text).into_iter().filter(|t| !t.is_empty()) {
            let Some((field, operator, value)) = split_term(term) else {
                return Err(ParseSelectorError(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            let value = unescape(value)?;
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                equals: operator != "!=",
                value,
            });
        }
        requirements.sort_by(|a, b| a.field.cmp(&b.field));
        Ok(Self { requirements })
    }

    /// Whether an object with these fields is selected. `field` looks a field up; unset reads as
    /// empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|r| (field(&r.field).unwrap_or_default() == r.value) == r.equals)
    }

    /// Whether it matches everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Without the requirements on other fields than those.
    #[must_use]
    pub fn only(mut self, is_kept: impl Fn(&str) -> bool) -> Self {
        self.requirements.retain(|one| is_kept(&one.field));
        self
    }

    /// The requirements, ordered by field.
    #[must_use]
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that `field` must have, where the selector asks for exactly one.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equals && r.field == field)
            .map(|r| r.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}{}", r.field, if r.equals { "=" } else { "!=" })?;
            for c in r.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    for (i, _) in term.char_indices() {
        for operator in ["!=", "==", "="] {
            if let Some(value) = term[i..].strip_prefix(operator) {
                return Some((&term[..i], operator, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, ParseSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(ParseSelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(ParseSelectorError(
                        "invalid field selector: invalid escape sequence: \\".into(),
                    ));
                }
            },
            ',' | '=' => {
                // Go prints the number of the character.
                let c = u32::from(c);
                return Err(ParseSelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}
