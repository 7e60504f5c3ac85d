//! What a PUT or a PATCH of a subresource sends: the object itself, a patch of the one that the
//! subresource shows, or a configuration to apply.
//!
//! What of it the subresource takes over is its own affair.

use coracle_api::{decode::Decoded, meta, resource::Gvk, status::Status};
use coracle_registry::{managed_fields::FieldManager, part::Part};
use serde_json::Value;

use crate::{
    endpoints::{
        Call,
        apply::Configuration,
        patch::{self, Format},
    },
    request_info::Verb,
};

pub(super) enum Sent {
    Object(Decoded),
    /// In this format; the body is read when the present object is known.
    Patch(Format),
    Configuration(Configuration),
}

impl Sent {
    /// `gvk` is what the subresource shows, `part` what it writes.
    pub(super) fn of(call: &Call<'_>, gvk: &Gvk, part: Part) -> Result<Self, Status> {
        if call.info.verb != Verb::Patch {
            return call.decode(gvk).map(Self::Object);
        }
        match Format::of(call)? {
            Format::Apply => Configuration::of(call, gvk, part).map(Self::Configuration),
            format => Ok(Self::Patch(format)),
        }
    }

    /// Who comes to own what is written.
    pub(super) fn manager(&self, call: &Call<'_>) -> FieldManager {
        match self {
            Self::Configuration(_) => call.field_manager().applying(),
            _ => call.field_manager(),
        }
    }

    /// The object that the client wants where `present` is now. Its version is a precondition: a
    /// patch that leaves it alone has none.
    pub(super) fn wanted(
        &self,
        call: &Call<'_>,
        gvk: &Gvk,
        manager: &FieldManager,
        present: &Value,
    ) -> Result<Decoded, Status> {
        match self {
            Self::Object(decoded) => Ok(decoded.clone()),
            Self::Patch(format) => {
                let mut wanted = call.recheck(&patch::apply(call, gvk, *format, present)?, gvk)?;
                if meta::resource_version(&wanted.object) == meta::resource_version(present) {
                    meta::remove(&mut wanted.object, &["metadata", "resourceVersion"]);
                }
                Ok(wanted)
            }
            Self::Configuration(config) => {
                let object = config.merged(call, manager, present)?;
                Ok(Decoded {
                    object,
                    warnings: config.warnings.clone(),
                })
            }
        }
    }
}
