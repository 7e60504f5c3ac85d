//! What a walk along a schema asks at every place, whether the schema is the table's or came at run
//! time.

use std::fmt;

use serde_json::Value;

use super::{Element, Field, FieldKind, ListType, Type};

/// A schema to walk along. Each has its own copy of the walk, so types of the table pay nothing for
/// the others.
pub trait Typed: Copy + fmt::Debug {
    /// What tells the elements of a keyed list apart.
    type Keys: Copy + fmt::Debug;

    /// How a value of this type merges.
    fn shape(self) -> Shape<Self>;

    /// How a member of a struct of this type merges.
    fn member(self, name: &str) -> Shape<Self>;

    /// Calls `found` with each member that is a key of its list.
    fn each_key(keys: Self::Keys, found: impl FnMut(&str));

    /// What a member of a struct of this type is if it is absent.
    fn default_of(self, name: &str) -> Option<Value>;
}

/// How a value merges.
#[derive(Debug, Clone, Copy)]
pub enum Shape<T: Typed> {
    /// As a whole: single values, atomic lists and structs.
    Leaf,
    /// Field by field.
    Struct(T),
    /// Member by member; members are of this type or leaves.
    Map(Option<T>),
    /// A list by value.
    Set,
    /// A list by the keys of its elements.
    Keyed(T::Keys, T),
}

impl Typed for Type {
    type Keys = Field;

    fn shape(self) -> Shape<Self> {
        if self.is_atomic() {
            Shape::Leaf
        } else {
            Shape::Struct(self)
        }
    }

    fn member(self, name: &str) -> Shape<Self> {
        let Some(field) = self.field(name) else {
            return Shape::Leaf;
        };
        match (field.kind, field.list_type) {
            (FieldKind::One(Element::Object(ty)), _) if !field.atomic => ty.shape(),
            (FieldKind::Map(element), _) if !field.atomic => match element {
                Element::Object(ty) => Shape::Map(Some(ty)),
                _ => Shape::Map(None),
            },
            (FieldKind::List(_), Some(ListType::Set)) => Shape::Set,
            (FieldKind::List(Element::Object(ty)), Some(ListType::Map)) => Shape::Keyed(field, ty),
            _ => Shape::Leaf,
        }
    }

    fn each_key(keys: Field, found: impl FnMut(&str)) {
        keys.list_map_keys().for_each(found);
    }

    fn default_of(self, name: &str) -> Option<Value> {
        serde_json::from_str(self.field(name)?.default?).ok()
    }
}
