//! `certificatesigningrequests/approval`: the conditions alone.

use coracle_api::{meta, status::Status};
use serde_json::{Value, json};

use crate::{
    admission,
    endpoints::{
        Call,
        patch::{self, Format},
        update::check_name,
    },
    registry::{
        owners::Owners,
        store::update::{Change, Part},
    },
    reply::Reply,
    request_info::Verb,
};

/// Replaces or patches `status.conditions`.
pub(super) async fn write(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let format = if call.info.verb == Verb::Patch { Some(Format::of(call)?) } else { None };
    let sent = if format.is_none() { Some(call.decode(&call.resource.gvk)?.object) } else { None };
    let admit = |new: &mut Value, old: &Value| admission::check_update(call, new, old);
    let owners = Owners::of(call);
    let target = Change { namespace: "", ..admission::change(call, Part::Status, options, &admit, &owners) };
    let change = |old: &Value| {
        let wanted = match (format, &sent) {
            (Some(format), _) => call.recheck(&patch::apply(call, format, old)?)?.object,
            (None, Some(sent)) => sent.clone(),
            (None, None) => return Err(Status::bad_request("the body is empty")),
        };
        check_name(call, &wanted)?;
        let mut new = old.clone();
        meta::set(&mut new, &["status", "conditions"], dated(&wanted));
        if format.is_none() {
            meta::set_text(&mut new, "resourceVersion", meta::resource_version(&wanted));
        } else {
            meta::remove(&mut new, &["metadata", "resourceVersion"]);
        }
        Ok(new)
    };
    let written = call.server.update(call.resource, &target, change).await?;
    call.written(written, Vec::new())
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
