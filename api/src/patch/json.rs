//! JSON patch, RFC 6902, with the limits of Kubernetes.
//!
//! A short patch can ask for much: copies of copies, moves that nest ever deeper, insertions before
//! a long list. What it may cost is bounded whatever it says.
//!
//! Where the RFC and what Kubernetes does differ, it is Kubernetes': `replace` sets a member that
//! is not there, `copy` takes null for it, and the whole object is neither added nor taken.
//!
//! Source: `gopkg.in/evanphx/json-patch.v4/patch.go` of v1.37, also for the words.

mod budget;

use serde::Deserialize;
use serde_json::Value;

use self::budget::Budget;
use super::does_not_fit;
use crate::status::{Reason, Status};

/// Most operations of one patch.
const MAX_OPERATIONS: usize = 10_000;
const MISSING: &str = "missing value";
const TOO_MUCH: &str = "the patch nests too deep, copies too much or moves too many elements";

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(default)]
    op: String,
    path: Option<String>,
    from: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
}

/// Why an operation does not fit an object.
enum Misfit {
    /// What a `test` looked at is otherwise.
    Test(String),
    Other(String),
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
    if operations.len() > MAX_OPERATIONS {
        let why = format!("Request entity too large: {}", too_many(operations.len()));
        return Err(Status::new(413, Reason::RequestEntityTooLarge, why));
    }
    applied(object, operations).map_err(|_| does_not_fit())
}

/// The same with a patch that somebody else has made, not who sent the object; `None` if a `test`
/// of it does not hold.
///
/// # Errors
/// Which operation does not fit, and why.
pub fn apply_value(object: &Value, patch: &Value) -> Result<Option<Value>, String> {
    match told(object, patch)? {
        Ok(patched) => Ok(Some(patched)),
        Err(Misfit::Test(_)) => Ok(None),
        Err(Misfit::Other(why)) => Err(why),
    }
}

/// The same, with a `test` that does not hold among the errors.
///
/// # Errors
/// As [`apply_value`].
pub fn apply_tested(object: &Value, patch: &Value) -> Result<Value, String> {
    told(object, patch)?.map_err(|(Misfit::Test(why) | Misfit::Other(why))| why)
}

fn told(object: &Value, patch: &Value) -> Result<Result<Value, Misfit>, String> {
    let operations = Vec::<Operation>::deserialize(patch).map_err(|error| error.to_string())?;
    if operations.len() > MAX_OPERATIONS {
        return Err(too_many(operations.len()));
    }
    Ok(applied(object, operations))
}

fn too_many(count: usize) -> String {
    format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}")
}

fn applied(object: &Value, operations: Vec<Operation>) -> Result<Value, Misfit> {
    let mut object = object.clone();
    let mut budget = Budget::default();
    for operation in operations {
        run(&mut object, operation, &mut budget)?;
    }
    Ok(object)
}

fn run(object: &mut Value, operation: Operation, budget: &mut Budget) -> Result<(), Misfit> {
    let op = operation.op.as_str();
    let value = operation.value.unwrap_or_default();
    let named = |text: Option<String>, field: &str| {
        let why = || format!("{op} operation failed to decode {field}: {MISSING}");
        text.ok_or_else(why)
    };
    let path = named(operation.path, "path");
    let done = match op {
        "add" => path.and_then(|path| add(object, &path, value, budget)),
        "remove" => path.and_then(|path| remove(object, &path, budget)),
        "replace" => path.and_then(|path| replace(object, &path, value, budget)),
        "move" => named(operation.from, "from")
            .and_then(|from| path.and_then(|path| relocate(object, [&from, &path], budget))),
        "copy" => named(operation.from, "from")
            .and_then(|from| path.and_then(|path| copy(object, [&from, &path], budget))),
        "test" => {
            let path = path.map_err(Misfit::Other)?;
            return test(object, &path, &value, budget);
        }
        other => Err(format!("Unexpected kind: {other}")),
    };
    done.map_err(Misfit::Other)
}

fn add(object: &mut Value, path: &str, value: Value, budget: &mut Budget) -> Result<(), String> {
    let place = place(object, path, budget);
    let place = place.ok_or_else(|| lacks("add", "path", &format!("{path:?}")))?;
    place
        .add(value, budget)
        .map_err(|why| within("add", path, &why))
}

fn remove(object: &mut Value, path: &str, budget: &mut Budget) -> Result<(), String> {
    let place = place(object, path, budget);
    let place = place.ok_or_else(|| lacks("remove", "path", &format!("{path:?}")))?;
    let removed = place.remove(budget).map(drop);
    removed.map_err(|why| within("remove", path, &why))
}

