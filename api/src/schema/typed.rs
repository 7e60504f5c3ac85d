//! What a walk along a schema asks at every place: decoding, pruning, defaulting, server-side
//! apply.
//!
//! The table answers by [`TypeRef`](super::TypeRef), a schema that came at run time by
//! [`NodeRef`](super::NodeRef). Each has its own copy of every walk, so that built-in types pay
//! nothing for the others.

use std::fmt;

use serde_json::Value;

/// A place in a schema: a handle that is copied at will.
pub trait Typed: Copy + fmt::Debug {
    /// What tells the elements of a keyed list apart.
    type Keys: Copy + fmt::Debug;

    /// What an object here has for members.
    fn members(self) -> Members<Self>;

    /// A member of a struct here. What there is none for does not stay.
    fn member(self, name: &str) -> Option<Self>;

    /// Calls `found` with each member that the schema names.
    fn each_member(self, found: impl FnMut(&str, Self));

    /// An element of a list here, if a list may be here.
    fn element(self) -> Option<Self>;

    /// Whether nothing is known of what stands here, and all of it stays.
    fn is_free(self) -> bool;

    /// Whether a null is a value here and no way to say nothing.
    fn is_nullable(self) -> bool;

    /// What stands here if nothing is given.
    fn default(self) -> Option<Value>;

    /// How a value here merges.
    fn shape(self) -> Shape<Self>;

    /// Calls `found` with each member that is a key of its list.
    fn each_key(keys: Self::Keys, found: impl FnMut(&str));

    /// Whether a null stays, to be a value or to be replaced by the default.
    fn keeps_null(self) -> bool {
        self.is_nullable() || self.default().is_some()
    }
}

/// What an object has for members.
#[derive(Debug, Clone, Copy)]
pub enum Members<T> {
    /// No object may be here.
    None,
    /// Each a place of its own.
    Struct,
    /// Any name, and all values alike.
    Map(T),
}

/// How a value merges.
#[derive(Debug, Clone, Copy)]
pub enum Shape<T: Typed> {
    /// As a whole: single values, atomic lists and structs.
    Leaf,
    /// Field by field.
    Struct(T),
    /// Member by member, all of this type.
    Map(T),
    /// A list by value.
    Set,
    /// A list by the keys of its elements.
    Keyed(T::Keys, T),
}
