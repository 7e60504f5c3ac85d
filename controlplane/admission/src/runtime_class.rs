//! RuntimeClass: a new pod names one that exists, and gets its overhead and where it can be
//! scheduled.
//!
//! Source: `plugin/pkg/admission/runtimeclass/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{quantity::Quantity, status::Status};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::Store,
    value::{items, string},
};
use serde_json::{Map, Value};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
    pod::{push, spec_mut},
};

pub(crate) struct RuntimeClass {
    store: Store,
    registry: Arc<Registry>,
}

impl RuntimeClass {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// The class that the pod names; null if it names none.
    async fn class_of(&self, attributes: &Attributes<'_>) -> Result<Value, Status> {
        let name = string(&attributes.object()["spec"]["runtimeClassName"]);
        let classes = self.registry.get("node.k8s.io", "v1", "runtimeclasses");
        let Some(classes) = classes.filter(|_| !name.is_empty()) else {
            return Ok(Value::Null);
        };
        let found = self.store.current(classes, &classes.key("", name)).await?;
        found.map(|class| class.object).ok_or_else(|| {
            attributes.forbidden(format_args!(
                "pod rejected: RuntimeClass {name:?} not found"
            ))
        })
    }
}

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        let class = self.class_of(attributes).await?;
        let filled = spec_mut(attributes).map_or(Ok(()), |spec| fill(spec, &class));
        filled.map_err(|why| attributes.forbidden(why))
    }
}

/// Gives the pod what the class says.
///
/// # Errors
/// Why the pod may not say something else.
fn fill(spec: &mut Value, class: &Value) -> Result<(), String> {
    overhead(spec, &class["overhead"]["podFixed"])?;
    node_selector(spec, &class["scheduling"]["nodeSelector"])?;
    for toleration in items(&class["scheduling"]["tolerations"]) {
        if !items(&spec["tolerations"]).contains(toleration) {
            push(spec, "tolerations", toleration.clone());
        }
    }
    Ok(())
}

fn overhead(spec: &mut Value, fixed: &Value) -> Result<(), String> {
    let own = &spec["overhead"];
    match (own.is_object(), fixed.is_object()) {
        (false, false) => Ok(()),
        (true, false) => Err(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned(),
        ),
        (true, true) if !same_amounts(own, fixed) => Err(
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned(),
        ),
        (_, true) => {
            spec["overhead"] = fixed.clone();
            Ok(())
        }
    }
}

/// `1` and `1000m` are one amount.
fn same_amounts(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return false;
    };
    let nanos = |value: &Value| {
        Quantity::parse(string(value))
            .map(|quantity| quantity.nanos())
            .ok()
    };
    one.len() == other.len()
        && one.iter().all(|(name, value)| {
            other
                .get(name)
                .is_some_and(|there| nanos(value) == nanos(there))
        })
}

fn node_selector(spec: &mut Value, wanted: &Value) -> Result<(), String> {
    let Some(wanted) = wanted.as_object().filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    if !spec["nodeSelector"].is_object() {
        spec["nodeSelector"] = Map::new().into();
    }
    for (key, value) in wanted {
        let own = &spec["nodeSelector"][key];
        if !own.is_null() && own != value {
            let (value, own) = (string(value), string(own));
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        spec["nodeSelector"][key] = value.clone();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_get_what_their_class_says() {
        let toleration = json!({"key": "k", "operator": "Exists"});
        let class = json!({"overhead": {"podFixed": {"cpu": "1", "memory": "1Gi"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [toleration]}});
        for own in [
            json!({}),
            json!({"overhead": {"cpu": "1000m", "memory": "1Gi"}, "nodeSelector": {"a": "b", "c": "d"}}),
        ] {
            let mut spec = own.clone();
            fill(&mut spec, &class).unwrap();
            assert_eq!(spec["overhead"], json!({"cpu": "1", "memory": "1Gi"}));
            assert_eq!(
                (&spec["nodeSelector"]["a"], &spec["nodeSelector"]["c"]),
                (&json!("b"), &own["nodeSelector"]["c"])
            );
            assert_eq!(spec["tolerations"], json!([toleration]));
        }
        let mut spec = json!({"x": 1});
        fill(&mut spec, &Value::Null).unwrap();
        assert_eq!(spec, json!({"x": 1}));
    }

    #[test]
    fn what_is_not_the_class_is_refused() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "b"}}});
        for (spec, class, why) in [
            (
                json!({"overhead": {"cpu": "1"}}),
                Value::Null,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"overhead": {"cpu": "2"}}),
                class.clone(),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"nodeSelector": {"a": "c"}}),
                class,
                "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
            ),
        ] {
            assert_eq!(fill(&mut spec.clone(), &class).unwrap_err(), why);
        }
    }
}
