//! JSON patch, RFC 6902, with the limits of Kubernetes.

use serde::Deserialize;
use serde_json::Value;

use super::does_not_fit;
use crate::status::{Reason, Status};

/// Most operations of one patch.
const MAX_OPERATIONS: usize = 10_000;

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
/// 400 for a body that is no patch, 413 for too many operations, 422 for one that does not fit the object.
pub fn apply(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let operations: Vec<Operation> = serde_json::from_slice(patch).map_err(|error| {
        let syntax = crate::decode::json_syntax_error(patch);
        let is_list = patch.trim_ascii_start().first() == Some(&b'[');
        Status::bad_request(match syntax {
            Some(text) => text,
            None if !is_list => "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned(),
            None => error.to_string(),
        })
    })?;
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let why = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(Status::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {why}")));
    }
    let mut object = object.clone();
    for operation in operations {
        run(&mut object, operation).ok_or_else(does_not_fit)?;
    }
    Ok(object)
}

/// Runs one operation; `None` where it does not fit.
fn run(object: &mut Value, operation: Operation) -> Option<()> {
    let path = segments(&operation.path?)?;
    match operation.op.as_str() {
        "add" => add(object, &path, operation.value?),
        "remove" => remove(object, &path).map(drop),
        "replace" => {
            let place = find(object, &path)?;
            *place = operation.value?;
            Some(())
        }
        "move" => {
            let from = segments(&operation.from?)?;
            if path.len() > from.len() && path.starts_with(&from) {
                return None;
            }
            let value = remove(object, &from)?;
            add(object, &path, value)
        }
        "copy" => {
            let value = find(object, &segments(&operation.from?)?)?.clone();
            add(object, &path, value)
        }
        "test" => {
            let expect = operation.value.unwrap_or(Value::Null);
            let found = find(object, &path).map_or(Value::Null, |v| v.clone());
            (found == expect).then_some(())
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
    Some(rest.split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect())
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

fn add(object: &mut Value, path: &[String], value: Value) -> Option<()> {
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
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &[String]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    match find(object, way)? {
        Value::Object(map) => map.remove(last),
        Value::Array(items) => {
            let at = index(last, items.len()).filter(|at| *at < items.len())?;
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
        assert_eq!(result, expect, "{patch}");
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let object = json!({"a": {"b": [1, 2]}, "x/y": 1, "m~n": 2});
        let ok = |patch: Value, expect: Value| check(&object, &patch, Ok(expect));
        ok(json!([{"op": "add", "path": "/a/b/1", "value": 9}]), json!({"a": {"b": [1, 9, 2]}, "x/y": 1, "m~n": 2}));
        ok(json!([{"op": "add", "path": "/a/b/-", "value": 9}]), json!({"a": {"b": [1, 2, 9]}, "x/y": 1, "m~n": 2}));
        ok(json!([{"op": "remove", "path": "/x~1y"}, {"op": "remove", "path": "/m~0n"}]), json!({"a": {"b": [1, 2]}}));
        ok(json!([{"op": "remove", "path": "/a/b/-1"}]), json!({"a": {"b": [1]}, "x/y": 1, "m~n": 2}));
        ok(json!([{"op": "replace", "path": "/a", "value": null}]), json!({"a": null, "x/y": 1, "m~n": 2}));
        ok(json!([{"op": "move", "from": "/a/b", "path": "/c"}]), json!({"a": {}, "c": [1, 2], "x/y": 1, "m~n": 2}));
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
}
