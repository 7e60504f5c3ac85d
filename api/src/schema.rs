//! The table of the built-in types: what every field is called, in JSON and in protobuf, what it
//! holds, and how it merges. Decoding, pruning, patching and OpenAPI all read it; no type is
//! written by hand.
//!
//! The table is derived at build time (see `build.rs`), lives in the executable's read-only data
//! and is read in place: nothing of it is on the heap. [`Type`] is a handle, [`Field`] a copy of a
//! few words.
//!
//! Schemas that come at run time are [`structural`]'s. Whoever walks along a [`Schema`] asks what
//! [`Typed`] has, and is the same for both. Not here: which types are served (the registry).

mod blob;
mod defaulting;
mod field;
mod openapi;
mod pruning;
pub mod structural;
mod type_ref;
mod typed;

pub use self::{
    field::{Element, Field, FieldKind, ListType},
    openapi::{closure, openapi_v3_schema},
    structural::{NodeRef, Structural},
    type_ref::TypeRef,
    typed::{Members, Shape, Typed},
};

use std::{cmp::Ordering, fmt, sync::Arc};

use crate::resource::Gvk;

/// The package of the types that belong to every group.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// All types.
#[derive(Debug)]
pub struct Table(());

/// One type of the table: a cheap handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type(u16);

/// What is known of the objects of a kind.
#[derive(Debug, Clone)]
pub enum Schema {
    /// A type of the table.
    BuiltIn(Type),
    /// It came at run time.
    Structural(Arc<Structural>),
}

impl Schema {
    /// The type of the table, if it is one.
    #[must_use]
    pub fn built_in(&self) -> Option<Type> {
        match self {
            Self::BuiltIn(ty) => Some(*ty),
            Self::Structural(_) => None,
        }
    }

    /// What came at run time, if it did.
    #[must_use]
    pub fn structural(&self) -> Option<&Arc<Structural>> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Structural(schema) => Some(schema),
        }
    }
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
        self.field_index(json_name).map(Field::read)
    }

    fn field_index(self, json_name: &str) -> Option<u16> {
        let (first, count) = self.field_range();
        let at = |i: usize| first + u16::try_from(i).unwrap_or(u16::MAX);
        let name = json_name.as_bytes();
        search(usize::from(count), |i| {
            Field::record(at(i)).bytes(0).cmp(name)
        })
        .map(at)
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

#[cfg(test)]
mod tests;
