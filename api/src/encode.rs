//! Objects as protobuf: JSON to Kubernetes' form, the prefix `k8s\0`, a `runtime.Unknown`, and in
//! it the object's message. The reverse of [`crate::decode`].
//!
//! Fields are written in the order of their numbers, as Go does; what is absent in JSON is absent
//! here, which every reader takes for zero. Lists are taken item by item: the text of a large one
//! is never held as a tree, and whoever has the items one by one writes them so ([`ListEncoder`]).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    resource::Gvk,
    schema::{Element, Field, FieldKind, Type, table},
};

const PREFIX: &[u8] = b"k8s\0";
const META_GROUP: &str = "meta.k8s.io/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// As the decoder has it.
const MAX_DEPTH: usize = 100;

/// Why an object has no protobuf form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// It is no JSON object.
    #[error("the object is no JSON object")]
    Parse(#[from] serde_json::Error),
    /// Its kind has no protobuf form.
    #[error("{kind} of {api_version} has no protobuf form")]
    UnknownKind {
        /// As the object says.
        api_version: String,
        /// As the object says.
        kind: String,
    },
    /// A field's value does not fit its type.
    #[error("field {field} does not fit its type")]
    Misfit {
        /// Its name.
        field: String,
    },
}

/// The object, or list of objects, that `json` is.
///
/// # Errors
/// [`EncodeError`]: permanent for this object.
pub fn protobuf(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let head: Head<'_> = serde_json::from_slice(json)?;
    let (api_version, kind) = (
        head.api_version.unwrap_or_default(),
        head.kind.unwrap_or_default(),
    );
    if let Some(items) = head.items.filter(|_| kind.ends_with("List")) {
        let metadata = head.metadata.map_or("{}", RawValue::get);
        let list = ListEncoder::new(&api_version, &kind, metadata)?;
        let mut raw = Vec::with_capacity(json.len());
        for item in items {
            list.append_item(item.get().as_bytes(), &mut raw)?;
        }
        let mut out = list.begin(raw.len());
        out.extend_from_slice(&raw);
        out.extend_from_slice(LIST_END);
        return Ok(out);
    }
    let raw = match (api_version.starts_with(META_GROUP), kind.as_str()) {
        (true, "PartialObjectMetadata") => partial(json)?,
        (true, _) => return Err(unknown(&api_version, &kind)),
        (false, _) => message(
            table()
                .by_gvk(&Gvk::from_api_version(&api_version, &kind))
                .ok_or_else(|| unknown(&api_version, &kind))?,
            &serde_json::from_slice(json)?,
        )?,
    };
    let mut out = begin(&api_version, &kind, raw.len());
    out.extend_from_slice(&raw);
    out.extend_from_slice(LIST_END);
    Ok(out)
}

/// A list that is written item by item. How long all of them are stands before the first, so who
/// does not hold them goes through them twice.
///
/// Shape: [`ListEncoder::begin`], the items, [`LIST_END`].
#[derive(Debug)]
pub struct ListEncoder {
    api_version: String,
    kind: String,
    /// The list's metadata, with its key.
    metadata: Vec<u8>,
    tag: u16,
    /// `None` for PartialObjectMetadata.
    item: Option<Type>,
}

/// What stands after an object's message: encoding and content type, which Go writes also when they
/// are empty.
pub const LIST_END: &[u8] = &[3 << 3 | 2, 0, 4 << 3 | 2, 0];

