//! JSON patch, RFC 6902, with the limits of Kubernetes.
//!
//! A short patch can ask for much: copies of copies, moves that nest ever deeper, insertions before
//! a long list. What it may cost is bounded whatever it says.

use serde::Deserialize;
use serde_json::Value;

use super::does_not_fit;
use crate::status::{Reason, Status};

/// Most operations of one patch.
const MAX_OPERATIONS: usize = 10_000;
/// Most bytes that `copy` may add, as upstream's `AccumulatedCopySizeLimit`.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// Deepest nesting of the outcome: what can be read back.
const MAX_DEPTH: usize = 127;
/// Most list elements moved aside and values looked through; each takes nanoseconds.
const MAX_WORK: usize = 64 << 20;

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(default)]
    op: String,
    path: Option<String>,
    from: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
}

/// Tells an explicit null from an absent member.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Applies the JSON patch in `patch` (the bytes of the request body) to `object`.
///
/// # Errors
/// 400 for a body that is no patch, 413 for too many operations, 422 for one that does not fit the
/// object.
pub fn apply(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let operations: Vec<Operation> = serde_json::from_slice(patch).map_err(|error| {
        let syntax = crate::decode::json_syntax_error(patch);
        let is_list = patch.trim_ascii_start().first() == Some(&b'[');
        Status::bad_request(match syntax {
            Some(text) => text,
            None if !is_list => {
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned()
            }
            None => error.to_string(),
        })
    })?;
    applied(object, operations)?.ok_or_else(does_not_fit)
}

/// The same with a patch that was made here; `None` if a `test` of it does not hold.
///
/// # Errors
/// As [`apply`].
pub fn apply_value(object: &Value, patch: &Value) -> Result<Option<Value>, Status> {
    let operations = Vec::deserialize(patch);
    applied(
        object,
        operations.map_err(|error| Status::bad_request(error.to_string()))?,
    )
}

fn applied(object: &Value, operations: Vec<Operation>) -> Result<Option<Value>, Status> {
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let why = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        );
        return Err(Status::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: {why}"),
        ));
    }
    let mut object = object.clone();
    let mut budget = Budget {
        copied_bytes: MAX_COPIED_BYTES,
        work: MAX_WORK,
    };
    for operation in operations {
        let is_test = operation.op == "test";
        match run(&mut object, operation, &mut budget) {
            Some(()) => {}
            None if is_test => return Ok(None),
            None => return Err(does_not_fit()),
        }
    }
    Ok(Some(object))
}

/// What is left of the limits. Every method is `None` once one is reached.
struct Budget {
    copied_bytes: usize,
    work: usize,
}

impl Budget {
    fn work(&mut self, amount: usize) -> Option<()> {
        self.work = self.work.checked_sub(amount)?;
        Some(())
    }

    fn copy(&mut self, value: &Value) -> Option<Value> {
        self.take_bytes(value)?;
        Some(value.clone())
    }

    fn take_bytes(&mut self, value: &Value) -> Option<()> {
        let own = match value {
            Value::String(text) => text.len() + 2,
            Value::Object(map) => map.keys().map(|key| key.len() + 4).sum::<usize>() + 2,
            Value::Array(items) => items.len() + 2,
            _ => 4,
        };
        self.copied_bytes = self.copied_bytes.checked_sub(own)?;
        match value {
            Value::Object(map) => map.values().try_for_each(|value| self.take_bytes(value)),
            Value::Array(items) => items.iter().try_for_each(|value| self.take_bytes(value)),
            _ => Some(()),
        }
    }

    /// Whether `value` may stand `above` levels deep.
    fn nest(&mut self, value: &Value, above: usize) -> Option<()> {
        self.work(1)?;
        let (Value::Object(_) | Value::Array(_)) = value else {
            return Some(());
        };
        if above >= MAX_DEPTH {
            return None;
        }
        match value {
            Value::Object(map) => map
                .values()
                .try_for_each(|value| self.nest(value, above + 1)),
            Value::Array(items) => items
                .iter()
                .try_for_each(|value| self.nest(value, above + 1)),
            _ => Some(()),
        }
    }
}

