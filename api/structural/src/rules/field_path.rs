//! Paths to fields of a schema, as selectable fields and `fieldPath` of rules name them:
//! `.spec.colour`, `.labels['a.b']`.
//!
//! Source: `ValidFieldPath` in `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel` at v1.37.

use serde_json::Value;

use super::is_zero;

/// A field that a path leads to.
#[derive(Debug)]
pub struct Field<'a> {
    /// The path as errors show it: `spec.colour`, `labels[a.b]`.
    pub shown: String,
    /// What its values may be.
    pub schema: &'a Value,
}

/// Whether names may stand in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brackets {
    /// As in `.labels['a.b']`.
    Allowed,
    /// Names follow dots alone.
    Forbidden,
}

/// The field of a schema that a path leads to.
///
/// # Errors
/// Why it leads to none, in upstream's words.
pub fn field_at<'a>(
    schema: &'a Value,
    path: &str,
    brackets: Brackets,
) -> Result<Field<'a>, String> {
    let mut rest = path;
    let mut field = Field {
        shown: String::new(),
        schema,
    };
    while let Some(first) = token(&mut rest) {
        match first {
            "." => {
                let name = more(&mut rest)?;
                field.step(name)?;
            }
            "[" if brackets == Brackets::Forbidden => {
                return Err("array notation is not allowed".to_owned());
            }
            "[" => {
                let name = quoted(more(&mut rest)?)?;
                field.step(&name)?;
                let end = more(&mut rest)?;
                if end != "]" {
                    return Err(format!("expected ] but got {end}"));
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(field)
}

impl Field<'_> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        let nowhere = || "does not refer to a valid field".to_owned();
        if is_zero(&self.schema["properties"]) {
            let each = &self.schema["additionalProperties"];
            self.schema = Some(each)
                .filter(|each| each.is_object())
                .ok_or_else(nowhere)?;
            self.shown = format!("{}[{name}]", self.shown);
            return Ok(());
        }
        self.schema = self.schema["properties"].get(name).ok_or_else(nowhere)?;
        if !self.shown.is_empty() {
            self.shown.push('.');
        }
        self.shown.push_str(name);
        Ok(())
    }
}

fn more<'a>(rest: &mut &'a str) -> Result<&'a str, String> {
    token(rest).ok_or_else(|| "unexpected end of JSON path".to_owned())
}

/// A delimiter, a text in quotes, or what stands before the next delimiter.
fn token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = *rest;
    let end = if text.starts_with('\'') {
        let mut quotes = text.match_indices('\'').skip(1);
        let closing = quotes.find(|(at, _)| !text[..*at].ends_with('\\'));
        closing.map_or(text.len(), |(at, _)| at + 1)
    } else {
        match text.find(['.', '[', ']']) {
            Some(0) => 1,
            Some(end) => end,
            None => text.len(),
        }
    };
    let (token, left) = text.split_at(end);
    *rest = left;
    (!token.is_empty()).then_some(token)
}

fn quoted(token: &str) -> Result<String, String> {
    let inner = token
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    let mut out = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        let escaped = letters.next();
        out.push(match escaped {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(same @ ('\'' | '\\')) => same,
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "invalid string literal: invalid escape char \\{other}"
                ));
            }
        });
    }
    Ok(out)
}
