//! Versions of a kind in which managers may own fields.
//!
//! What they own is told in their version, so that the object is compared in it: as it was and as
//! it is to be. Conversion is somebody else's ([`Versions`]); a kind whose versions differ by
//! nothing that anybody owns has none ([`OneVersion`]).
//!
//! Source: `Converter` in `sigs.k8s.io/structured-merge-diff/v6/merge/update.go`.

use std::sync::Arc;

use serde_json::Value;

use crate::{schema::Structural, status::Status};

/// Turns objects of a kind into other versions of it.
pub trait Versions {
    /// An object in another version than its own.
    ///
    /// # Errors
    /// It cannot be had.
    fn form(&self, object: &Value, api_version: &str) -> Result<Form, Status>;

    /// Whether there is nothing to convert, whatever version managers are of.
    fn is_one(&self) -> bool {
        false
    }
}

/// An object in another version.
#[derive(Debug, Clone)]
pub enum Form {
    /// There is no such version any more: nobody owns anything in it.
    Gone,
    /// It is not to be looked at: of what is owned in it only metadata is comparable.
    Unseen,
    /// This, of this schema.
    Other(Value, Arc<Structural>),
}

/// Of a kind that is written in one version alone, or whose versions have the same fields.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn form(&self, _object: &Value, _api_version: &str) -> Result<Form, Status> {
        Ok(Form::Unseen)
    }

    fn is_one(&self) -> bool {
        true
    }
}