/// Runs one operation; `None` where it does not fit.
fn run(object: &mut Value, operation: Operation, budget: &mut Budget) -> Option<()> {
    let path = segments(&operation.path?)?;
    match operation.op.as_str() {
        "add" => {
            let value = operation.value?;
            budget.nest(&value, path.len())?;
            add(object, &path, value, budget)
        }
        "remove" => remove(object, &path, budget).map(drop),
        "replace" => {
            let value = operation.value?;
            budget.nest(&value, path.len())?;
            *find(object, &path)? = value;
            Some(())
        }
        "move" => {
            let from = segments(&operation.from?)?;
            // RFC 6902: nothing goes into itself.
            if path.len() > from.len() && path.starts_with(&from) {
                return None;
            }
            if path.len() > from.len() {
                budget.nest(find(object, &from)?, path.len())?;
            }
            let value = remove(object, &from, budget)?;
            add(object, &path, value, budget)
        }
        "copy" => {
            let value = budget.copy(find(object, &segments(&operation.from?)?)?)?;
            budget.nest(&value, path.len())?;
            add(object, &path, value, budget)
        }
        "test" => {
            // As upstream's library: what is not there passes for null.
            let expect = operation.value.unwrap_or(Value::Null);
            let is_same = find(object, &path).map_or(expect.is_null(), |found| *found == expect);
            is_same.then_some(())
        }
        _ => None,
    }
}

