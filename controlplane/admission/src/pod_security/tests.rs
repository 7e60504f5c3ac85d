mod checks;
mod existing;
mod levels;
mod standard;
mod templates;
mod verdicts;

use serde_json::{Value, json};

use super::level::{Level, LevelVersion, Version};

/// Such as `restricted:v1.30`.
fn asked(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').expect("a level and a version");
    LevelVersion {
        level: Level::parse(level).expect("a level"),
        version: Version::parse(version).expect("a version"),
    }
}

/// A pod that every level lets in, with these fields of its spec instead or besides.
fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [good("i")], "containers": [good("c")]}});
    let fields = spec.as_object().expect("fields").clone();
    pod["spec"].as_object_mut().expect("a spec").extend(fields);
    pod
}

/// A container that every level lets in.
fn good(name: &str) -> Value {
    json!({"name": name, "image": "i", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}})
}

/// The same, with this of its security context instead or besides.
fn container(name: &str, context: Value) -> Value {
    let mut container = good(name);
    let fields = context.as_object().expect("fields").clone();
    let context = container["securityContext"].as_object_mut();
    context.expect("a context").extend(fields);
    container
}
