//! The table of the built-in types.

use serde_json::Value;

use crate::resource::Gvk;

/// All types. Lives in the executable's read-only data; nothing of it is on the heap.
#[derive(Debug)]
pub struct Table;

/// One type of the table: a cheap handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type(u16);

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// Name in JSON; empty for an inlined message.
    pub json_name: &'static str,
    /// Protobuf field number.
    pub tag: u32,
    /// Shape and type.
    pub kind: FieldKind,
    /// Whether the OpenAPI document lists it as required.
    pub required: bool,
    /// `atomic`, `set` or `map`.
    pub list_type: Option<&'static str>,
    /// Comma-separated keys; see [`Field::list_map_keys`].
    pub list_keys: &'static str,
    /// `merge`, `replace`, `merge,retainKeys`, ...
    pub patch_strategy: Option<&'static str>,
    /// Key by which a strategic merge patch merges the list.
    pub patch_merge_key: Option<&'static str>,
    /// Default as JSON text.
    pub default: Option<&'static str>,
}

/// The shape of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A single value.
    One(Element),
    /// A JSON array.
    List(Element),
    /// A JSON object with free keys.
    Map(Element),
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// `true`, `false`
    Bool,
    /// 32-bit integer
    Int32,
    /// 64-bit integer
    Int64,
    /// A number with fraction
    Double,
    /// Text
    String,
    /// Base64 text in JSON
    Bytes,
    /// RFC 3339 with seconds
    Time,
    /// RFC 3339 with microseconds
    MicroTime,
    /// Go's duration text
    Duration,
    /// `100m`
    Quantity,
    /// Number or text
    IntOrString,
    /// Any JSON, kept as it is
    Any,
    /// A set of field paths, kept as it is
    FieldsV1,
    /// An array of strings, a message of its own in protobuf
    StringList,
    /// A type of the table
    Object(Type),
}

/// The table.
#[must_use]
pub fn table() -> &'static Table {
    &Table
}

impl Table {
    /// The type that `gvk` names on the wire.
    #[must_use]
    pub fn by_gvk(&self, _gvk: &Gvk) -> Option<Type> {
        None
    }

    /// The type of an OpenAPI name such as `io.k8s.api.core.v1.Pod`.
    #[must_use]
    pub fn by_name(&self, _name: &str) -> Option<Type> {
        None
    }

    /// All types, ordered by name.
    pub fn types(&self) -> impl Iterator<Item = Type> {
        std::iter::empty()
    }
}

impl Type {
    /// OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
    #[must_use]
    pub fn name(self) -> &'static str {
        ""
    }

    /// What the type is for, in upstream's words.
    #[must_use]
    pub fn description(self) -> &'static str {
        ""
    }

    /// The fields, ordered by JSON name.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        std::iter::empty()
    }

    /// The field of a JSON name.
    #[must_use]
    pub fn field(self, _json_name: &str) -> Option<Field> {
        None
    }

    /// The kinds that this type is on the wire.
    #[must_use]
    pub fn gvks(self) -> Vec<Gvk> {
        Vec::new()
    }
}

impl Field {
    /// What the field is for, in upstream's words.
    #[must_use]
    pub fn description(&self) -> &'static str {
        ""
    }

    /// The keys of a `map` list.
    pub fn list_map_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.list_keys.split(',').filter(|k| !k.is_empty())
    }
}

/// The OpenAPI v3 schema of one type; references are `ref_prefix` + type name (`#/components/schemas/`).
#[must_use]
pub fn openapi_v3_schema(_ty: Type, _ref_prefix: &str) -> Value {
    Value::Null
}

/// `roots` and every type that they refer to, ordered by name, each once.
#[must_use]
pub fn closure(roots: &[Type]) -> Vec<Type> {
    roots.to_vec()
}
