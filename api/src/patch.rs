//! The patch formats of the API: each a pure function from object and patch to object.

pub mod json;
pub mod merge;
pub mod strategic;
