//! How server-side apply walks along a schema that came at run time.
//!
//! The metadata of an object is every kind's, so the walk goes on along the schema table there.
//! What is not described merges by what it is: maps member by member, lists as a whole.

use serde_json::Value;

use crate::schema::{
    Field, ListType, Shape, Structural, Type, Typed,
    structural::{FREE, Kind, Node},
    table,
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub struct Typing<'a>(At<'a>);

#[derive(Debug, Clone, Copy)]
enum At<'a> {
    Object(&'a Node),
    Node(&'a Node),
    Table(Type),
}

/// What tells elements apart.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    /// As the schema says.
    Named(&'a [String]),
    /// As the table says.
    Table(Field),
}

impl<'a> Typing<'a> {
    /// Where the walk along an object of this schema begins.
    #[must_use]
    pub fn of(schema: &'a Structural) -> Self {
        Self(At::Object(&schema.root))
    }
}

impl<'a> Typed for Typing<'a> {
    type Keys = Keys<'a>;

    fn shape(self) -> Shape<Self> {
        match self.0 {
            At::Object(_) => Shape::Struct(self),
            At::Table(ty) => of_table(ty.shape()),
            At::Node(node) => shape(node),
        }
    }

    fn member(self, name: &str) -> Shape<Self> {
        match (self.0, name) {
            (At::Table(ty), name) => of_table(ty.member(name)),
            (At::Object(_), "apiVersion" | "kind") => Shape::Leaf,
            (At::Object(_), "metadata") => table()
                .by_name(OBJECT_META)
                .map_or(Shape::Leaf, |ty| of_table(ty.shape())),
            (At::Object(node) | At::Node(node), name) => {
                member(node, name).map_or(Shape::Leaf, shape)
            }
        }
    }

    fn each_key(keys: Keys<'a>, found: impl FnMut(&str)) {
        match keys {
            Keys::Named(names) => names.iter().map(String::as_str).for_each(found),
            Keys::Table(field) => Type::each_key(field, found),
        }
    }

    fn default_of(self, name: &str) -> Option<Value> {
        match self.0 {
            At::Table(ty) => ty.default_of(name),
            At::Object(node) | At::Node(node) => node.properties.get(name)?.default.clone(),
        }
    }
}

fn member<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let described = node.properties.get(name).or(node.additional.as_deref());
    described.or_else(|| node.preserves_unknown.then_some(&FREE))
}

fn shape(node: &Node) -> Shape<Typing<'_>> {
    let here = Typing(At::Node(node));
    match (node.kind, &node.items) {
        (Some(Kind::Object) | None, _) if node.is_atomic => Shape::Leaf,
        (Some(Kind::Object), _) if node.is_embedded => Shape::Struct(Typing(At::Object(node))),
        (Some(Kind::Object), _) => match &node.additional {
            Some(each) => Shape::Map(Some(Typing(At::Node(each)))),
            None => Shape::Struct(here),
        },
        // Whatever it is: a list of it is a leaf, as the walk sees from the value.
        (None, _) => Shape::Struct(here),
        (Some(Kind::Array), Some(items)) => match node.list {
            Some(ListType::Set) => Shape::Set,
            Some(ListType::Map) => {
                Shape::Keyed(Keys::Named(&node.list_keys), Typing(At::Node(items)))
            }
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}

/// The same shape, seen from here.
fn of_table<'a>(shape: Shape<Type>) -> Shape<Typing<'a>> {
    let here = |ty| Typing(At::Table(ty));
    match shape {
        Shape::Leaf => Shape::Leaf,
        Shape::Struct(ty) => Shape::Struct(here(ty)),
        Shape::Map(ty) => Shape::Map(ty.map(here)),
        Shape::Set => Shape::Set,
        Shape::Keyed(field, ty) => Shape::Keyed(Keys::Table(field), here(ty)),
    }
}