fn replace(
    object: &mut Value,
    path: &str,
    value: Value,
    budget: &mut Budget,
) -> Result<(), String> {
    if path.is_empty() {
        budget.nest(&value, 0).ok_or(TOO_MUCH)?;
        *object = value;
        return Ok(());
    }
    let place = place(object, path, budget).ok_or_else(|| lacks("replace", "path", path))?;
    let set = place.set(value, budget)?;
    set.ok_or_else(|| lacks("replace", "key", path))
}

fn relocate(
    object: &mut Value,
    [from, path]: [&str; 2],
    budget: &mut Budget,
) -> Result<(), String> {
    // RFC 6902: nothing goes into itself.
    let below = path.strip_prefix(from);
    if below.is_some_and(|below| below.starts_with('/')) {
        return Err(lacks("move", "destination path", path));
    }
    let taken = place(object, from, budget).ok_or_else(|| lacks("move", "from path", from))?;
    let key = taken.key.clone();
    let value = taken.remove(budget);
    let value = value.map_err(|why| within("move", &key, &why))?;
    let place = place(object, path, budget);
    let place = place.ok_or_else(|| lacks("move", "destination path", path))?;
    place
        .add(value, budget)
        .map_err(|why| within("move", path, &why))
}

fn copy(object: &mut Value, [from, path]: [&str; 2], budget: &mut Budget) -> Result<(), String> {
    let copied = place(object, from, budget).ok_or_else(|| lacks("copy", "from path", from))?;
    let value = copied
        .get()
        .map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
    let value = budget.copy(value.unwrap_or(&Value::Null)).ok_or(TOO_MUCH)?;
    let place = place(object, path, budget);
    let place = place.ok_or_else(|| lacks("copy", "destination path", path))?;
    let added = place.add(value, budget);
    added.map_err(|why| format!("error while adding value during copy: {why}"))
}

fn test(object: &mut Value, path: &str, expect: &Value, budget: &mut Budget) -> Result<(), Misfit> {
    let is_same = if path.is_empty() {
        object == expect
    } else {
        let place = place(object, path, budget).ok_or_else(|| {
            let why = format!("test operation does not apply: is missing path: {path}: {MISSING}");
            Misfit::Other(why)
        })?;
        let found = place.get();
        let found = found.map_err(|why| Misfit::Other(within("test", path, &why)))?;
        // What is not there passes for null.
        found.unwrap_or(&Value::Null) == expect
    };
    let why = || Misfit::Test(format!("testing value {path} failed: test failed"));
    is_same.then_some(()).ok_or_else(why)
}

fn lacks(op: &str, what: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing {what}: {path}: {MISSING}")
}

fn within(op: &str, path: &str, why: &str) -> String {
    format!("error in {op} for path: '{path}': {why}")
}

/// A member or an element that is there or may be.
struct Place<'a> {
    within: &'a mut Value,
    key: String,
    /// How deep it is.
    depth: usize,
}

/// What a JSON pointer names; `None` where what is to hold it is not there.
fn place<'a>(object: &'a mut Value, path: &str, budget: &mut Budget) -> Option<Place<'a>> {
    let (way, key) = path.strip_prefix('/').map(|rest| {
        rest.rsplit_once('/')
            .map_or((None, rest), |(way, key)| (Some(way), key))
    })?;
    let (mut within, mut depth) = (object, 1);
    for segment in way.into_iter().flat_map(|way| way.split('/')) {
        budget.work(1)?;
        within = match within {
            Value::Object(map) => map.get_mut(&unescaped(segment))?,
            Value::Array(items) => {
                let at = index(segment, items.len()).ok()?;
                items.get_mut(at)?
            }
            _ => return None,
        };
        depth += 1;
    }
    let key = unescaped(key);
    let holds = within.is_object() || within.is_array();
    holds.then_some(Place { within, key, depth })
}

fn unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// An index into a list of `len` elements; negative ones count from the end.
fn index(segment: &str, len: usize) -> Result<usize, String> {
    let parsed: Result<i64, _> = segment.parse();
    let said = parsed.map_err(|_| {
        format!("value was not a proper array index: '{segment}': strconv.Atoi: parsing {segment:?}: invalid syntax")
    })?;
    let invalid = || format!("Unable to access invalid index: {said}: invalid index referenced");
    let at = match said {
        0.. => usize::try_from(said).ok(),
        _ => usize::try_from(said.unsigned_abs())
            .ok()
            .and_then(|back| len.checked_sub(back)),
    };
    at.filter(|at| *at < len).ok_or_else(invalid)
}

