//! Namespace: what the other kinds live in.

use coracle_api::{meta, name, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::{self, items, string},
};

/// The strategy of Namespaces.
pub struct Namespace;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    subresources: &[Subresource::Finalize, Subresource::Status],
    // A collection of namespaces cannot be deleted at once.
    verbs: &[
        "create", "delete", "get", "list", "patch", "update", "watch",
    ],
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, text("Status", "The status of the namespace"), AGE];

impl BuiltIn for Namespace {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        let name = object["metadata"]["name"].clone();
        if name.as_str().is_some_and(|name| !name.is_empty()) {
            fill::object(&mut object["metadata"], "labels");
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        fill::object(object, "spec");
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"phase": "Active"})
    }

    fn prepare_for_create(&self, object: &mut Value) {
        fill::value(&mut object["spec"], "finalizers", Vec::<Value>::new());
        if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
        {
            finalizers.push("kubernetes".into());
        }
        lifecycle::create(self, object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        // Finalizers of the spec go through `/finalize` alone.
        lifecycle::keep(new, old, "spec");
        lifecycle::update(self, new, old);
    }

    fn pending_finalizers<'a>(&self, object: &'a Value) -> &'a [Value] {
        meta::get_array(object, &["spec", "finalizers"])
    }

    fn prepare_for_deletion(&self, object: &mut Value) {
        meta::set(object, &["status", "phase"], "Terminating");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for finalizer in items(&object["spec"]["finalizers"]) {
            check::finalizer(&mut errors, "spec.finalizers", finalizer);
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let phase = &new["status"]["phase"];
        if new["metadata"]["deletionTimestamp"].is_string() {
            if phase != "Terminating" {
                let message = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                errors.invalid("status.Phase", phase, message);
            }
        } else if phase != "Active" {
            errors.invalid(
                "status.Phase",
                phase,
                "may only be 'Active' if `deletionTimestamp` is empty",
            );
        }
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        name::dns_label_error(name)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        if path == "status.phase" {
            string(&object["status"]["phase"]).to_owned()
        } else {
            String::new()
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::string(&object["status"]["phase"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, updated, with};

    #[test]
    fn a_new_namespace_is_active_and_named() {
        let namespace = created(&Namespace, json!({"metadata": {"name": "a"}}));
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"kubernetes.io/metadata.name": "a"})
        );
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"]["phase"], "Active");
        let again = updated(
            &Namespace,
            with(&namespace, "/spec/finalizers", json!([])),
            &namespace,
        );
        assert_eq!(again["spec"], namespace["spec"]);
        assert_eq!(Namespace.row(&namespace, 0)[1], "Active");
        assert_eq!(Namespace.field(&namespace, "status.phase"), "Active");
    }

    #[test]
    fn namespaces_are_checked() {
        assert!(Namespace.name_error("a.b").is_some());
        assert_eq!(
            create_errors(
                &Namespace,
                json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["x"]}})
            ),
            "spec.finalizers: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"
        );
        let mut namespace = created(&Namespace, json!({"metadata": {"name": "a"}}));
        namespace["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        assert_eq!(
            Namespace
                .validate_status_update(&namespace, &namespace)
                .to_string(),
            "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
        );
    }
}
