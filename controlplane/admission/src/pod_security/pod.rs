//! A pod as the checks look at it: one that is there, or what a template makes.

use coracle_registry::value::items;
use serde_json::Value;

/// What the checks are about.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    annotations: &'a Value,
    /// `spec` of the pod.
    pub(super) spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Of a pod or a template for one.
    pub(super) fn of(object: &'a Value) -> Self {
        Self {
            annotations: &object["metadata"]["annotations"],
            spec: &object["spec"],
        }
    }

    /// Every container, those that run first before the others, those for debugging last.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let spec = self.spec;
        lists.into_iter().flat_map(move |list| items(&spec[list]))
    }

    /// `spec.securityContext`.
    pub(super) fn security_context(self) -> &'a Value {
        &self.spec["securityContext"]
    }

    pub(super) fn annotation(self, key: &str) -> Option<&'a str> {
        self.annotations[key].as_str()
    }

    pub(super) fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.annotations.as_object().into_iter().flatten();
        all.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// Whether it says that it runs on Windows, where some fields mean nothing and may not be set.
    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether root in it is nobody outside.
    pub(super) fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// Empty if it names none.
    pub(super) fn runtime_class(self) -> &'a str {
        self.spec["runtimeClassName"].as_str().unwrap_or_default()
    }
}

/// Where the pod is in an object of this kind; `None` of a kind that has none.
pub(super) fn path_of(group: &str, plural: &str) -> Option<&'static [&'static str]> {
    match (group, plural) {
        ("", "pods") => Some(&[]),
        ("", "podtemplates") => Some(&["template"]),
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

/// Whether so much of a pod changes that it is looked at again: what may change of it and concerns
/// a check.
pub(super) fn changes_much(new: &Value, old: &Value) -> bool {
    let (new, old) = (&new["spec"], &old["spec"]);
    let fixed = ["containers", "initContainers"].into_iter();
    let mut lists = fixed.map(|list| (items(&new[list]), items(&old[list])));
    let has_other_images = |(new, old): (&[Value], &[Value])| {
        new.len() != old.len()
            || new
                .iter()
                .zip(old)
                .any(|(new, old)| new["image"] != old["image"])
    };
    let before = items(&old["ephemeralContainers"]);
    let is_new = |container: &Value| {
        let same = before.iter().find(|old| old["name"] == container["name"]);
        same.is_none_or(|old| old["image"] != container["image"])
    };
    lists.any(has_other_images) || items(&new["ephemeralContainers"]).iter().any(is_new)
}
