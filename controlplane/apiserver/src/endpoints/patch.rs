//! PATCH of an object or of its status. Server-side apply is in [`super::apply`].

use coracle_admission::Operation;
use coracle_api::{
    decode, meta, patch,
    resource::Gvk,
    schema,
    status::{FieldErrors, Status},
};
use coracle_registry::{part::Part, store::update::UpdateTarget};
use http::header;
use serde_json::Value;

use super::{Call, update::check_name};
use crate::reply::Reply;

/// A lost race is run again so often, as upstream.
const TRIES: usize = 6;

/// The patch formats served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Merge,
    Strategic,
    Apply,
}

const FORMATS: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

impl Format {
    /// What the request says of its body; `force` goes with apply alone.
    pub(crate) fn of(call: &Call<'_>) -> Result<Self, Status> {
        let named = call
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let format = match named.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            _ => return Err(Status::unsupported_media_type(FORMATS)),
        };
        if format != Self::Apply && call.query.flag("force").is_some() {
            let mut errors = FieldErrors::default();
            errors.forbidden("force", "may not be specified for non-apply patch");
            return Err(Status::invalid(
                &Gvk::new("meta.k8s.io", "v1", "PatchOptions"),
                "",
                errors,
            ));
        }
        Ok(format)
    }
}

/// Patches the part of the object that the path names.
pub(crate) async fn patch(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let format = Format::of(call)?;
    if format == Format::Apply {
        return Box::pin(super::apply::apply(call, part)).await;
    }
    let mut warnings = Vec::new();
    let manager = call.field_manager();
    let target = UpdateTarget {
        tries: Some(TRIES),
        ..call.update_target(part, options, &manager)
    };
    let written = call
        .server
        .update(
            call.resource,
            &call.admission_request(Operation::Update, options),
            target,
            |current| {
                let gvk = &call.resource.gvk;
                let mut decoded = call.recheck(&apply(call, gvk, format, current)?, gvk)?;
                check_name(call, &decoded.object)?;
                if meta::resource_version(&decoded.object) == meta::resource_version(current) {
                    // A patch that leaves it alone has no opinion on it; one that sets it has.
                    meta::remove(&mut decoded.object, &["metadata", "resourceVersion"]);
                }
                warnings = decoded.warnings;
                Ok(decoded.object)
            },
        )
        .await?;
    call.write_reply(written, warnings)
}

/// The object of kind `gvk` with the patch applied.
pub(crate) fn apply(
    call: &Call<'_>,
    gvk: &Gvk,
    format: Format,
    current: &Value,
) -> Result<Value, Status> {
    decode::check_json(&call.body)?;
    match format {
        Format::Json => patch::json::apply(current, &call.body),
        Format::Merge => patch::merge::apply(current, &call.body),
        Format::Strategic => match schema::table().by_gvk(gvk) {
            Some(schema) => patch::strategic::apply(schema, current, &call.body),
            None => Err(Status::unsupported_media_type(&FORMATS[..2])),
        },
        // Says which fields are whose: not a function of object and patch alone.
        Format::Apply => Err(Status::unsupported_media_type(&FORMATS[..3])),
    }
}
