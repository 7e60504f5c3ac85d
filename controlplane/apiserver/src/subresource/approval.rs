//! `certificatesigningrequests/approval`: the conditions alone.

use coracle_api::{meta, status::Status};
use serde_json::{Value, json};

use super::sent::Sent;
use crate::{
    admission,
    endpoints::{Call, update::check_name},
    registry::{
        owners::Owners,
        store::update::{Change, Part},
    },
    reply::Reply,
};

/// Replaces or patches `status.conditions`.
pub(super) async fn write(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let gvk = &call.resource.gvk;
    let sent = Sent::of(call, gvk)?;
    let admit = |new: &mut Value, old: &Value| admission::check_update(call, new, old);
    let owners = Owners::of(call);
    let target = Change { namespace: "", ..admission::change(call, Part::Status, options, &admit, &owners) };
    let change = |old: &Value| {
        let wanted = sent.wanted(call, gvk, old)?;
        check_name(call, &wanted)?;
        let mut new = old.clone();
        meta::set(&mut new, &["status", "conditions"], dated(&wanted));
        sent.take_version(&mut new, &wanted, old);
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
