//! Kubernetes' protobuf form: the prefix `k8s\0`, a `runtime.Unknown`, and in it the object's
//! message.
//!
//! The wire format (`wire`) is read along the schema table; no generated code. What the table does
//! not number is skipped, as protobuf asks. Nothing is copied before it is known where it goes.

mod wire;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use self::wire::{Reader, Wire};
use super::{Parsed, bounds::Nodes, scalar, visit::Failure};
use crate::{
    meta,
    resource::Gvk,
    schema::{Element, Field, FieldKind, Type, TypeRef, table},
};

const PREFIX: &[u8] = b"k8s\0";
const MAX_DEPTH: usize = 100;

pub(super) fn parse(body: &[u8], ty: Type) -> Result<Parsed, Failure> {
    let Some(envelope) = body.strip_prefix(PREFIX) else {
        let text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(Failure::Raw(text.to_owned()));
    };
    let unknown = Unknown::read(envelope).map_err(Failure::Raw)?;
    // A body of another kind is not read at all: its message would be taken for something else. One
    // that names no version means the endpoint's.
    let mut named = Gvk::from_api_version(&unknown.api_version, &unknown.kind);
    if unknown.api_version.is_empty()
        && let Some(own) = ty.gvk()
    {
        (named.group, named.version) = (own.group, own.version);
    }
    let fits = unknown.kind.is_empty() || table().by_gvk(&named) == Some(ty);
    let mut map = Map::new();
    if fits {
        let nodes = Nodes::new();
        let at = Place {
            depth: 0,
            nodes: &nodes,
        };
        read_message(ty, [0; 2], unknown.raw, &mut map, at).map_err(Failure::Mismatch)?;
        for (key, text) in [
            ("apiVersion", &unknown.api_version),
            ("kind", &unknown.kind),
        ] {
            if !text.is_empty() {
                map.insert(key.to_owned(), text.as_str().into());
            }
        }
    }
    Ok(Parsed {
        object: Value::Object(map),
        api_version: unknown.api_version,
        kind: unknown.kind,
        strict: Vec::new(),
    })
}

