//! What `scale` shows of an object, in the words of autoscaling/v1, and where it is written.
//!
//! Source: `pkg/registry/apps/deployment/storage/storage.go`, `ScaleREST` at v1.37.

use std::{borrow::Cow, sync::LazyLock};

use coracle_api::{
    meta,
    selector::{LabelSelector, ParseSelectorError},
};
use serde_json::{Value, json};

use crate::strategy::{ScalePaths, Strategy};

/// Where built-in kinds have them; their selector is an object.
static BUILT_IN: LazyLock<ScalePaths> = LazyLock::new(|| {
    let path = |part: &str| vec![part.to_owned(), "replicas".to_owned()];
    ScalePaths {
        spec_replicas: path("spec"),
        status_replicas: path("status"),
        selector: None,
    }
});

/// Where the replicas of a kind are.
#[must_use]
pub fn paths(strategy: &dyn Strategy) -> Cow<'static, ScalePaths> {
    match strategy.scale_paths() {
        Some(paths) => Cow::Owned(paths.clone()),
        None => Cow::Borrowed(&*BUILT_IN),
    }
}

/// The Scale that an object shows.
#[must_use]
pub fn of(object: &Value, paths: &ScalePaths) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = paths.wanted(object).filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": paths.present(object).unwrap_or(0)});
    if let Some(selector) = selector(object, paths) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The object with as many replicas as a Scale wants.
#[must_use]
pub fn written(scale: &Value, object: &Value, paths: &ScalePaths) -> Value {
    let mut new = object.clone();
    let replicas = meta::get_i64(scale, &["spec", "replicas"]).unwrap_or(0);
    meta::set(&mut new, &paths.spec(), replicas);
    new
}

/// Which objects are its replicas, as text.
fn selector(object: &Value, paths: &ScalePaths) -> Option<String> {
    let Some(path) = &paths.selector else {
        let selector = selector_of(&object["spec"]["selector"]).ok();
        return selector.map(|selector| selector.to_string());
    };
    let found = path.iter().try_fold(object, |value, name| value.get(name));
    Some(found?.as_str()?.to_owned())
}

/// A LabelSelector, or a map of labels as ReplicationControllers have it.
fn selector_of(selector: &Value) -> Result<LabelSelector, ParseSelectorError> {
    match selector.as_object() {
        Some(map) if map.values().any(Value::is_string) => Ok(LabelSelector::from_map(selector)),
        _ => LabelSelector::from_object(selector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_shows_wanted_present_and_selector() {
        let object = json!({
            "metadata": {"name": "d", "namespace": "x", "resourceVersion": "4", "labels": {"no": "no"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "nginx"}}},
            "status": {"replicas": 2},
        });
        let scale = of(&object, &BUILT_IN);
        assert_eq!(scale["spec"], json!({"replicas": 3}));
        assert_eq!(
            scale["status"],
            json!({"replicas": 2, "selector": "app=nginx"})
        );
        assert_eq!(
            scale["metadata"],
            json!({"name": "d", "namespace": "x", "resourceVersion": "4"})
        );
        let written = written(&json!({"spec": {"replicas": 5}}), &object, &BUILT_IN);
        assert_eq!(written["spec"]["replicas"], 5);
    }
}
