//! The table of the built-in types: what every field is called, in JSON and in protobuf, what it
//! holds, and how it merges. Decoding, pruning, patching and OpenAPI all read it; no type is
//! written by hand.
//!
//! The table is derived at build time (see `build.rs`), lives in the executable's read-only data
//! and is read in place: nothing of it is on the heap. [`Type`] is a handle, [`Field`] a copy of a
//! few words.
//!
//! Schemas that come at run time are [`structural`]'s. Not here: which types are served (the
//! registry).

mod blob;
mod openapi;
pub mod structural;

pub use self::{
    openapi::{closure, openapi_v3_schema},
    structural::{Schema, Structural},
};

use std::{cmp::Ordering, fmt};

use crate::resource::Gvk;

/// The package of the types that belong to every group.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// All types.
#[derive(Debug)]
pub struct Table(());

/// One type of the table: a cheap handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type(u16);

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    index: u16,
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

/// The table.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: Table = Table(());
    &TABLE
}

impl Table {
    /// The type that `gvk` names on the wire. The options of requests (`DeleteOptions`, ...),
    /// `Status` and the like belong to every group and version.
    #[must_use]
    pub fn by_gvk(&self, gvk: &Gvk) -> Option<Type> {
        let api_version = (gvk.group.as_str(), gvk.version.as_str());
        let found = search(blob::KINDS.len() / blob::KIND_LEN, |i| {
            let kind = blob::record(blob::KINDS, blob::KIND_LEN, i);
            let have = kind.text(0).rsplit_once('/').unwrap_or_default();
            (have, kind.text(6)).cmp(&(api_version, gvk.kind.as_str()))
        });
        if let Some(i) = found {
            return Some(Type(blob::record(blob::KINDS, blob::KIND_LEN, i).short(12)));
        }
        let everywhere =
            gvk.kind.ends_with("Options") || matches!(gvk.kind.as_str(), "Status" | "WatchEvent");
        if everywhere {
            self.by_name(&format!("{META}.{}", gvk.kind))
        } else {
            None
        }
    }

    /// The type of an OpenAPI name such as `io.k8s.api.core.v1.Pod`.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Type> {
        let found = search(self.len(), |i| Self::at(i).name().cmp(name));
        found.map(Self::at)
    }

    /// All types, ordered by name.
    pub fn types(&self) -> impl Iterator<Item = Type> + use<> {
        (0..self.len()).map(Self::at)
    }

    fn len(&self) -> usize {
        blob::TYPES.len() / blob::TYPE_LEN
    }

    fn at(index: usize) -> Type {
        Type(u16::try_from(index).expect("the table has fewer than 65536 types"))
    }
}

/// The index where `compare` finds equality, in an ordered sequence.
fn search(len: usize, compare: impl Fn(usize) -> Ordering) -> Option<usize> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = usize::midpoint(low, high);
        match compare(middle) {
            Ordering::Equal => return Some(middle),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    None
}

impl Type {
    fn record(self) -> blob::Record {
        blob::record(blob::TYPES, blob::TYPE_LEN, usize::from(self.0))
    }

    /// OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.record().text(0)
    }

    /// The last part of the name, such as `Pod`: what Go calls the struct.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        let name = self.name();
        name.rsplit_once('.').map_or(name, |(_, last)| last)
    }

    /// What the type is for, in upstream's words.
    #[must_use]
    pub fn description(self) -> &'static str {
        self.record().text(6)
    }

    /// Whether server-side apply owns and replaces values of this type as a whole.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        self.record().byte(22) != 0
    }

    /// The kind that this type is on the wire, if it is one.
    #[must_use]
    pub fn gvk(self) -> Option<Gvk> {
        let record = self.record();
        if record.byte(23) == 0 {
            return None;
        }
        let (group, version) = record.text(12).rsplit_once('/')?;
        Some(Gvk::new(group, version, self.short_name()))
    }

    /// The fields, ordered by JSON name.
    pub fn fields(self) -> impl ExactSizeIterator<Item = Field> + use<> {
        let (first, count) = self.field_range();
        (first..first + count).map(Field::read)
    }

    /// The field of a JSON name.
    #[must_use]
    pub fn field(self, json_name: &str) -> Option<Field> {
        let (first, count) = self.field_range();
        let at = |i: usize| first + u16::try_from(i).unwrap_or(u16::MAX);
        search(usize::from(count), |i| {
            Field::record(at(i)).bytes(0).cmp(json_name.as_bytes())
        })
        .map(|i| Field::read(at(i)))
    }

    /// The field of a JSON name, and its place among the fields.
    pub(crate) fn field_with_index(self, json_name: &str) -> Option<(u16, Field)> {
        let (first, _) = self.field_range();
        self.field(json_name).map(|f| (f.index - first, f))
    }

    /// The field that protobuf numbers `tag`, inside the embedded messages `via`.
    #[must_use]
    pub(crate) fn field_by_tag(self, via: [u16; 2], tag: u16) -> Option<Field> {
        let (first, count) = self.field_range();
        (first..first + count)
            .find(|i| {
                let record = Field::record(*i);
                record.short(16) == tag && [record.short(12), record.short(14)] == via
            })
            .map(Field::read)
    }

    /// Whether some field lies inside the embedded messages `via`.
    #[must_use]
    pub(crate) fn embeds(self, via: [u16; 2]) -> bool {
        let (first, count) = self.field_range();
        (first..first + count).any(|i| {
            let record = Field::record(i);
            record.short(12) == via[0] && (via[1] == 0 || record.short(14) == via[1])
        })
    }

    fn field_range(self) -> (u16, u16) {
        let record = self.record();
        (record.short(18), record.short(20))
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Type({})", self.name())
    }
}

impl Field {
    fn record(index: u16) -> blob::Record {
        blob::record(blob::FIELDS, blob::FIELD_LEN, usize::from(index))
    }

    fn read(index: u16) -> Self {
        let record = Self::record(index);
        let element = element(record.byte(19), record.short(20));
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        Self {
            index,
            json_name: record.text(0),
            tag: record.short(16),
            via: [record.short(12), record.short(14)],
            kind: match record.byte(18) {
                0 => FieldKind::One(element),
                1 => FieldKind::List(element),
                _ => FieldKind::Map(element),
            },
            required: record.byte(22) & 1 != 0,
            atomic: record.byte(22) & 2 != 0,
            list_type: match record.byte(23) {
                1 => Some(ListType::Atomic),
                2 => Some(ListType::Set),
                3 => Some(ListType::Map),
                _ => None,
            },
            list_keys: record.text(24),
            patch_strategy: some(record.text(30)),
            patch_merge_key: some(record.text(36)),
            default: some(record.text(42)),
        }
    }

    /// What the field is for, in upstream's words.
    #[must_use]
    pub fn description(&self) -> &'static str {
        Self::record(self.index).text(6)
    }

    /// The keys of a `map` list.
    pub fn list_map_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.list_keys.split(',').filter(|k| !k.is_empty())
    }

    /// Whether zero or false means the same as absent: Go has no pointer here.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        Self::record(self.index).byte(22) & 8 != 0
    }

    /// Whether an empty text means something else than an absent one: Go has a pointer here.
    #[must_use]
    pub fn is_pointer(&self) -> bool {
        Self::record(self.index).byte(22) & 16 != 0
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

#[cfg(test)]
mod tests;
