//! `namespaces/finalize`: takes finalizers of the spec away; with the last of them the namespace
//! goes.

use coracle_admission::Operation;
use coracle_api::{meta, status::Status};
use coracle_registry::part::Part;
use serde_json::Value;

use crate::{
    endpoints::{Call, update::check_name},
    reply::Reply,
};

/// Replaces `spec.finalizers`.
pub(super) async fn update(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let decoded = call.decode(&call.resource.gvk)?;
    check_name(call, &decoded.object)?;
    let finalizers = meta::get_array(&decoded.object, &["spec", "finalizers"]).to_vec();
    let version = meta::resource_version(&decoded.object).to_owned();
    let manager = call.field_manager();
    let (request, target) = (
        call.admission_request(Operation::Update, options),
        call.update_target(Part::Internal, options, &manager),
    );
    let change = |old: &Value| {
        let mut new = old.clone();
        meta::set(&mut new, &["spec", "finalizers"], finalizers.clone());
        meta::set_text(&mut new, "resourceVersion", version.as_str());
        Ok(new)
    };
    let written = call
        .server
        .update(call.resource, &request, target, change)
        .await?;
    call.write_reply(written, decoded.warnings)
}