/// The envelope.
#[derive(Default)]
struct Unknown<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Unknown<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut out = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((tag, value)) = reader.field()? {
            match (tag, value) {
                (1, Wire::Bytes(type_meta)) => {
                    let mut reader = Reader::new(type_meta);
                    while let Some((tag, value)) = reader.field()? {
                        match (tag, value) {
                            (1, Wire::Bytes(text)) => out.api_version = lossy(text),
                            (2, Wire::Bytes(text)) => out.kind = lossy(text),
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => out.raw = raw,
                _ => {}
            }
        }
        Ok(out)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where in a body a value is, and what there is of it so far.
#[derive(Clone, Copy)]
struct Place<'a> {
    depth: usize,
    nodes: &'a Nodes,
}

impl Place<'_> {
    fn deeper(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// Reads a message into `map`. `via` are the tags of the embedded messages that it lies in.
fn read_message(
    ty: Type,
    via: [u16; 2],
    bytes: &[u8],
    map: &mut Map<String, Value>,
    at: Place<'_>,
) -> Result<(), String> {
    if at.depth > MAX_DEPTH {
        return Err("proto: exceeded max depth".to_owned());
    }
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.field()? {
        let Ok(tag) = u16::try_from(tag) else {
            continue;
        };
        let Some(field) = ty.field_by_tag(via, tag) else {
            let inner = if via[0] == 0 { [tag, 0] } else { [via[0], tag] };
            if let Wire::Bytes(bytes) = wire
                && via[1] == 0
                && ty.embeds(inner)
            {
                read_message(ty, inner, bytes, map, at.deeper())?;
            }
            continue;
        };
        read_field(&field, wire, map, at)?;
    }
    Ok(())
}

fn read_field(
    field: &Field,
    wire: Wire<'_>,
    map: &mut Map<String, Value>,
    at: Place<'_>,
) -> Result<(), String> {
    let name = field.json_name;
    match field.kind {
        FieldKind::One(element) => {
            match read_element(element, wire, name, at)? {
                Some(value) if !TypeRef::of_field(field).is_unset(&value) => {
                    map.insert(name.to_owned(), value)
                }
                _ => None,
            };
        }
        FieldKind::List(element) => {
            let list = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(items) = list else {
                return Ok(());
            };
            match (wire, element) {
                // Packed: Kubernetes writes no list so, but whoever reads protobuf has to take
                // both.
                (Wire::Bytes(packed), Element::Int32 | Element::Int64 | Element::Bool) => {
                    let mut reader = Reader::new(packed);
                    while !reader.is_empty() {
                        let item = Wire::Varint(reader.varint()?);
                        items.extend(read_element(element, item, name, at)?);
                    }
                }
                _ => items.extend(read_element(element, wire, name, at)?),
            }
        }
        FieldKind::Map(element) => {
            let Wire::Bytes(entry) = wire else {
                return Err(wrong_type(name));
            };
            // The key; its value may be absent.
            at.nodes.add()?;
            let (mut key, mut value) = (String::new(), None);
            let mut reader = Reader::new(entry);
            while let Some((tag, wire)) = reader.field()? {
                match (tag, wire) {
                    (1, Wire::Bytes(text)) => key = lossy(text),
                    (2, wire) => value = read_element(element, wire, name, at)?,
                    _ => {}
                }
            }
            let entries = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entries) = entries {
                entries.insert(key, value.unwrap_or_else(|| scalar::zero(element)));
            }
        }
    }
    Ok(())
}

fn wrong_type(field: &str) -> String {
    format!("proto: wrong wireType for field {field}")
}

/// Reads one value; `None` where it stands for an absent one.
fn read_element(
    element: Element,
    wire: Wire<'_>,
    field: &str,
    at: Place<'_>,
) -> Result<Option<Value>, String> {
    at.nodes.add()?;
    let bytes = match (element, wire) {
        (Element::Bool, Wire::Varint(n)) => return Ok(Some((n != 0).into())),
        (Element::Int32 | Element::Int64, Wire::Varint(n)) => {
            return Ok(Some(n.cast_signed().into()));
        }
        (Element::Double, Wire::Fixed64(bits)) => {
            return Ok(Number::from_f64(f64::from_bits(bits)).map(Value::Number));
        }
        (_, Wire::Bytes(bytes)) => bytes,
        _ => return Err(wrong_type(field)),
    };
    Ok(match element {
        Element::String => Some(Value::String(lossy(bytes))),
        Element::Bytes => Some(Value::String(STANDARD.encode(bytes))),
        Element::Object(ty) => {
            let mut map = Map::new();
            read_message(ty, [0; 2], bytes, &mut map, at.deeper())?;
            Some(Value::Object(map))
        }
        Element::Time => read_time(bytes)?.map(|at| meta::time(at).into()),
        Element::MicroTime => read_time(bytes)?.map(|at| meta::micro_time(at).into()),
        Element::Quantity => {
            let text = read_text(bytes, 1)?;
            let read = scalar::quantity(if text.is_empty() { "0" } else { &text });
            read.map_err(|_| format!("proto: {text} is no quantity"))?
        }
        Element::IntOrString => Some(read_int_or_string(bytes)?),
        Element::StringList => {
            let mut reader = Reader::new(bytes);
            let mut items = Vec::new();
            while let Some((tag, wire)) = reader.field()? {
                if let (1, Wire::Bytes(text)) = (tag, wire) {
                    at.nodes.add()?;
                    items.push(Value::String(lossy(text)));
                }
            }
            Some(Value::Array(items))
        }
        Element::RawExtension | Element::Json | Element::FieldsV1 => read_raw(bytes, at)?,
        _ => return Err(wrong_type(field)),
    })
}

fn read_text(bytes: &[u8], wanted: u64) -> Result<String, String> {
    let mut reader = Reader::new(bytes);
    let mut out = String::new();
    while let Some((tag, wire)) = reader.field()? {
        if let (true, Wire::Bytes(text)) = (tag == wanted, wire) {
            out = lossy(text);
        }
    }
    Ok(out)
}

/// Seconds and nanoseconds; an empty message is the zero time.
fn read_time(bytes: &[u8]) -> Result<Option<Timestamp>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.field()? {
        match (tag, wire) {
            (1, Wire::Varint(n)) => seconds = n.cast_signed(),
            (2, Wire::Varint(n)) => nanos = i32::try_from(n).unwrap_or(0),
            _ => {}
        }
    }
    // The year 1 is Go's zero time.
    if seconds == -62_135_596_800 {
        return Ok(None);
    }
    Timestamp::new(seconds, nanos)
        .map(Some)
        .map_err(|_| "proto: time is out of range".to_owned())
}

fn read_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0_i64, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.field()? {
        match (tag, wire) {
            (1, Wire::Varint(n)) => is_text = n == 1,
            (2, Wire::Varint(n)) => number = n.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = lossy(bytes),
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// JSON in a message, or another enveloped object, which may hold such a message again.
fn read_raw(bytes: &[u8], at: Place<'_>) -> Result<Option<Value>, String> {
    let mut reader = Reader::new(bytes);
    let mut raw: &[u8] = &[];
    while let Some((tag, wire)) = reader.field()? {
        if let (1, Wire::Bytes(bytes)) = (tag, wire) {
            raw = bytes;
        }
    }
    if raw.is_empty() {
        return Ok(None);
    }
    if let Some(envelope) = raw.strip_prefix(PREFIX) {
        let unknown = Unknown::read(envelope)?;
        let gvk = Gvk::from_api_version(&unknown.api_version, &unknown.kind);
        let ty = table()
            .by_gvk(&gvk)
            .ok_or_else(|| super::refusal::not_registered(&gvk))?;
        let mut map = Map::new();
        read_message(ty, [0; 2], unknown.raw, &mut map, at.deeper())?;
        map.insert("apiVersion".to_owned(), unknown.api_version.into());
        map.insert("kind".to_owned(), unknown.kind.into());
        return Ok(Some(Value::Object(map)));
    }
    at.nodes.add_json(raw)?;
    let value: Value = serde_json::from_slice(raw).map_err(|e| e.to_string())?;
    Ok((!value.is_null()).then_some(value))
}
