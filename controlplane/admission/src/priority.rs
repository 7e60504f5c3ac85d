//! Priority: new pods get the number and the preemption policy of their PriorityClass, or of the
//! global default, and keep them; of global defaults there is one.
//!
//! Source: `plugin/pkg/admission/priority/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{meta, status::Status};
use coracle_registry::{
    api_resource::ApiResource,
    resource::{Registry, Resource},
    store::{Store, cache_status},
    value::{number, string},
    watch_cache::KeyScope,
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
    pod::spec_mut,
};

const PREEMPT: &str = "PreemptLowerPriority";
const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";

pub(crate) struct Priority {
    store: Store,
    registry: Arc<Registry>,
}

impl Priority {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// The class that the pod names; for one that names none the global default, or null without
    /// that.
    async fn class_of(&self, attributes: &Attributes<'_>) -> Result<Value, Status> {
        let Some(classes) = self.registry.get(GROUP, "v1", PLURAL) else {
            return Ok(Value::Null);
        };
        let name = string(&attributes.object()["spec"]["priorityClassName"]);
        if name.is_empty() {
            // No look into the store finds a default by its name: the cache must know of the last.
            self.store.cache.catch_up().await.map_err(cache_status)?;
            return Ok(global_default(classes).unwrap_or_default());
        }
        let found = self.store.current(classes, &classes.key("", name)).await?;
        found.map(|class| class.object).ok_or_else(|| {
            attributes.forbidden(format_args!("no PriorityClass with name {name} was found"))
        })
    }
}

fn is_class(resource: &ApiResource) -> bool {
    resource.is(GROUP, PLURAL)
}

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && (resource.is_core("pods") || is_class(resource))
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_core("pods") {
            return Ok(());
        }
        if let Some(old) = attributes.old() {
            let kept = kept(&attributes.object()["spec"], &old["spec"]);
            if !kept.is_empty()
                && let Some(spec) = spec_mut(attributes)
            {
                kept.into_iter()
                    .for_each(|(field, value)| spec[field] = value);
            }
            return Ok(());
        }
        let class = self.class_of(attributes).await?;
        let filled = spec_mut(attributes).map_or(Ok(()), |spec| fill(spec, &class));
        filled.map_err(|why| attributes.forbidden(why))
    }

    /// A new or changed class may be the global default if no other is.
    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let class = attributes.object();
        if !is_class(attributes.resource) || class["globalDefault"] != true {
            return Ok(());
        }
        self.store.cache.catch_up().await.map_err(cache_status)?;
        let classes = self.registry.get(GROUP, "v1", PLURAL);
        match classes.and_then(|classes| global_default(classes)) {
            Some(other) if meta::name(&other) != meta::name(class) => {
                let other = meta::name(&other);
                let why = format!(
                    "PriorityClass {other} is already marked as default. Only one default can exist"
                );
                Err(attributes.forbidden(why))
            }
            _ => Ok(()),
        }
    }
}

/// The lowest, should a race have left several.
fn global_default(classes: &Resource) -> Option<Value> {
    let all = classes.objects(KeyScope::Resource).into_iter();
    all.filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| number(&class["value"]))
}

/// What the stored pod got and an update leaves out: clients that write it whole may not know it.
/// Validation refuses others.
fn kept(new: &Value, old: &Value) -> Vec<(&'static str, Value)> {
    let fields = ["priority", "preemptionPolicy"].into_iter();
    let left_out = fields.filter(|field| new[field].is_null() && !old[field].is_null());
    left_out.map(|field| (field, old[field].clone())).collect()
}

/// Gives the pod what the class says.
///
/// # Errors
/// Why the pod may not say something else.
fn fill(spec: &mut Value, class: &Value) -> Result<(), String> {
    let name = meta::name(class);
    if !name.is_empty() {
        spec["priorityClassName"] = name.into();
    }
    let (priority, policy) = (number(&class["value"]), string(&class["preemptionPolicy"]));
    let policy = if policy.is_empty() { PREEMPT } else { policy };
    if let Some(own) = spec["priority"].as_i64().filter(|own| *own != priority) {
        return Err(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    let own = string(&spec["preemptionPolicy"]);
    if !own.is_empty() && own != policy {
        return Err(format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller \
             computed {policy} from the given PriorityClass name"
        ));
    }
    spec["priority"] = priority.into();
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_get_what_their_class_says() {
        let high = json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"});
        for (spec, class, name, priority, policy) in [
            (json!({}), json!(null), json!(null), 0, PREEMPT),
            (json!({}), high.clone(), json!("high"), 7, "Never"),
            (
                json!({"priorityClassName": "high", "priority": 7}),
                high.clone(),
                json!("high"),
                7,
                "Never",
            ),
        ] {
            let mut spec = spec;
            fill(&mut spec, &class).unwrap();
            assert_eq!(
                (&spec["priorityClassName"], spec["priority"].as_i64()),
                (&name, Some(priority))
            );
            assert_eq!(spec["preemptionPolicy"], policy);
        }
    }

    #[test]
    fn what_is_not_the_class_is_refused() {
        for (spec, expect) in [
            (
                json!({"priority": 5}),
                "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
            ),
            (
                json!({"preemptionPolicy": "Never"}),
                "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
            ),
        ] {
            assert_eq!(
                fill(&mut spec.clone(), &json!({"value": 0})).unwrap_err(),
                expect
            );
        }
    }
}
