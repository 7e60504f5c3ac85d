//! How discovery shows subresources.

use coracle_registry::{
    api_resource::ApiResource,
    strategy::{Scope, Subresource},
};
use serde_json::{Value, json};

/// An entry of a legacy APIResourceList.
pub(super) fn legacy(info: &ApiResource, sub: Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", info.plural, sub.name()),
        "singularName": "",
        "namespaced": info.scope == Scope::Namespaced,
        "kind": info.kind,
        "verbs": sub.verbs(),
    });
    if let Some((group, version, kind)) = sub.foreign_kind(&info.kind) {
        value["kind"] = kind.into();
        // Left out where they are the list's own.
        if (group, version) != (&*info.group, &*info.version) {
            value["group"] = group.into();
            value["version"] = version.into();
        }
    }
    value
}

/// An entry of an aggregated resource's `subresources`.
pub(super) fn aggregated(info: &ApiResource, sub: Subresource) -> Value {
    let (group, version, kind) =
        sub.foreign_kind(&info.kind)
            .unwrap_or((&*info.group, &*info.version, &*info.kind));
    json!({
        "subresource": sub.name(),
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": sub.verbs(),
    })
}
