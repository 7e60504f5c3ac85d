//! Admission of writes: what depends on other objects, on who asks, or on how much there is already.
//!
//! Every write comes through here, whatever its verb: create, update, each patch format, server-side apply and the
//! subresources. `rights` holds what is about those; the rest is here. Webhooks
//! and policies are not served yet: this is their place.
//!
//! ```text
//! create   mutate_new > (defaults) > new_pod > (validation) > check_new > reserve addresses > write with quota, one transaction
//! update   (defaults, validation) > check_update > reserve addresses > write with quota, one transaction
//! ```

pub(crate) mod limit_range;
pub(crate) mod new_pod;
pub(crate) mod node_restriction;
mod priority;
pub(crate) mod quota;
pub(crate) mod rights;
mod runtime_class;
mod service_account;
pub(crate) mod token_secret;

use coracle_api::status::Status;
use coracle_auth::user::UserInfo;
use coracle_registry::{
    part::Part,
    resource::Resource,
    store::{WriteOptions, update::Change},
};
use serde_json::Value;

use crate::{endpoints::Call, state::State};

/// Changes and checks a new object before it is defaulted and validated.
pub(crate) async fn mutate_new(call: &Call<'_>, namespace: &str, object: &mut Value) -> Result<(), Status> {
    rights::check_create(call, object)?;
    match (call.resource.info.group, call.resource.info.plural) {
        ("certificates.k8s.io", "certificatesigningrequests") => sign_request(call.user, &mut object["spec"]),
        ("", "pods") => {
            let ranges = limit_range::in_namespace(call.server, namespace).await?;
            if !ranges.is_empty() {
                // What a container asks for follows from its limits before it follows from the namespace's.
                call.resource.strategy.default(object);
                ranges.iter().for_each(|range| limit_range::fill(range, object));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks a new object that is defaulted and valid.
pub(crate) async fn check_new(
    server: &State,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), Status> {
    priority::check_new_class(server, resource, object).await?;
    limit_range::check(server, resource, namespace, object).await
}

/// Checks a change. Runs on the new object, which is valid.
pub(crate) fn check_update(call: &Call<'_>, new: &mut Value, old: &Value) -> Result<(), Status> {
    rights::check_update(call, new, old)?;
    priority::check_class(call.server, call.resource, new)?;
    token_secret::refill(call.server, call.resource, new)?;
    let (plural, subresource) = (call.resource.info.plural, call.info.subresource);
    let is_sized = matches!((plural, subresource), ("pods", "resize") | ("persistentvolumeclaims", ""));
    if call.resource.info.group.is_empty() && is_sized && new["spec"] != old["spec"] {
        limit_range::check_known(call.server, call.resource, &call.info.namespace, new)?;
    }
    Ok(())
}

/// The change that a request makes, with everything that has to look at it.
pub(crate) fn change<'a>(
    call: &'a Call<'_>,
    part: Part,
    options: WriteOptions,
    reserve: coracle_registry::store::update::Reserve<'a>,
    manager: &'a coracle_registry::managed_fields::FieldManager,
) -> Change<'a> {
    Change {
        namespace: &call.info.namespace,
        name: &call.info.name,
        part,
        options,
        tries: None,
        reserve: Some(reserve),
        manager: Some(manager),
        companion: None,
    }
}

/// Writes into a certificate request who made it: signers go by that.
fn sign_request(user: &UserInfo, spec: &mut Value) {
    spec["username"] = user.name.as_str().into();
    spec["groups"] = user.groups.clone().into();
    spec["uid"] = user.uid.as_str().into();
    let extra: serde_json::Map<String, Value> =
        user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("extra");
        if !extra.is_empty() {
            spec.insert("extra".to_owned(), extra.into());
        }
    }
}