impl ListEncoder {
    /// A list of `kind`, such as `PodList`, with `metadata` as JSON.
    ///
    /// # Errors
    /// [`EncodeError`]: permanent for this kind.
    pub fn new(api_version: &str, kind: &str, metadata: &str) -> Result<Self, EncodeError> {
        let no_form = || unknown(api_version, kind);
        let (meta_tag, meta_type, tag, item) = if api_version.starts_with(META_GROUP) {
            if kind != "PartialObjectMetadataList" {
                return Err(no_form());
            }
            (1, by_name(LIST_META), 2, None)
        } else {
            let ty = table()
                .by_gvk(&Gvk::from_api_version(api_version, kind))
                .ok_or_else(no_form)?;
            let numbered = |name: &str| {
                ty.field(name)
                    .filter(|field| field.tag != 0)
                    .ok_or_else(no_form)
            };
            let (meta, list) = (numbered("metadata")?, numbered("items")?);
            let item = list.object_type().ok_or_else(no_form)?;
            (meta.tag, meta.object_type(), list.tag, Some(item))
        };
        let mut of_list = Vec::new();
        if let Some(ty) = meta_type {
            let text = message(ty, &serde_json::from_str(metadata)?)?;
            put_message(&mut of_list, meta_tag, &text);
        }
        Ok(Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            metadata: of_list,
            tag,
            item,
        })
    }

    /// What stands before the items, which take `items` bytes together.
    pub fn begin(&self, items: usize) -> Vec<u8> {
        let mut out = begin(&self.api_version, &self.kind, self.metadata.len() + items);
        out.extend_from_slice(&self.metadata);
        out
    }

    /// Appends an item, which is JSON.
    ///
    /// # Errors
    /// [`EncodeError`]: permanent for this object.
    pub fn append_item(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let item = match self.item {
            Some(ty) => message(ty, &serde_json::from_slice(json)?)?,
            None => partial(json)?,
        };
        put_message(out, self.tag, &item);
        Ok(())
    }
}

/// A watch event, whose object is already in protobuf: a frame of a stream, four bytes of length
/// before it.
#[must_use]
pub fn watch_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut extension = Vec::with_capacity(object.len() + 8);
    put_message(&mut extension, 1, object);
    let mut event = Vec::with_capacity(extension.len() + 32);
    put_message(&mut event, 1, kind.as_bytes());
    put_message(&mut event, 2, &extension);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat()
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

fn by_name(name: &str) -> Option<Type> {
    table().by_name(name)
}

/// PartialObjectMetadata: nothing but the metadata.
fn partial(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let object: Map<String, Value> = serde_json::from_slice(json)?;
    let mut raw = Vec::new();
    if let (Some(Value::Object(metadata)), Some(ty)) =
        (object.get("metadata"), by_name(OBJECT_META))
    {
        put_message(&mut raw, 1, &message(ty, metadata)?);
    }
    Ok(raw)
}

fn unknown(api_version: &str, kind: &str) -> EncodeError {
    EncodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    }
}

