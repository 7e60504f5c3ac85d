//! `pods/eviction`: a deletion that may be refused. Disruption budgets are not served yet, so none refuses.

use coracle_api::{meta, resource::Gvk, status::Status};
use serde_json::Value;

use super::success;
use crate::{endpoints::Call, registry::store::delete::DeleteOptions, reply::Reply};

/// Evicts the pod.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let eviction = call.decode(&Gvk::new("policy", "v1", "Eviction"))?.object;
    let name = call.info.name.as_ref();
    if meta::name(&eviction) != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let asked = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    let precondition = |field: &str| meta::get(asked, &["preconditions", field])?.as_str().map(str::to_owned);
    let dry_run = options.dry_run || !meta::get_array(asked, &["dryRun"]).is_empty();
    let delete = DeleteOptions {
        grace_secs: asked.get("gracePeriodSeconds").and_then(Value::as_i64),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation: None,
        dry_run,
    };
    call.server.delete(call.resource, &call.info.namespace, name, &delete).await?;
    Ok(success())
}
