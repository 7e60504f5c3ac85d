//! Priority: new pods get the number and the preemption policy of their PriorityClass, or of the global default; of
//! global defaults there is one.
//!
//! Source: `plugin/pkg/admission/priority/admission.go` at v1.37.

use coracle_api::{meta, status::Status};
use coracle_registry::{
    cells::{number, string},
    resource::Resource,
    store::cache_status,
    watch_cache::Scope,
};
use serde_json::Value;

use crate::state::State;

const PREEMPT: &str = "PreemptLowerPriority";

const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";

fn is_class(resource: &Resource) -> bool {
    (resource.info.group, resource.info.plural) == (GROUP, PLURAL)
}

fn classes(server: &State) -> Option<&Resource> {
    server.registry.get(GROUP, "v1", PLURAL).map(std::convert::AsRef::as_ref)
}

/// The class of that name, the global default for no name (or null without one), or why the pod cannot have it.
pub(super) async fn look_up(server: &State, name: &str) -> Result<Result<Value, String>, Status> {
    let Some(classes) = classes(server) else { return Ok(Ok(Value::Null)) };
    if name.is_empty() {
        return Ok(Ok(global_default(classes).unwrap_or_default()));
    }
    let found = server.store.current(classes, &classes.key("", name)).await?;
    Ok(found.map(|class| class.object).ok_or_else(|| format!("no PriorityClass with name {name} was found")))
}

/// The lowest, should a race have left several.
fn global_default(classes: &Resource) -> Option<Value> {
    let all = classes.objects(Scope::Resource).into_iter();
    all.filter(|class| class["globalDefault"] == true).min_by_key(|class| number(&class["value"]))
}

/// Gives the pod what the class says.
///
/// # Errors
/// Why the pod may not say something else.
pub(super) fn fill(spec: &mut Value, class: &Value) -> Result<(), String> {
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

/// Checks a new or changed class: it may be the global default if no other is.
///
/// # Errors
/// 403 with the name of the other.
pub(super) fn check_class(server: &State, resource: &Resource, class: &Value) -> Result<(), Status> {
    if !is_class(resource) || class["globalDefault"] != true {
        return Ok(());
    }
    let name = meta::name(class);
    match classes(server).and_then(global_default) {
        Some(other) if meta::name(&other) != name => {
            let other = meta::name(&other);
            let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
            Err(Status::forbidden(&resource.group_resource, name, why))
        }
        _ => Ok(()),
    }
}

/// The same, of this moment.
pub(super) async fn check_new_class(server: &State, resource: &Resource, class: &Value) -> Result<(), Status> {
    if is_class(resource) {
        server.store.cache.catch_up().await.map_err(cache_status)?;
    }
    check_class(server, resource, class)
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
            (json!({"priorityClassName": "high", "priority": 7}), high.clone(), json!("high"), 7, "Never"),
        ] {
            let mut spec = spec;
            fill(&mut spec, &class).unwrap();
            assert_eq!((&spec["priorityClassName"], spec["priority"].as_i64()), (&name, Some(priority)));
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
            assert_eq!(fill(&mut spec.clone(), &json!({"value": 0})).unwrap_err(), expect);
        }
    }
}