impl<'a> Place<'a> {
    /// `None` for a member that is not there.
    fn get(self) -> Result<Option<&'a Value>, String> {
        match self.within {
            Value::Array(items) => {
                let at = index(&self.key, items.len())?;
                Ok(items.get(at))
            }
            object => Ok(object.get(&self.key)),
        }
    }

    fn add(self, value: Value, budget: &mut Budget) -> Result<(), String> {
        budget.nest(&value, self.depth).ok_or(TOO_MUCH)?;
        match self.within {
            Value::Array(items) if self.key == "-" => items.push(value),
            Value::Array(items) => {
                // One more place than elements: behind the last.
                let at = index(&self.key, items.len() + 1)?;
                budget.work(items.len() - at).ok_or(TOO_MUCH)?;
                items.insert(at, value);
            }
            object => object[self.key] = value,
        }
        Ok(())
    }

    /// `None` for an element that is not there.
    fn set(self, value: Value, budget: &mut Budget) -> Result<Option<()>, String> {
        budget.nest(&value, self.depth).ok_or(TOO_MUCH)?;
        match self.within {
            Value::Array(items) => {
                let at = index(&self.key, items.len()).ok();
                Ok(at.map(|at| items[at] = value))
            }
            object => {
                object[self.key] = value;
                Ok(Some(()))
            }
        }
    }

    fn remove(self, budget: &mut Budget) -> Result<Value, String> {
        match self.within {
            Value::Array(items) => {
                let at = index(&self.key, items.len())?;
                budget.work(items.len() - at).ok_or(TOO_MUCH)?;
                Ok(items.remove(at))
            }
            Value::Object(map) => map.remove(&self.key).ok_or_else(|| {
                format!("Unable to remove nonexistent key: {}: {MISSING}", self.key)
            }),
            _ => Err(MISSING.to_owned()),
        }
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
        // As upstream, not as the RFC has it.
        ok(
            json!([{"op": "replace", "path": "/a/c", "value": 1}, {"op": "copy", "from": "/none", "path": "/a/d"},
                {"op": "add", "path": "/a/e"}]),
            json!({"a": {"b": [1, 2], "c": 1, "d": null, "e": null}, "x/y": 1, "m~n": 2}),
        );
        ok(
            json!([{"op": "replace", "path": "", "value": {"a": 1}}]),
            json!({"a": 1}),
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_as_a_whole() {
        let object = json!({"a": {"b": [1]}});
        for patch in [
            json!([{"op": "test", "path": "/a/b/0", "value": 2}]),
            json!([{"op": "remove", "path": "/a/c"}]),
            json!([{"op": "replace", "path": "/a/b/1", "value": 1}]),
            json!([{"op": "replace", "path": "/c/d", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "copy", "from": "", "path": "/b"}]),
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

    #[test]
    fn it_is_told_which_operation_does_not_fit() {
        let object = json!({"a": {"b": [1]}});
        for (patch, expect) in [
            (
                json!({"op": "add", "path": "/no/where", "value": 1}),
                "add operation does not apply: doc is missing path: \"/no/where\": missing value",
            ),
            (
                json!({"op": "remove", "path": "/a/c"}),
                "error in remove for path: '/a/c': Unable to remove nonexistent key: c: missing value",
            ),
            (
                json!({"op": "remove", "path": "/a/b/1"}),
                "error in remove for path: '/a/b/1': Unable to access invalid index: 1: invalid index referenced",
            ),
            (
                json!({"op": "replace", "path": "/a/b/1", "value": 1}),
                "replace operation does not apply: doc is missing key: /a/b/1: missing value",
            ),
            (
                json!({"op": "move", "from": "/a/b", "path": "/c/d"}),
                "move operation does not apply: doc is missing destination path: /c/d: missing value",
            ),
            (
                json!({"op": "copy", "from": "/c/d", "path": "/e"}),
                "copy operation does not apply: doc is missing from path: /c/d: missing value",
            ),
            (
                json!({"op": "test", "path": "/c/d", "value": 1}),
                "test operation does not apply: is missing path: /c/d: missing value",
            ),
            (
                json!({"op": "test", "path": "/a/b/0", "value": 2}),
                "testing value /a/b/0 failed: test failed",
            ),
            (
                json!({"op": "add"}),
                "add operation failed to decode path: missing value",
            ),
            (json!({"op": "jump", "path": "/a"}), "Unexpected kind: jump"),
        ] {
            let found = apply_tested(&object, &json!([patch])).unwrap_err();
            assert_eq!(found, expect, "{patch}");
        }
        let test = |path: &str| json!([{"op": "test", "path": path, "value": 2}]);
        assert_eq!(apply_value(&object, &test("/a/b/0")), Ok(None));
        assert!(apply_value(&object, &test("/c/d")).is_err());
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
