//! What a PUT or a PATCH of a subresource sends: the object itself, or a patch of the one that the subresource shows.
//!
//! What of it the subresource takes over is its own affair.

use coracle_api::{meta, resource::Gvk, status::Status};
use serde_json::Value;

use crate::{
    endpoints::{
        Call,
        patch::{self, Format},
    },
    request_info::Verb,
};

pub(super) enum Sent {
    Object(Value),
    /// In this format; the body is read when the present object is known.
    Patch(Format),
}

impl Sent {
    /// `gvk` is what the subresource shows.
    pub(super) fn of(call: &Call<'_>, gvk: &Gvk) -> Result<Self, Status> {
        match call.info.verb {
            Verb::Patch => Format::of(call).map(Self::Patch),
            _ => Ok(Self::Object(call.decode(gvk)?.object)),
        }
    }

    /// The object that the client wants where `present` is now.
    pub(super) fn wanted(&self, call: &Call<'_>, gvk: &Gvk, present: &Value) -> Result<Value, Status> {
        match self {
            Self::Object(object) => Ok(object.clone()),
            Self::Patch(format) => Ok(call.recheck(&patch::apply(call, gvk, *format, present)?, gvk)?.object),
        }
    }

    /// Gives `new` the precondition that `wanted` carries. A patch that leaves `resourceVersion` alone has none.
    pub(super) fn take_version(&self, new: &mut Value, wanted: &Value, present: &Value) {
        let version = meta::resource_version(wanted);
        let is_untouched = matches!(self, Self::Patch(_)) && version == meta::resource_version(present);
        if version.is_empty() || is_untouched {
            meta::remove(new, &["metadata", "resourceVersion"]);
        } else {
            meta::set_text(new, "resourceVersion", version);
        }
    }
}
