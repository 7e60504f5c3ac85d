//! What creates and updates of kinds with a status and a generation have in common.
//!
//! Source: `pkg/registry/<group>/<kind>/strategy.go` at v1.37.

use serde_json::Value;

use super::strategy::Strategy;

/// What the registry keeps in the objects of a kind, whatever a client writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// Neither of the two.
    Plain,
    /// `metadata.generation`, which counts changes.
    Generation,
    /// `status`, which writes of the main resource leave alone.
    Status,
    /// Both.
    GenerationAndStatus,
}

impl Lifecycle {
    fn has_generation(self) -> bool {
        matches!(self, Self::Generation | Self::GenerationAndStatus)
    }

    fn has_status(self) -> bool {
        matches!(self, Self::Status | Self::GenerationAndStatus)
    }
}

/// The usual create: the first status, the first generation.
pub fn create(strategy: &(impl Strategy + ?Sized), object: &mut Value) {
    let lifecycle = strategy.lifecycle();
    if lifecycle.has_status() {
        object["status"] = strategy.first_status(object);
    }
    if lifecycle.has_generation() {
        object["metadata"]["generation"] = 1.into();
    }
}

/// The usual update: the status stays, the generation counts changes.
pub fn update(strategy: &(impl Strategy + ?Sized), new: &mut Value, old: &Value) {
    let lifecycle = strategy.lifecycle();
    if lifecycle.has_status() {
        keep(new, old, "status");
    }
    if lifecycle.has_generation() {
        let changed = strategy.is_changed(new, old);
        next_generation(new, old, changed);
    }
}

/// Copies a top-level field, or its absence, from `old`.
pub fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else {
        return;
    };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Keeps `metadata.generation`, or counts it on if `changed`.
fn next_generation(new: &mut Value, old: &Value, changed: bool) {
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    if changed {
        new["metadata"]["generation"] = (generation + 1).into();
    } else if generation > 0 {
        new["metadata"]["generation"] = generation.into();
    } else if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::batch::cronjob::CronJob;

    #[test]
    fn generation_moves_with_spec_only() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"x": 1}});
        for (new, expect) in [
            (
                json!({"metadata": {}, "spec": {"a": 1}, "status": {"x": 2}}),
                3,
            ),
            (json!({"metadata": {"generation": 9}, "spec": {"a": 2}}), 4),
        ] {
            let mut new = new;
            update(&CronJob, &mut new, &old);
            assert_eq!(new["metadata"]["generation"], expect);
            assert_eq!(new["status"], old["status"]);
        }
    }
}
