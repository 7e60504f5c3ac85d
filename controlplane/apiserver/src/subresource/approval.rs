//! `certificatesigningrequests/approval`: the conditions alone.

use coracle_admission::Operation;
use coracle_api::{meta, status::Status};
use coracle_registry::part::Part;
use serde_json::{Value, json};

use super::sent::Sent;
use crate::{
    endpoints::{Call, update::check_name},
    reply::Reply,
};

/// Replaces, patches or applies `status.conditions`, and with them what a write of the status may
/// change in metadata.
pub(super) async fn write(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let gvk = &call.resource.gvk;
    let sent = Sent::of(call, gvk, Part::Status)?;
    let manager = sent.manager(call);
    let (request, target) = (
        call.admission_request(Operation::Update, options),
        call.update_target(Part::Status, options, &manager),
    );
    let mut warnings = Vec::new();
    let change = |old: &Value| {
        let mut wanted = sent.wanted(call, gvk, &manager, old)?;
        check_name(call, &wanted.object)?;
        let conditions = dated(&wanted.object);
        wanted.object["status"] = old["status"].clone();
        meta::set(&mut wanted.object, &["status", "conditions"], conditions);
        warnings = wanted.warnings;
        Ok(wanted.object)
    };
    let written = call
        .server
        .update(call.resource, &request, target, change)
        .await?;
    call.write_reply(written, warnings)
}

/// The conditions, with the times that the client left out.
fn dated(object: &Value) -> Vec<Value> {
    let mut conditions = meta::get_array(object, &["status", "conditions"]).to_vec();
    for condition in &mut conditions {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].as_str().is_none_or(str::is_empty) {
                condition[field] = json!(meta::now());
            }
        }
    }
    conditions
}
