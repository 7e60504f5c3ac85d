//! Types from schemas.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;

use super::{
    decl::{DeclField, DeclKind, DeclType, ListKind},
    names::escape,
};

/// The most bytes of a request: what bounds data that its schema does not.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// What types are made from: structural schemas of custom resources, and those of built-in kinds.
pub trait Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or nothing.
    fn type_name(&self) -> &str;
    /// `date-time` and so on, or nothing.
    fn format(&self) -> &str;
    /// Of an array.
    fn items(&self) -> Option<&dyn Schema>;
    /// Each property by its name in JSON.
    fn properties(&self) -> Vec<(&str, &dyn Schema)>;
    /// Of a map: the schema of its values.
    fn additional_properties(&self) -> Option<&dyn Schema>;
    /// Properties that must be there.
    fn required(&self) -> Vec<&str>;
    /// What a property is if it is not there.
    fn default_value(&self) -> Option<&Json>;
    /// The values a property may have; empty for any.
    fn enumeration(&self) -> Vec<&Json>;
    /// In characters.
    fn max_length(&self) -> Option<i64>;
    /// Of an array.
    fn max_items(&self) -> Option<i64>;
    /// Of a map.
    fn max_properties(&self) -> Option<i64>;
    /// Whether it can be null.
    fn is_nullable(&self) -> bool;
    /// `x-kubernetes-int-or-string`
    fn is_int_or_string(&self) -> bool;
    /// `x-kubernetes-embedded-resource`
    fn is_embedded_resource(&self) -> bool;
    /// `x-kubernetes-list-type` and its keys.
    fn list_kind(&self) -> ListKind;
}

/// The type of what a schema describes; `None` if expressions may not see it.
///
/// `name` becomes the name of an object's type, and those within are named after it. At the root of
/// a resource `apiVersion`, `kind`, `metadata.name` and `metadata.generateName` can be read
/// whatever the schema says.
pub fn decl_type(schema: &dyn Schema, name: &str, resource_root: bool) -> Option<Arc<DeclType>> {
    let mut of = unnullable(schema, name, resource_root)?;
    let nullable = schema.is_nullable();
    Arc::get_mut(&mut of).expect("nobody has it yet").nullable = nullable;
    Some(of)
}

fn unnullable(schema: &dyn Schema, name: &str, resource_root: bool) -> Option<Arc<DeclType>> {
    if schema.is_int_or_string() {
        let longest = schema.max_length().map_or(MAX_REQUEST - 2, characters);
        return Some(sized(DeclKind::IntOrString, longest, 1));
    }
    let of = match schema.type_name() {
        "array" => return array(schema, name),
        "object" => return object(schema, name, resource_root),
        "string" => return Some(string(schema)),
        "boolean" => sized(DeclKind::Bool, 0, 4),
        "number" => sized(DeclKind::Double, 0, 1),
        "integer" => sized(DeclKind::Int, 0, 1),
        _ => return None,
    };
    Some(of)
}

fn sized(kind: DeclKind, max_elements: u64, min_serialized: u64) -> Arc<DeclType> {
    Arc::new(DeclType {
        kind,
        max_elements,
        nullable: false,
        min_serialized,
    })
}

fn bound(bound: i64) -> u64 {
    u64::try_from(bound).unwrap_or(0)
}

/// A character has up to four bytes.
fn characters(bound_of: i64) -> u64 {
    bound(bound_of).saturating_mul(4)
}

fn array(schema: &dyn Schema, name: &str) -> Option<Arc<DeclType>> {
    let items = schema.items()?;
    let item_name = format!("{name}.@idx");
    let element = decl_type(items, &item_name, items.is_embedded_resource())?;
    let most = (MAX_REQUEST - 2) / (element.min_serialized + 1);
    let most = schema.max_items().map_or(most, bound);
    let list = schema.list_kind();
    Some(sized(DeclKind::List { element, list }, most, 2))
}

fn object(schema: &dyn Schema, name: &str, resource_root: bool) -> Option<Arc<DeclType>> {
    if let Some(values) = schema.additional_properties() {
        let value_name = format!("{name}.@elem");
        let value = decl_type(values, &value_name, values.is_embedded_resource())?;
        // Two bytes for a key, quotes, a colon, a comma.
        let most = (MAX_REQUEST - 2) / (value.min_serialized + 6);
        let most = schema.max_properties().map_or(most, bound);
        return Some(sized(DeclKind::Map { value }, most, 2));
    }
    let required = schema.required();
    let mut fields = BTreeMap::new();
    let mut least = 2;
    for (property, of) in schema.properties() {
        let field_name = format!("{name}.{property}");
        let Some(of_field) = decl_type(of, &field_name, of.is_embedded_resource()) else {
            continue;
        };
        if required.contains(&property) && of.default_value().is_none() {
            least += property.len() as u64 + of_field.min_serialized + 4;
        }
        if let Some(escaped) = escape(property) {
            fields.insert(escaped.into(), field(property, of_field));
        }
    }
    if resource_root {
        add_meta(&mut fields, name);
    }
    let kind = DeclKind::Object {
        name: name.into(),
        fields,
    };
    Some(sized(kind, 0, least))
}

fn field(json_name: &str, of: Arc<DeclType>) -> DeclField {
    DeclField {
        json_name: json_name.into(),
        of,
    }
}

fn text() -> Arc<DeclType> {
    sized(DeclKind::String, MAX_REQUEST - 2, 2)
}

/// What can be read of every resource. If any of it is missing, upstream puts all of it in place of
/// what the schema has.
fn add_meta(fields: &mut BTreeMap<Box<str>, DeclField>, name: &str) {
    let is_text = |fields: &BTreeMap<Box<str>, DeclField>, name: &str| {
        let field = fields.get(name);
        field.is_some_and(|field| matches!(field.of.kind, DeclKind::String))
    };
    let has_names = match fields.get("metadata").map(|field| &field.of.kind) {
        Some(DeclKind::Object { fields, .. }) => {
            is_text(fields, "name") && is_text(fields, "generateName")
        }
        _ => false,
    };
    if has_names && is_text(fields, "kind") && is_text(fields, "apiVersion") {
        return;
    }
    let names = ["name", "generateName"];
    let meta = DeclKind::Object {
        name: format!("{name}.metadata").into(),
        fields: BTreeMap::from(names.map(|name| (name.into(), field(name, text())))),
    };
    fields.insert("kind".into(), field("kind", text()));
    fields.insert("apiVersion".into(), field("apiVersion", text()));
    let meta = field("metadata", sized(meta, 0, 2));
    fields.insert("metadata".into(), meta);
}

fn string(schema: &dyn Schema) -> Arc<DeclType> {
    match schema.format() {
        "byte" => {
            let most = schema.max_length().map_or(MAX_REQUEST - 2, bound);
            sized(DeclKind::Bytes, most, 2)
        }
        "duration" => sized(DeclKind::Duration, 32, 3),
        "date" => sized(DeclKind::Timestamp, 12, 12),
        "date-time" => sized(DeclKind::Timestamp, 32, 21),
        _ => {
            let values = schema.enumeration();
            let longest = values
                .iter()
                .filter_map(|value| value.as_str())
                .map(str::len);
            let most = match schema.max_length() {
                Some(length) => characters(length),
                None if values.is_empty() => MAX_REQUEST - 2,
                None => longest.max().unwrap_or(0) as u64,
            };
            sized(DeclKind::String, most, 2)
        }
    }
}
