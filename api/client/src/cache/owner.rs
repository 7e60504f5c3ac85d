//! Controller references: which object controls another. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::{Resource, api::ObjectMeta, core::Selector};

use super::Key;

/// The reference with `controller: true`.
#[must_use]
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// The key of the controller of `object`, if that is an `O`, in any version.
#[must_use]
pub fn owner_key<O: Resource<DynamicType = ()>>(object: &impl Resource) -> Option<Key> {
    let owner = controller_of(object.meta())?;
    let group = owner
        .api_version
        .rsplit_once('/')
        .map_or("", |(group, _)| group);
    (owner.kind == O::kind(&()) && group == O::group(&())).then(|| {
        Key::new(
            object.meta().namespace.clone().unwrap_or_default(),
            owner.name.clone(),
        )
    })
}

/// A selector of an object's spec, ready to match; `None` if it is not valid or selects everything.
#[must_use]
pub fn selector_of(selector: &LabelSelector) -> Option<Selector> {
    let parsed = Selector::try_from(selector.clone()).ok()?;
    (!parsed.selects_all()).then_some(parsed)
}