/// What stands before the message of an object, which takes `length` bytes.
fn begin(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_message(&mut type_meta, 1, api_version.as_bytes());
    put_message(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(length + type_meta.len() + 24);
    out.extend_from_slice(PREFIX);
    put_message(&mut out, 1, &type_meta);
    put_key(&mut out, 2, 2);
    varint(&mut out, length as u64);
    out
}

/// The message of an object. What it is stands in the envelope, not here.
fn message(ty: Type, map: &Map<String, Value>) -> Result<Vec<u8>, EncodeError> {
    let known: Vec<(Field, &Value)> = map
        .iter()
        .filter(|(key, value)| !value.is_null() && !matches!(key.as_str(), "apiVersion" | "kind"))
        .filter_map(|(key, value)| Some((ty.field(key).filter(|field| field.tag != 0)?, value)))
        .collect();
    fields(&known, 0, 0)
}

/// The fields that lie `level` embedded messages deep, and those messages themselves.
fn fields(known: &[(Field, &Value)], level: usize, depth: usize) -> Result<Vec<u8>, EncodeError> {
    let mut parts: Vec<(u16, Vec<u8>)> = Vec::with_capacity(known.len());
    let mut embedded: Vec<u16> = Vec::new();
    for (field, value) in known {
        match field.via.get(level).copied().filter(|tag| *tag != 0) {
            Some(tag) if !embedded.contains(&tag) => embedded.push(tag),
            Some(_) => {}
            None => parts.push((field.tag, one_field(field, value, depth)?)),
        }
    }
    for tag in embedded {
        let inner: Vec<(Field, &Value)> = known
            .iter()
            .filter(|(field, _)| field.via[level] == tag)
            .map(|(field, value)| (*field, *value))
            .collect();
        let mut part = Vec::new();
        put_message(&mut part, tag, &fields(&inner, level + 1, depth)?);
        parts.push((tag, part));
    }
    parts.sort_by_key(|(tag, _)| *tag);
    Ok(parts.into_iter().flat_map(|(_, part)| part).collect())
}

fn one_field(field: &Field, value: &Value, depth: usize) -> Result<Vec<u8>, EncodeError> {
    let misfit = || EncodeError::Misfit {
        field: field.json_name.to_owned(),
    };
    if depth > MAX_DEPTH {
        return Err(misfit());
    }
    let mut out = Vec::new();
    match field.kind {
        FieldKind::One(element) => {
            put(&mut out, field.tag, element, value, depth).ok_or_else(misfit)??
        }
        FieldKind::List(element) => {
            for item in value.as_array().ok_or_else(misfit)? {
                put(&mut out, field.tag, element, item, depth).ok_or_else(misfit)??;
            }
        }
        FieldKind::Map(element) => {
            for (key, value) in value.as_object().ok_or_else(misfit)? {
                let mut entry = Vec::new();
                put_message(&mut entry, 1, key.as_bytes());
                put(&mut entry, 2, element, value, depth).ok_or_else(misfit)??;
                put_message(&mut out, field.tag, &entry);
            }
        }
    }
    Ok(out)
}

/// Appends one value; `None` if it does not fit.
fn put(
    out: &mut Vec<u8>,
    tag: u16,
    element: Element,
    value: &Value,
    depth: usize,
) -> Option<Result<(), EncodeError>> {
    match element {
        Element::Bool => put_varint(out, tag, u64::from(value.as_bool()?)),
        Element::Int32 | Element::Int64 => put_varint(out, tag, value.as_i64()?.cast_unsigned()),
        Element::Double => {
            put_key(out, tag, 1);
            out.extend_from_slice(&value.as_f64()?.to_bits().to_le_bytes());
        }
        Element::String => put_message(out, tag, value.as_str()?.as_bytes()),
        Element::Bytes => put_message(out, tag, &STANDARD.decode(value.as_str()?).ok()?),
        Element::Object(ty) => {
            let known = value
                .as_object()?
                .iter()
                .filter(|(_, value)| !value.is_null());
            let known: Vec<(Field, &Value)> = known
                .filter_map(|(key, value)| {
                    Some((ty.field(key).filter(|field| field.tag != 0)?, value))
                })
                .collect();
            match fields(&known, 0, depth + 1) {
                Ok(inner) => put_message(out, tag, &inner),
                Err(error) => return Some(Err(error)),
            }
        }
        _ => put_message(out, tag, &wrapped(element, value)?),
    }
    Some(Ok(()))
}

/// The message of what is no object in JSON; `None` if the value does not fit.
fn wrapped(element: Element, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match element {
        // Null is Go's zero time, whose message is empty.
        Element::Time | Element::MicroTime if value.is_null() => {}
        Element::Time | Element::MicroTime => {
            let at: Timestamp = value.as_str()?.parse().ok()?;
            put_varint(&mut out, 1, at.as_second().cast_unsigned());
            let nanos = i64::from(at.subsec_nanosecond());
            put_varint(&mut out, 2, nanos.cast_unsigned());
        }
        Element::Quantity => put_message(&mut out, 1, text_of(value)?.as_bytes()),
        Element::IntOrString => {
            let (kind, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                number => (0, number.as_i64()?, ""),
            };
            put_varint(&mut out, 1, kind);
            put_varint(&mut out, 2, number.cast_unsigned());
            put_message(&mut out, 3, text.as_bytes());
        }
        Element::StringList => {
            for item in value.as_array()? {
                put_message(&mut out, 1, item.as_str()?.as_bytes());
            }
        }
        Element::RawExtension | Element::Json | Element::FieldsV1 => {
            put_message(&mut out, 1, value.to_string().as_bytes());
        }
        _ => return None,
    }
    Some(out)
}

/// Quantities are texts; a number is one that nobody has made canonical yet.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn put_message(out: &mut Vec<u8>, tag: u16, bytes: &[u8]) {
    put_key(out, tag, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, tag: u16, value: u64) {
    put_key(out, tag, 0);
    varint(out, value);
}

fn put_key(out: &mut Vec<u8>, tag: u16, wire: u64) {
    varint(out, u64::from(tag) << 3 | wire);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

#[cfg(test)]
mod tests;
