//! A place in the table: where a walk along a built-in type is.

use std::fmt;

use serde_json::Value;

use super::{
    Element, Field, FieldKind, ListType, Type,
    typed::{Members, Shape, Typed},
};

/// No field: where the walk begins.
const ROOT: u16 = u16::MAX;

/// What a value is to a built-in type: one of its objects, a field, or what is in a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TypeRef {
    kind: FieldKind,
    /// The field around it, or that it is.
    field: u16,
    is_member: bool,
}

impl TypeRef {
    /// Where the walk along an object of a type begins.
    #[must_use]
    pub const fn of(ty: Type) -> Self {
        Self {
            kind: FieldKind::One(Element::Object(ty)),
            field: ROOT,
            is_member: false,
        }
    }

    /// A field of a struct.
    pub(crate) fn of_field(field: &Field) -> Self {
        Self {
            kind: field.kind,
            field: field.index,
            is_member: true,
        }
    }

    /// An element of a list, or a value of a map.
    fn inside(self, element: Element) -> Self {
        Self {
            kind: FieldKind::One(element),
            is_member: false,
            ..self
        }
    }

    pub(crate) fn kind(self) -> FieldKind {
        self.kind
    }

    pub(crate) fn is_root(self) -> bool {
        self.field == ROOT
    }

    /// The type that has the field, unless the walk begins here.
    pub(crate) fn owner(self) -> Option<Type> {
        (!self.is_root()).then(|| Field::owner(self.field))
    }

    /// A number that no other field of the same type has: types have fewer than 128 of them.
    pub(crate) fn ordinal(self) -> u8 {
        self.field.to_le_bytes()[0] & 127
    }

    /// Whether Go could not tell the value of a field from an absent one.
    pub(crate) fn is_unset(self, value: &Value) -> bool {
        if !self.is_member {
            return false;
        }
        let flags = || Field::flags(self.field);
        match value {
            Value::String(text) => {
                text.is_empty() && !flags().is_required() && !flags().is_pointer()
            }
            Value::Number(number) => number.as_i64() == Some(0) && flags().is_plain(),
            Value::Bool(is_true) => !is_true && flags().is_plain(),
            Value::Array(items) => items.is_empty() && !flags().is_required(),
            Value::Object(map) => {
                map.is_empty() && matches!(self.kind, FieldKind::Map(_)) && !flags().is_required()
            }
            Value::Null => false,
        }
    }

    /// How an object here merges, atomic or not by its own type.
    fn object_shape(self, ty: Type) -> Shape<Self> {
        if ty.is_atomic() {
            Shape::Leaf
        } else {
            Shape::Struct(self)
        }
    }
}

impl fmt::Debug for TypeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeRef({:?})", self.kind)
    }
}

impl Typed for TypeRef {
    /// The field that the list is.
    type Keys = u16;

    fn members(self) -> Members<Self> {
        match self.kind {
            FieldKind::One(Element::Object(_)) => Members::Struct,
            FieldKind::One(
                Element::SchemaOrArray | Element::SchemaOrBool | Element::SchemaOrStringArray,
            ) => Members::Map(self.inside(Element::Json)),
            FieldKind::Map(element) => Members::Map(self.inside(element)),
            _ => Members::None,
        }
    }

    fn member(self, name: &str) -> Option<Self> {
        let FieldKind::One(Element::Object(ty)) = self.kind else {
            return None;
        };
        let field = ty.field_index(name)?;
        Some(Self {
            kind: Field::kind_of(field),
            field,
            is_member: true,
        })
    }

    fn each_member(self, mut found: impl FnMut(&str, Self)) {
        if let FieldKind::One(Element::Object(ty)) = self.kind {
            ty.fields()
                .for_each(|field| found(field.json_name, Self::of_field(&field)));
        }
    }

    fn element(self) -> Option<Self> {
        Some(self.inside(match self.kind {
            FieldKind::List(element) => element,
            FieldKind::One(Element::StringList) => Element::String,
            FieldKind::One(Element::SchemaOrArray | Element::SchemaOrStringArray) => Element::Json,
            _ => return None,
        }))
    }

    fn is_free(self) -> bool {
        matches!(
            self.kind,
            FieldKind::One(
                Element::Any | Element::RawExtension | Element::Json | Element::FieldsV1
            )
        )
    }

    fn is_nullable(self) -> bool {
        false
    }

    fn default(self) -> Option<Value> {
        let default = self.is_member.then(|| Field::default_of(self.field))?;
        serde_json::from_str(default).ok()
    }

    fn shape(self) -> Shape<Self> {
        if !self.is_member {
            return match self.kind {
                FieldKind::One(Element::Object(ty)) => self.object_shape(ty),
                _ => Shape::Leaf,
            };
        }
        let is_atomic = Field::flags(self.field).is_atomic();
        match (self.kind, Field::list_type_of(self.field)) {
            (FieldKind::One(Element::Object(ty)), _) if !is_atomic => self.object_shape(ty),
            (FieldKind::Map(element), _) if !is_atomic => Shape::Map(self.inside(element)),
            (FieldKind::List(_), Some(ListType::Set)) => Shape::Set,
            (FieldKind::List(element @ Element::Object(_)), Some(ListType::Map)) => {
                Shape::Keyed(self.field, self.inside(element))
            }
            _ => Shape::Leaf,
        }
    }

    fn each_key(keys: u16, found: impl FnMut(&str)) {
        Field::list_map_keys_of(keys).for_each(found);
    }
}
