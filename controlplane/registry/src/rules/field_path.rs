//! `fieldPath` of a rule: the field that its error is about, below the rule's own.

use serde_json::Value;

/// The path as errors show it; `None` if it leads to no field of the schema.
pub(super) fn read(path: &str, schema: &Value) -> Option<String> {
    let (mut rest, mut schema, mut shown) = (path, schema, String::new());
    while !rest.is_empty() {
        let name = match token(&mut rest)? {
            "." => token(&mut rest)?.to_owned(),
            "[" => {
                let quoted = token(&mut rest)?;
                let text = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
                let name = unescaped(text)?;
                if token(&mut rest)? != "]" {
                    return None;
                }
                name
            }
            _ => return None,
        };
        let properties = schema["properties"].as_object();
        if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
            schema = properties.get(&name)?;
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(&name);
        } else {
            schema = schema
                .get("additionalProperties")
                .filter(|each| each.is_object())?;
            shown = format!("{shown}[{name}]");
        }
    }
    Some(shown)
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

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' => match letters.next()? {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}
