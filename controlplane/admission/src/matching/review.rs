//! A request as `AdmissionRequest` of `admission.k8s.io/v1` has it: all but its UID and the
//! objects.
//!
//! Source: `CreateV1AdmissionReview` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`,
//! `CreateAdmissionRequest` in `.../plugin/cel/condition.go` at v1.37.

use coracle_api::resource::Gvk;
use coracle_registry::api_resource::ApiResource;
use serde_json::{Value, json};

use super::{
    criteria::Invocation,
    place::{name_of, namespace_of},
};
use crate::attributes::Attributes;

/// The request as who is invoked is told of it.
#[must_use]
pub fn request(attributes: &Attributes<'_>, invocation: &Invocation) -> Value {
    let own = attributes.kind_as(attributes.resource);
    let resource = invocation.resource(attributes);
    let mut request = json!({
        "kind": kind(&invocation.kind(attributes)),
        "resource": named(resource),
        "requestKind": kind(&own),
        "requestResource": named(attributes.resource),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user.to_value(),
        "dryRun": attributes.options.dry_run,
        "options": attributes.told.to_value(attributes.options.dry_run),
    });
    for (field, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", &*name_of(attributes)),
        ("namespace", &*namespace_of(attributes)),
    ] {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    request
}

fn kind(gvk: &Gvk) -> Value {
    json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
}

fn named(resource: &ApiResource) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.plural})
}
