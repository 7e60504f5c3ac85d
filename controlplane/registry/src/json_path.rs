//! JSONPath as far as kinds that come at run time use it: printer columns and selectable fields.
//!
//! ```text
//! .spec.replicas   ['odd.name']   .metadata.labels.a\.b   .items[0]   .items[*].name   .conditions[?(@.type=="Ready")].status
//! ```
//!
//! Source: `k8s.io/client-go/util/jsonpath` at v1.37.

use serde_json::Value;

/// A path that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    /// From the end if negative.
    Element(i64),
    Every,
    /// Elements whose member has this text.
    Where(String, String),
}

impl JsonPath {
    /// Reads a path, with or without braces around it; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut rest = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
            .unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let step;
            (step, rest) = if let Some(inner) = rest.strip_prefix('[') {
                bracket(inner)?
            } else {
                member(rest)?
            };
            steps.extend(step);
        }
        Some(Self(steps))
    }

    /// What the path leads to, in order.
    #[must_use]
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![object], |found, step| {
            found
                .into_iter()
                .flat_map(|value| step.take(value))
                .collect()
        })
    }
}

/// The element in brackets, and what comes after it.
fn bracket(inner: &str) -> Option<(Option<Step>, &str)> {
    if let Some(condition) = inner.strip_prefix("?(@.") {
        let (condition, rest) = condition.split_once(")]")?;
        let (name, text) = condition.split_once("==")?;
        let text = text.trim().trim_matches(['"', '\'']);
        return Some((
            Some(Step::Where(name.trim().to_owned(), text.to_owned())),
            rest,
        ));
    }
    let (inside, rest) = inner.split_once(']')?;
    let step = match inside.trim() {
        "*" => Step::Every,
        quoted if quoted.starts_with(['"', '\'']) => {
            Step::Member(quoted.trim_matches(['"', '\'']).to_owned())
        }
        number => Step::Element(number.parse().ok()?),
    };
    Some((Some(step), rest))
}

/// The member after a dot, and what comes after it. A dot alone leads to the object itself.
fn member(text: &str) -> Option<(Option<Step>, &str)> {
    let text = text.strip_prefix('.')?;
    let (mut name, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return Some((named(name), &text[at..])),
            letter => name.push(letter),
        }
    }
    Some((named(name), ""))
}

fn named(name: String) -> Option<Step> {
    match name.as_str() {
        "" => None,
        "*" => Some(Step::Every),
        _ => Some(Step::Member(name)),
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Member(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Every, Value::Object(map)) => map.values().collect(),
            (Self::Every, Value::Array(list)) => list.iter().collect(),
            (Self::Element(at), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let at = if *at < 0 {
                    length.saturating_add(*at)
                } else {
                    *at
                };
                usize::try_from(at)
                    .ok()
                    .and_then(|at| list.get(at))
                    .into_iter()
                    .collect()
            }
            (Self::Where(name, text), Value::Array(list)) => {
                let is = |item: &&Value| item.get(name).is_some_and(|value| same_text(value, text));
                list.iter().filter(is).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn same_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(value) => value == text,
        value => format!("{value}") == text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_they_say() {
        let object = json!({
            "metadata": {"labels": {"a.b": "c"}}, "spec": {"replicas": 3, "hosts": ["x", "y"]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
        });
        for (path, expect) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (r".metadata.labels.a\.b", json!(["c"])),
            (".metadata.labels['a.b']", json!(["c"])),
            (".spec.hosts[0]", json!(["x"])),
            (".spec.hosts[-1]", json!(["y"])),
            (".spec.hosts[*]", json!(["x", "y"])),
            (
                r#".status.conditions[?(@.type=="Ready")].status"#,
                json!(["True"]),
            ),
            (".status.conditions[*].type", json!(["Ready", "Old"])),
            (".spec.nothing.more", json!([])),
            (".spec.hosts[7]", json!([])),
        ] {
            let found = JsonPath::parse(path)
                .unwrap()
                .find(&object)
                .into_iter()
                .cloned()
                .collect::<Vec<_>>();
            assert_eq!(Value::from(found), expect, "{path}");
        }
        for bad in ["spec", ".spec[", ".spec[x]", ".a[?(@.b)]"] {
            assert_eq!(JsonPath::parse(bad), None, "{bad}");
        }
    }
}
