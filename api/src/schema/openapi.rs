//! The types of the table as OpenAPI v3 schemas, as Kubernetes' own documents write them.
//!
//! Paths, operations and the grouping into documents are the API server's.

use serde_json::{Map, Value, json};

use super::{Element, Field, FieldKind, ListType, META, Type, table};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The OpenAPI v3 schema of one type; references are `ref_prefix` + type name
/// (`#/components/schemas/`).
#[must_use]
pub fn openapi_v3_schema(ty: Type, ref_prefix: &str) -> Value {
    let mut schema = Map::new();
    if !ty.description().is_empty() {
        schema.insert("description".into(), ty.description().into());
    }
    if well_known(ty, &mut schema) {
        return Value::Object(schema);
    }
    schema.insert("type".into(), "object".into());
    let fields: Vec<Field> = ty.fields().collect();
    if !fields.is_empty() {
        let properties = fields
            .iter()
            .map(|f| (f.json_name.to_owned(), property(f, ref_prefix)))
            .collect();
        schema.insert("properties".into(), Value::Object(properties));
    }
    let required: Vec<&str> = fields
        .iter()
        .filter(|f| f.required)
        .map(|f| f.json_name)
        .collect();
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    if ty.is_atomic() {
        schema.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if let Some(gvk) = ty.gvk() {
        let gvk = json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}]);
        schema.insert("x-kubernetes-group-version-kind".into(), gvk);
    }
    Value::Object(schema)
}

/// `roots` and every type that they refer to, ordered by name, each once.
#[must_use]
pub fn closure(roots: &[Type]) -> Vec<Type> {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = roots.to_vec();
    while let Some(ty) = open.pop() {
        if seen.insert(ty) {
            open.extend(ty.fields().filter_map(|f| referred(f.kind.element())));
        }
    }
    seen.into_iter().collect()
}

/// The type that a schema refers to for an element.
fn referred(element: Element) -> Option<Type> {
    match element {
        Element::Object(ty) => Some(ty),
        other => table().by_name(&reference_name(other)?),
    }
}

fn reference_name(element: Element) -> Option<String> {
    Some(match element {
        Element::Object(ty) => ty.name().to_owned(),
        Element::Time => format!("{META}.Time"),
        Element::MicroTime => format!("{META}.MicroTime"),
        Element::FieldsV1 => format!("{META}.FieldsV1"),
        Element::Quantity => QUANTITY.to_owned(),
        Element::IntOrString => INT_OR_STRING.to_owned(),
        Element::RawExtension => RAW_EXTENSION.to_owned(),
        Element::Json => format!("{EXTENSIONS}.JSON"),
        Element::SchemaOrArray => format!("{EXTENSIONS}.JSONSchemaPropsOrArray"),
        Element::SchemaOrBool => format!("{EXTENSIONS}.JSONSchemaPropsOrBool"),
        Element::SchemaOrStringArray => format!("{EXTENSIONS}.JSONSchemaPropsOrStringArray"),
        _ => return None,
    })
}

/// Types that are no objects in JSON.
fn well_known(ty: Type, schema: &mut Map<String, Value>) -> bool {
    let facts = match ty.short_name() {
        "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
        "Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        "IntOrString" => {
            json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"})
        }
        "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray" => json!({}),
        _ => return false,
    };
    if let Value::Object(facts) = facts {
        schema.extend(facts);
    }
    true
}

fn property(field: &Field, ref_prefix: &str) -> Value {
    let mut out = match field.kind {
        FieldKind::One(element) => element_schema(element, ref_prefix, true),
        FieldKind::List(element) => {
            let items = element_schema(element, ref_prefix, false);
            Map::from_iter([
                ("type".into(), "array".into()),
                ("items".into(), Value::Object(items)),
            ])
        }
        FieldKind::Map(element) => {
            let values = element_schema(element, ref_prefix, false);
            Map::from_iter([
                ("type".into(), "object".into()),
                ("additionalProperties".into(), Value::Object(values)),
            ])
        }
    };
    if !field.description().is_empty() {
        out.insert("description".into(), field.description().into());
    }
    if let Some(default) = field.default.and_then(|d| serde_json::from_str(d).ok()) {
        out.insert("default".into(), default);
    }
    if let Some(map_type) = field.map_type() {
        out.insert("x-kubernetes-map-type".into(), map_type.into());
    }
    if let Some(list_type) = field.list_type {
        let text = match list_type {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        out.insert("x-kubernetes-list-type".into(), text.into());
    }
    if !field.list_keys.is_empty() {
        out.insert(
            "x-kubernetes-list-map-keys".into(),
            field.list_map_keys().collect(),
        );
    }
    if let Some(strategy) = field.patch_strategy {
        out.insert("x-kubernetes-patch-strategy".into(), strategy.into());
    }
    if let Some(key) = field.patch_merge_key {
        out.insert("x-kubernetes-patch-merge-key".into(), key.into());
    }
    Value::Object(out)
}

/// A reference that stands beside other members is wrapped: OpenAPI v3 ignores what is beside a
/// `$ref`.
fn element_schema(element: Element, ref_prefix: &str, wrap: bool) -> Map<String, Value> {
    if let Some(name) = reference_name(element) {
        let reference = json!({"$ref": format!("{ref_prefix}{name}")});
        return match reference {
            reference if wrap => Map::from_iter([("allOf".to_owned(), json!([reference]))]),
            Value::Object(map) => map,
            _ => Map::new(),
        };
    }
    let text = |ty: &str| Map::from_iter([("type".to_owned(), ty.into())]);
    let with_format = |ty: &str, format: &str| {
        Map::from_iter([
            ("type".to_owned(), ty.into()),
            ("format".to_owned(), format.into()),
        ])
    };
    match element {
        Element::Bool => text("boolean"),
        Element::Int32 => with_format("integer", "int32"),
        Element::Int64 => with_format("integer", "int64"),
        Element::Double => with_format("number", "double"),
        Element::String => text("string"),
        Element::Bytes => with_format("string", "byte"),
        Element::StringList => Map::from_iter([
            ("type".to_owned(), "array".into()),
            ("items".to_owned(), json!({"type": "string"})),
        ]),
        _ => text("object"),
    }
}
