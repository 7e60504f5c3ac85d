//! The kinds of group `apps`.

pub mod controllerrevision;
pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod statefulset;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::{podspec, workload};
use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("apps", "v1");

/// What Deployments and ReplicaSets have in common: a selector, and a template that it selects.
fn selector_and_template(errors: &mut FieldErrors, spec: &Value) {
    let (selector, template) = (&spec["selector"], &spec["template"]);
    workload::selector(errors, selector, "deployment");
    if coracle_api::selector::LabelSelector::from_object(selector).is_err() {
        errors.invalid("spec.selector", selector, "invalid label selector");
    } else {
        podspec::validate::selected_template(errors, "spec.template", template, selector);
        workload::runs_forever(errors, template, "ReplicaSet");
    }
}
