//! A place in a schema that came at run time: where a walk along it is.
//!
//! The metadata of an object is every kind's, so the walk goes on along the schema table there.
//! What is not described merges by what it is: maps member by member, lists as a whole.

use serde_json::Value;

use super::{Kind, Node, OF_EVERY_OBJECT, Structural};
use crate::schema::{
    ListType, table,
    type_ref::TypeRef,
    typed::{Members, Shape, Typed},
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What a value is to a schema that came at run time.
#[derive(Debug, Clone, Copy)]
pub struct NodeRef<'a>(At<'a>);

#[derive(Debug, Clone, Copy)]
enum At<'a> {
    /// The object itself.
    Root(&'a Node),
    /// What is described.
    Node(&'a Node),
    /// What is not and stays.
    Free,
    /// `apiVersion` and `kind` of an object within.
    Text,
    /// The metadata of an object within.
    Metadata(TypeRef),
    /// Other metadata, and what is in some.
    Table(TypeRef),
}

/// What tells elements apart.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    /// As the schema says.
    Named(&'a [String]),
    /// As the table says.
    Table(<TypeRef as Typed>::Keys),
}

impl<'a> NodeRef<'a> {
    /// Where the walk along an object of this schema begins.
    #[must_use]
    pub fn of(schema: &'a Structural) -> Self {
        Self(At::Root(&schema.root))
    }

    /// The place in the table, if it is metadata or in some.
    pub(crate) fn of_table(self) -> Option<TypeRef> {
        match self.0 {
            At::Metadata(place) | At::Table(place) => Some(place),
            _ => None,
        }
    }

    /// The metadata of an object within, as metadata like any other.
    pub(crate) fn metadata_within(self) -> Option<Self> {
        match self.0 {
            At::Metadata(place) => Some(Self::table(place)),
            _ => None,
        }
    }

    /// Whether this is what an object within calls its kind.
    pub(crate) fn is_text(self) -> bool {
        matches!(self.0, At::Text)
    }

    fn node(node: &'a Node) -> Self {
        Self(At::Node(node))
    }

    fn table(place: TypeRef) -> Self {
        Self(At::Table(place))
    }

    /// What every object has, whatever its schema says.
    fn of_every_object(name: &str, is_root: bool) -> Self {
        let metadata = || table().by_name(OBJECT_META).map(TypeRef::of);
        Self(match (name == "metadata", is_root) {
            (true, true) => metadata().map_or(At::Free, At::Table),
            (true, false) => metadata().map_or(At::Free, At::Metadata),
            (false, true) => At::Free,
            (false, false) => At::Text,
        })
    }

    /// The same shape, seen from here.
    fn seen(shape: Shape<TypeRef>) -> Shape<Self> {
        match shape {
            Shape::Leaf => Shape::Leaf,
            Shape::Struct(place) => Shape::Struct(Self::table(place)),
            Shape::Map(place) => Shape::Map(Self::table(place)),
            Shape::Set => Shape::Set,
            Shape::Keyed(keys, place) => Shape::Keyed(Keys::Table(keys), Self::table(place)),
        }
    }
}

impl<'a> Typed for NodeRef<'a> {
    type Keys = Keys<'a>;

    fn members(self) -> Members<Self> {
        match self.0 {
            At::Metadata(place) | At::Table(place) => match place.members() {
                Members::None => Members::None,
                Members::Struct => Members::Struct,
                Members::Map(each) => Members::Map(Self::table(each)),
            },
            _ => Members::Struct,
        }
    }

    fn member(self, name: &str) -> Option<Self> {
        let (node, is_root) = match self.0 {
            At::Metadata(place) | At::Table(place) => return place.member(name).map(Self::table),
            At::Free | At::Text => return Some(Self(At::Free)),
            At::Root(node) => (node, true),
            At::Node(node) => (node, false),
        };
        if (is_root || node.is_embedded) && OF_EVERY_OBJECT.contains(&name) {
            return Some(Self::of_every_object(name, is_root));
        }
        let described = node.properties.get(name).or(node.additional.as_deref());
        described
            .map(Self::node)
            .or_else(|| node.preserves_unknown.then_some(Self(At::Free)))
    }

    fn each_member(self, mut found: impl FnMut(&str, Self)) {
        match self.0 {
            At::Metadata(place) | At::Table(place) => {
                place.each_member(|name, member| found(name, Self::table(member)));
            }
            At::Root(node) | At::Node(node) => {
                let is_object = matches!(self.0, At::Root(_)) || node.is_embedded;
                for (name, member) in node.properties.iter() {
                    if !(is_object && OF_EVERY_OBJECT.contains(&name)) {
                        found(name, Self::node(member));
                    }
                }
            }
            At::Free | At::Text => {}
        }
    }

    fn element(self) -> Option<Self> {
        match self.0 {
            At::Metadata(place) | At::Table(place) => place.element().map(Self::table),
            At::Root(node) | At::Node(node) => {
                Some(node.items.as_deref().map_or(Self(At::Free), Self::node))
            }
            At::Free | At::Text => Some(Self(At::Free)),
        }
    }

    fn is_free(self) -> bool {
        match self.0 {
            At::Metadata(place) | At::Table(place) => place.is_free(),
            At::Root(_) | At::Node(_) => false,
            At::Free | At::Text => true,
        }
    }

    fn is_nullable(self) -> bool {
        match self.0 {
            At::Metadata(place) | At::Table(place) => place.is_nullable(),
            At::Root(node) | At::Node(node) => node.nullable,
            At::Free | At::Text => true,
        }
    }

    fn default(self) -> Option<Value> {
        match self.0 {
            At::Metadata(place) | At::Table(place) => place.default(),
            At::Root(node) | At::Node(node) => node.default.as_deref().cloned(),
            At::Free | At::Text => None,
        }
    }

    fn keeps_null(self) -> bool {
        match self.0 {
            At::Metadata(place) | At::Table(place) => place.keeps_null(),
            // As large as it may be, it is not copied to see that it is there.
            At::Root(node) | At::Node(node) => node.nullable || node.default.is_some(),
            At::Free | At::Text => true,
        }
    }

    fn shape(self) -> Shape<Self> {
        let node = match self.0 {
            At::Metadata(place) | At::Table(place) => return Self::seen(place.shape()),
            At::Text => return Shape::Leaf,
            // A list of it is a leaf, as the walk sees from the value.
            At::Root(_) | At::Free => return Shape::Struct(self),
            At::Node(node) => node,
        };
        match (node.kind, &node.items) {
            (Some(Kind::Object) | None, _) if node.is_atomic => Shape::Leaf,
            (Some(Kind::Object), _) if node.is_embedded => Shape::Struct(self),
            (Some(Kind::Object), _) => match &node.additional {
                Some(each) => Shape::Map(Self::node(each)),
                None => Shape::Struct(self),
            },
            (None, _) => Shape::Struct(self),
            (Some(Kind::Array), Some(items)) => match node.list {
                Some(ListType::Set) => Shape::Set,
                Some(ListType::Map) => {
                    Shape::Keyed(Keys::Named(&node.list_keys), Self::node(items))
                }
                _ => Shape::Leaf,
            },
            _ => Shape::Leaf,
        }
    }

    fn each_key(keys: Keys<'a>, found: impl FnMut(&str)) {
        match keys {
            Keys::Named(names) => names.iter().map(String::as_str).for_each(found),
            Keys::Table(keys) => TypeRef::each_key(keys, found),
        }
    }
}