/// The segments of a JSON pointer.
fn segments(path: &str) -> Option<Vec<String>> {
    if path.is_empty() {
        return Some(Vec::new());
    }
    let rest = path.strip_prefix('/')?;
    Some(
        rest.split('/')
            .map(|s| s.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

/// An index into a list of `len` elements; negative ones count from the end, as upstream allows.
fn index(segment: &str, len: usize) -> Option<usize> {
    if let Some(back) = segment.strip_prefix('-') {
        let back: usize = back.parse().ok()?;
        return (back > 0).then(|| len.checked_sub(back)).flatten();
    }
    segment.parse().ok()
}

fn find<'a>(object: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |value, segment| match value {
        Value::Object(map) => map.get_mut(segment),
        Value::Array(items) => {
            let at = index(segment, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    })
}

fn add(object: &mut Value, path: &[String], value: Value, budget: &mut Budget) -> Option<()> {
    let Some((last, way)) = path.split_last() else {
        *object = value;
        return Some(());
    };
    match find(object, way)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            // One more place than elements: behind the last.
            let at = index(last, items.len() + 1).filter(|at| *at <= items.len())?;
            budget.work(items.len() - at)?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &[String], budget: &mut Budget) -> Option<Value> {
    let (last, way) = path.split_last()?;
    match find(object, way)? {
        Value::Object(map) => map.remove(last),
        Value::Array(items) => {
            let at = index(last, items.len()).filter(|at| *at < items.len())?;
            budget.work(items.len() - at)?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: &Value, patch: &Value, expect: Result<Value, u16>) {
        let result = apply(object, patch.to_string().as_bytes()).map_err(|s| s.code);
        assert!(
            result == expect,
            "{:.300}: {result:.300?}",
            patch.to_string()
        );
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let object = json!({"a": {"b": [1, 2]}, "x/y": 1, "m~n": 2});
        let ok = |patch: Value, expect: Value| check(&object, &patch, Ok(expect));
        ok(
            json!([{"op": "add", "path": "/a/b/1", "value": 9}]),
            json!({"a": {"b": [1, 9, 2]}, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "add", "path": "/a/b/-", "value": 9}]),
            json!({"a": {"b": [1, 2, 9]}, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "remove", "path": "/x~1y"}, {"op": "remove", "path": "/m~0n"}]),
            json!({"a": {"b": [1, 2]}}),
        );
        ok(
            json!([{"op": "remove", "path": "/a/b/-1"}]),
            json!({"a": {"b": [1]}, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "replace", "path": "/a", "value": null}]),
            json!({"a": null, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
            json!({"a": {}, "c": [1, 2], "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "copy", "from": "/x~1y", "path": "/a/b/0"}]),
            json!({"a": {"b": [1, 1, 2]}, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "test", "path": "/a/b/1", "value": 2}, {"op": "test", "path": "/no", "value": null}]),
            object.clone(),
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_as_a_whole() {
        let object = json!({"a": {"b": [1]}});
        for patch in [
            json!([{"op": "test", "path": "/a/b/0", "value": 2}]),
            json!([{"op": "remove", "path": "/a/c"}]),
            json!([{"op": "replace", "path": "/a/c", "value": 1}]),
            json!([{"op": "add", "path": "/a/b/2", "value": 1}]),
            json!([{"op": "add", "path": "/no/where", "value": 1}]),
            json!([{"op": "move", "from": "/a", "path": "/a/b/c"}]),
            json!([{"op": "jump", "path": "/a"}]),
            json!([{"op": "add", "path": "a", "value": 1}]),
            json!([{"op": "remove"}]),
        ] {
            check(&object, &patch, Err(422));
        }
        check(&object, &json!({"op": "remove"}), Err(400));
        check(&object, &json!([1]), Err(400));
        let many = vec![json!({"op": "test", "path": "/x", "value": null}); MAX_OPERATIONS + 1];
        check(&object, &json!(many), Err(413));
    }

    /// As many operations as there may be.
    fn repeated(first: Value, rest: &Value) -> Value {
        let mut operations = vec![first];
        operations.resize(MAX_OPERATIONS, rest.clone());
        json!(operations)
    }

    #[test]
    fn what_asks_for_too_much_is_refused_quickly() {
        let list = json!({"list": vec!["x"; 200_000], "a": {}});
        let nested = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        let down = "/a".repeat(100);
        let deeper = [
            json!({"op": "add", "path": "/y", "value": nested}),
            json!({"op": "move", "from": "/x", "path": format!("/y{down}/x")}),
            json!({"op": "move", "from": "/y", "path": "/x"}),
        ];
        let deeper: Vec<Value> = deeper.iter().cycle().take(900).cloned().collect();
        let cases = [
            // Twice as much every time.
            (
                json!({"a": "x"}),
                repeated(
                    json!({"op": "add", "path": "/b", "value": {}}),
                    &json!({"op": "copy", "from": "", "path": "/b/c"}),
                ),
            ),
            (
                list.clone(),
                repeated(
                    json!({"op": "copy", "from": "/list", "path": "/b"}),
                    &json!({"op": "copy", "from": "/list", "path": "/b"}),
                ),
            ),
            (
                list.clone(),
                repeated(
                    json!({"op": "test", "path": "/a", "value": {}}),
                    &json!({"op": "add", "path": "/list/0", "value": "x"}),
                ),
            ),
            (
                list.clone(),
                repeated(
                    json!({"op": "test", "path": "/a", "value": {}}),
                    &json!({"op": "remove", "path": "/list/0"}),
                ),
            ),
            (json!({"x": {}}), json!(deeper)),
        ];
        for (number, (object, patch)) in cases.iter().enumerate() {
            let started = std::time::Instant::now();
            check(object, patch, Err(422));
            assert!(
                started.elapsed().as_secs() < 10,
                "case {number}: {:?}",
                started.elapsed()
            );
        }
        // Long, but cheap.
        let tests = repeated(
            json!({"op": "add", "path": "/a/b", "value": 1}),
            &json!({"op": "test", "path": "/list/0", "value": "x"}),
        );
        assert!(apply(&list, tests.to_string().as_bytes()).is_ok());
    }
}
