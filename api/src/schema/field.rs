//! One field of a type of the table, as `build.rs` wrote it, and what it may hold.

use std::cmp::Ordering;

use super::{Table, Type, blob, search, table};

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    pub(super) index: u16,
    /// Name in JSON.
    pub json_name: &'static str,
    /// Protobuf field number; 0 for what protobuf does not carry.
    pub tag: u16,
    /// Field numbers of the embedded messages around it that JSON does not show, outermost first; 0
    /// where there is none.
    pub via: [u16; 2],
    /// Shape and type.
    pub kind: FieldKind,
    /// Whether the OpenAPI document lists it as required.
    pub required: bool,
    /// Whether a map or struct is owned and replaced as a whole by server-side apply.
    pub atomic: bool,
    /// How a list merges in server-side apply; absent counts as atomic.
    pub list_type: Option<ListType>,
    /// Comma-separated keys of a `map` list; see [`Field::list_map_keys`].
    pub list_keys: &'static str,
    /// `merge`, `replace`, `retainKeys`, `merge,retainKeys`; see [`Field::has_patch_strategy`].
    pub patch_strategy: Option<&'static str>,
    /// Key by which a strategic merge patch merges the list.
    pub patch_merge_key: Option<&'static str>,
    /// Default as JSON text.
    pub default: Option<&'static str>,
}

/// What is said of a field in one bit each.
#[derive(Clone, Copy)]
pub(super) struct Flags(u8);

/// How a list merges in server-side apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// As a whole.
    Atomic,
    /// By value.
    Set,
    /// By the keys of its elements.
    Map,
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
    /// Any JSON, kept as it is; protobuf does not carry it.
    Any,
    /// A type of the table
    Object(Type),
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
    /// `100m`
    Quantity,
    /// Number or text
    IntOrString,
    /// An object of another kind, kept as it is
    RawExtension,
    /// Any JSON, kept as it is
    Json,
    /// A set of field paths, kept as it is
    FieldsV1,
    /// An array of strings that is a message of its own in protobuf
    StringList,
    /// `JSONSchemaPropsOrArray`
    SchemaOrArray,
    /// `JSONSchemaPropsOrBool`
    SchemaOrBool,
    /// `JSONSchemaPropsOrStringArray`
    SchemaOrStringArray,
}

impl Field {
    pub(super) fn record(index: u16) -> blob::Record {
        blob::record(blob::FIELDS, blob::FIELD_LEN, usize::from(index))
    }

    pub(super) fn read(index: u16) -> Self {
        let record = Self::record(index);
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        let flags = Self::flags(index);
        Self {
            index,
            json_name: record.text(0),
            tag: record.short(16),
            via: [record.short(12), record.short(14)],
            kind: Self::kind_of(index),
            required: flags.is_required(),
            atomic: flags.is_atomic(),
            list_type: Self::list_type_of(index),
            list_keys: record.text(24),
            patch_strategy: some(record.text(30)),
            patch_merge_key: some(record.text(36)),
            default: some(record.text(42)),
        }
    }

    pub(super) fn kind_of(index: u16) -> FieldKind {
        let record = Self::record(index);
        let element = element(record.byte(19), record.short(20));
        match record.byte(18) {
            0 => FieldKind::One(element),
            1 => FieldKind::List(element),
            _ => FieldKind::Map(element),
        }
    }

    pub(super) fn list_type_of(index: u16) -> Option<ListType> {
        match Self::record(index).byte(23) {
            1 => Some(ListType::Atomic),
            2 => Some(ListType::Set),
            3 => Some(ListType::Map),
            _ => None,
        }
    }

    pub(super) fn list_map_keys_of(index: u16) -> impl Iterator<Item = &'static str> {
        let keys = Self::record(index).text(24);
        keys.split(',').filter(|key| !key.is_empty())
    }

    /// As JSON text; empty if there is none.
    pub(super) fn default_of(index: u16) -> &'static str {
        Self::record(index).text(42)
    }

    pub(super) fn flags(index: u16) -> Flags {
        Flags(Self::record(index).byte(22))
    }

    /// The type that has a field.
    pub(super) fn owner(index: u16) -> Type {
        let found = search(table().len(), |i| {
            let (first, count) = Table::at(i).field_range();
            if first > index {
                Ordering::Greater
            } else if first + count <= index {
                Ordering::Less
            } else {
                Ordering::Equal
            }
        });
        Table::at(found.expect("every field is a type's"))
    }

    /// What the field is for, in upstream's words.
    #[must_use]
    pub fn description(&self) -> &'static str {
        Self::record(self.index).text(6)
    }

    /// The keys of a `map` list.
    pub fn list_map_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        Self::list_map_keys_of(self.index)
    }

    /// Whether zero or false means the same as absent: Go has no pointer here.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        Self::flags(self.index).is_plain()
    }

    /// Whether an empty text means something else than an absent one: Go has a pointer here.
    #[must_use]
    pub fn is_pointer(&self) -> bool {
        Self::flags(self.index).is_pointer()
    }

    /// Whether a strategic merge patch treats the field by `strategy`.
    #[must_use]
    pub fn has_patch_strategy(&self, strategy: &str) -> bool {
        self.patch_strategy
            .is_some_and(|s| s.split(',').any(|s| s == strategy))
    }

    /// `atomic` or `granular`, where upstream says so.
    #[must_use]
    pub fn map_type(&self) -> Option<&'static str> {
        match Self::record(self.index).byte(22) & 6 {
            2 => Some("atomic"),
            4 => Some("granular"),
            _ => None,
        }
    }

    /// The type of the value, of each list element, or of each map value.
    #[must_use]
    pub fn object_type(&self) -> Option<Type> {
        match self.kind.element() {
            Element::Object(ty) => Some(ty),
            _ => None,
        }
    }
}

impl Flags {
    pub(super) fn is_required(self) -> bool {
        self.0 & 1 != 0
    }

    pub(super) fn is_atomic(self) -> bool {
        self.0 & 2 != 0
    }

    pub(super) fn is_plain(self) -> bool {
        self.0 & 8 != 0
    }

    pub(super) fn is_pointer(self) -> bool {
        self.0 & 16 != 0
    }
}

impl FieldKind {
    /// The type of the value, of each list element, or of each map value.
    #[must_use]
    pub fn element(self) -> Element {
        match self {
            Self::One(element) | Self::List(element) | Self::Map(element) => element,
        }
    }
}

fn element(code: u8, ty: u16) -> Element {
    match code {
        1 => Element::Object(Type(ty)),
        2 => Element::Bool,
        3 => Element::Int32,
        4 => Element::Int64,
        5 => Element::Double,
        6 => Element::String,
        7 => Element::Bytes,
        8 => Element::Time,
        9 => Element::MicroTime,
        10 => Element::Quantity,
        11 => Element::IntOrString,
        12 => Element::RawExtension,
        13 => Element::Json,
        14 => Element::FieldsV1,
        15 => Element::StringList,
        16 => Element::SchemaOrArray,
        17 => Element::SchemaOrBool,
        18 => Element::SchemaOrStringArray,
        _ => Element::Any,
    }
}
