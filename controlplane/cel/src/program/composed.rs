//! Values that are made when an expression asks for them.

use crate::value::Evaluated;

/// The values of the composed variable's fields, made when they are asked for.
pub trait Composed<'v> {
    /// What is evaluated at a place.
    fn value(&self, place: usize) -> Evaluated<'v>;
}
