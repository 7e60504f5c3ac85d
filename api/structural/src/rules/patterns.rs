//! Patterns are regular expressions, and all of them together are of a size that a server can keep.

use serde_json::Value;

use crate::{
    pattern::Room,
    violation::{Violations, child},
};

/// What is wrong with the patterns of a schema.
pub(super) fn check(schema: &Value, path: &str) -> Violations {
    let (mut found, mut room) = (Violations::default(), Room::new());
    walk(schema, path, &mut room, &mut found);
    found
}

fn walk(schema: &Value, path: &str, room: &mut Room, found: &mut Violations) {
    if let Some(text) = schema["pattern"].as_str().filter(|text| !text.is_empty())
        && let Err(why) = room.take(text)
    {
        let what = format!("must be a valid regular expression, but isn't: {why}");
        found.invalid(&child(path, "pattern"), &text.into(), what);
    }
    for keyword in ["items", "additionalProperties", "not"] {
        if let Some(one) = schema.get(keyword).filter(|one| one.is_object()) {
            walk(one, &child(path, keyword), room, found);
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = child(path, &format!("properties[{name}]"));
        walk(property, &path, room, found);
    }
    for keyword in ["anyOf", "allOf", "oneOf"] {
        let list = schema[keyword].as_array().into_iter().flatten();
        for (at, one) in list.enumerate() {
            walk(one, &child(path, &format!("{keyword}[{at}]")), room, found);
        }
    }
}
