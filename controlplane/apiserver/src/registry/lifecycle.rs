//! What creates and updates of kinds with a status and a generation have in common.
//!
//! Source: `pkg/registry/<group>/<kind>/strategy.go` at v1.37.

use serde_json::{Value, json};

/// Empties `status`, which only a controller writes.
pub fn reset_status(object: &mut Value) {
    object["status"] = json!({});
}

/// Keeps the stored `status` (or its absence) on a write of the main resource.
pub fn keep_status(new: &mut Value, old: &Value) {
    keep(new, old, "status");
}

/// Copies a top-level field, or its absence, from `old`.
pub fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Starts `metadata.generation` at one.
pub fn first_generation(object: &mut Value) {
    object["metadata"]["generation"] = 1.into();
}

/// Keeps `metadata.generation`, or counts it on if `changed`.
pub fn next_generation(new: &mut Value, old: &Value, changed: bool) {
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    if changed {
        new["metadata"]["generation"] = (generation + 1).into();
    } else if generation > 0 {
        new["metadata"]["generation"] = generation.into();
    } else if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
}

/// The usual create: no status yet, first generation.
pub fn create(object: &mut Value) {
    reset_status(object);
    first_generation(object);
}

/// The usual update: the status stays, the generation counts changes of `spec`.
pub fn update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let changed = new.get("spec") != old.get("spec");
    next_generation(new, old, changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_moves_with_spec_only() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"x": 1}});
        for (new, expect) in [
            (json!({"metadata": {}, "spec": {"a": 1}, "status": {"x": 2}}), 3),
            (json!({"metadata": {"generation": 9}, "spec": {"a": 2}}), 4),
        ] {
            let mut new = new;
            update(&mut new, &old);
            assert_eq!(new["metadata"]["generation"], expect);
            assert_eq!(new["status"], old["status"]);
        }
    }
}
