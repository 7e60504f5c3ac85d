//! OpenAPI v2 as protobuf: gnostic's `openapi.v2.Document`, which kubectl before 1.27 and old helm
//! ask for.
//!
//! Only the members that Kubernetes' documents have. Extensions travel as YAML text; JSON is YAML.
//!
//! Source: `github.com/google/gnostic/openapiv2/OpenAPIv2.proto`.

use serde_json::{Map, Value};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0
                .push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    /// What is before so many bytes.
    fn head(&mut self, tag: u32, length: usize) {
        self.varint(u64::from(tag) << 3 | 2);
        self.varint(length as u64);
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.head(tag, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, tag: u32, message: &Self) {
        self.bytes(tag, &message.0);
    }

    /// A text member, if it is there.
    fn text(&mut self, tag: u32, value: Option<&Value>) {
        if let Some(text) = value
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            self.bytes(tag, text.as_bytes());
        }
    }

    /// Every text of a list.
    fn texts(&mut self, tag: u32, values: Option<&Value>) {
        for text in values
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            self.bytes(tag, text.as_bytes());
        }
    }

    fn flag(&mut self, tag: u32, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(u64::from(tag) << 3);
            self.0.push(1);
        }
    }

    /// Members whose names begin with `x-`, as `NamedAny`.
    fn extensions(&mut self, tag: u32, members: &Map<String, Value>) {
        for (name, value) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
            let mut any = Self::default();
            any.bytes(2, format!("{value}\n").as_bytes());
            self.message(tag, &named(name, &any));
        }
    }

    /// The message as the only member of another: how `oneof`s and maps are wrapped.
    fn within(&self, tag: u32) -> Self {
        let mut outer = Self::default();
        outer.message(tag, self);
        outer
    }
}

/// A name and a value, as every map of gnostic holds them.
fn named(name: &str, value: &Message) -> Message {
    let mut out = Message::default();
    out.bytes(1, name.as_bytes());
    out.message(2, value);
    out
}

/// Paths, as they are in the member of that name.
pub(super) fn paths(all: impl Iterator<Item = (String, Value)>) -> Vec<u8> {
    let mut out = Message::default();
    for (path, item) in all {
        out.message(2, &named(&path, &path_item(&item)));
    }
    out.0
}

/// The same of definitions.
pub(super) fn definitions(all: impl Iterator<Item = (String, Value)>) -> Vec<u8> {
    let mut out = Message::default();
    for (name, definition) in all {
        out.message(1, &named(&name, &schema(&definition)));
    }
    out.0
}

/// What is before all paths of a document, between them and all definitions, and after these, which
/// are so long. `frame` is all but these two.
pub(super) fn around(frame: &Value, paths: usize, definitions: usize) -> [Vec<u8>; 3] {
    let mut begin = Message::default();
    begin.text(1, frame.get("swagger"));
    let mut info = Message::default();
    info.text(1, frame["info"].get("title"));
    info.text(2, frame["info"].get("version"));
    begin.message(2, &info);
    begin.head(8, paths);
    let mut between = Message::default();
    between.head(9, definitions);
    let mut end = Message::default();
    for requirement in frame["security"].as_array().into_iter().flatten() {
        let mut all = Message::default();
        for name in requirement.as_object().into_iter().flat_map(Map::keys) {
            all.message(1, &named(name, &Message::default()));
        }
        end.message(12, &all);
    }
    let mut all = Message::default();
    for (name, key) in frame["securityDefinitions"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let mut security = Message::default();
        for (tag, member) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
            security.text(tag, key.get(member));
        }
        all.message(1, &named(name, &security.within(2)));
    }
    end.message(13, &all);
    [begin.0, between.0, end.0]
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (tag, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (6, "options"),
        (7, "head"),
        (8, "patch"),
    ] {
        if let Some(found) = item.get(method) {
            out.message(tag, &operation(found));
        }
    }
    parameters(&mut out, 9, item);
    out
}

fn operation(operation: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, operation.get("tags"));
    out.text(3, operation.get("description"));
    out.text(5, operation.get("operationId"));
    out.texts(6, operation.get("produces"));
    out.texts(7, operation.get("consumes"));
    parameters(&mut out, 8, operation);
    let mut responses = Message::default();
    for (code, found) in operation["responses"].as_object().into_iter().flatten() {
        let mut response = Message::default();
        response.text(1, found.get("description"));
        if let Some(found) = found.get("schema") {
            response.message(2, &schema(found).within(1));
        }
        responses.message(1, &named(code, &response.within(1)));
    }
    out.message(9, &responses);
    out.texts(10, operation.get("schemes"));
    if let Some(members) = operation.as_object() {
        out.extensions(13, members);
    }
    out
}

fn parameters(out: &mut Message, tag: u32, owner: &Value) {
    for found in owner["parameters"].as_array().into_iter().flatten() {
        out.message(tag, &parameter(found).within(1));
    }
}

fn parameter(parameter: &Value) -> Message {
    let mut out = Message::default();
    let get = |member: &str| parameter.get(member);
    if parameter["in"] == "body" {
        for (tag, member) in [(1, "description"), (2, "name"), (3, "in")] {
            out.text(tag, get(member));
        }
        out.flag(4, get("required"));
        if let Some(found) = get("schema") {
            out.message(5, &schema(found));
        }
        return out.within(1);
    }
    out.flag(1, get("required"));
    for (tag, member) in [(2, "in"), (3, "description"), (4, "name")] {
        out.text(tag, get(member));
    }
    if parameter["in"] == "path" {
        out.text(5, get("type"));
        out.flag(19, get("uniqueItems"));
        return out.within(4).within(2);
    }
    out.text(6, get("type"));
    out.flag(20, get("uniqueItems"));
    out.within(3).within(2)
}

fn schema(found: &Value) -> Message {
    let mut out = Message::default();
    let get = |member: &str| found.get(member);
    out.text(1, get("$ref"));
    out.text(2, get("format"));
    out.text(4, get("description"));
    out.texts(19, get("required"));
    if let Some(values) = get("additionalProperties") {
        out.message(21, &schema(values).within(1));
    }
    if let Some(Value::String(name)) = get("type") {
        let mut types = Message::default();
        types.bytes(1, name.as_bytes());
        out.message(22, &types);
    }
    if let Some(items) = get("items") {
        out.message(23, &schema(items).within(1));
    }
    if let Some(Value::Object(properties)) = get("properties") {
        let mut all = Message::default();
        for (name, property) in properties {
            all.message(1, &named(name, &schema(property)));
        }
        out.message(25, &all);
    }
    if let Some(members) = found.as_object() {
        out.extensions(31, members);
    }
    out
}
