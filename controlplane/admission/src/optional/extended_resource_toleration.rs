//! ExtendedResourceToleration: a pod that asks for a device tolerates the taint that keeps others
//! off nodes that have it. The taint has the name of the resource.
//!
//! Source: `plugin/pkg/admission/extendedresourcetoleration/admission.go` at v1.37.

use std::collections::BTreeSet;

use async_trait::async_trait;
use coracle_api::{scheduling::is_extended, status::Status};
use coracle_registry::{
    api_resource::ApiResource,
    value::{items, keys, string},
};
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
    pod::{push, spec_mut},
};

pub(crate) struct ExtendedResourceToleration;

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let asked = extended(&attributes.object()["spec"]);
        if !asked.is_empty()
            && let Some(spec) = spec_mut(attributes)
        {
            asked.iter().for_each(|resource| tolerate(spec, resource));
        }
        Ok(())
    }
}

fn extended(spec: &Value) -> BTreeSet<String> {
    let lists = ["containers", "initContainers"].into_iter();
    let containers = lists.flat_map(|list| items(&spec[list]));
    let names = containers.flat_map(|container| keys(&container["resources"]["requests"]));
    names
        .filter(|name| is_extended(name))
        .map(str::to_owned)
        .collect()
}

/// A toleration that is the same but for its seconds gives way.
fn tolerate(spec: &mut Value, resource: &str) {
    let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
    let is_same = |one: &Value| {
        ["key", "operator", "effect", "value"]
            .iter()
            .all(|field| string(&one[field]) == string(&wanted[field]))
    };
    let own = spec["tolerations"].as_array_mut();
    match own.and_then(|own| own.iter_mut().find(|one| is_same(one))) {
        Some(same) => *same = wanted.clone(),
        None => push(spec, "tolerations", wanted.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(resource: &str) -> Value {
        json!({"resources": {"requests": {"cpu": "1", resource: "1"}}})
    }

    fn toleration(key: &str) -> Value {
        json!({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    }

    #[test]
    fn devices_are_tolerated_once_in_the_order_of_their_names() {
        let other =
            json!({"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"});
        let (one, two) = ("example.com/device-ek", "example.com/device-do");
        for (spec, expect) in [
            (json!({"containers": [container("memory")]}), json!(null)),
            (
                json!({"initContainers": [container(one)]}),
                json!([toleration(one)]),
            ),
            (
                json!({"containers": [container(one), container(two)], "initContainers": [container(one)],
                    "tolerations": [other]}),
                json!([other, toleration(two), toleration(one)]),
            ),
            (
                json!({"containers": [container(one)], "tolerations": [toleration(one), other]}),
                json!([toleration(one), other]),
            ),
        ] {
            let mut spec = spec;
            let asked = extended(&spec);
            asked
                .iter()
                .for_each(|resource| tolerate(&mut spec, resource));
            assert_eq!(
                spec.get("tolerations").unwrap_or(&Value::Null),
                &expect,
                "{spec}"
            );
        }
    }
}
