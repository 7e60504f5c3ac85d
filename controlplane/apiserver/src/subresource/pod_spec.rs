//! `pods/ephemeralcontainers` and `pods/resize`: the parts of a pod's spec that may change while it
//! runs.
//!
//! The pod is sent whole, or patched whole. What is this subresource's of it, the registry says.

use coracle_admission::Operation;
use coracle_api::status::Status;
use coracle_registry::part::Part;
use serde_json::Value;

use super::sent::Sent;
use crate::{
    endpoints::{Call, update::check_name},
    reply::Reply,
};

/// Replaces, patches or applies.
pub(super) async fn write(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let gvk = &call.resource.gvk;
    let sent = Sent::of(call, gvk, part)?;
    let manager = sent.manager(call);
    let (request, target) = (
        call.admission_request(Operation::Update, options),
        call.update_target(part, options, &manager),
    );
    let mut warnings = Vec::new();
    let change = |old: &Value| {
        let wanted = sent.wanted(call, gvk, &manager, old)?;
        check_name(call, &wanted.object)?;
        warnings = wanted.warnings;
        Ok(wanted.object)
    };
    let written = call
        .server
        .update(call.resource, &request, target, change)
        .await?;
    call.write_reply(written, warnings)
}
