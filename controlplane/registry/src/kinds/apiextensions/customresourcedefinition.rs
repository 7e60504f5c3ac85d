//! CustomResourceDefinition: a kind that comes at run time.
//!
//! What a definition says is checked by [`super::definition`]; who serves its kind is the API
//! server's.
//!
//! Source: `pkg/registry/customresourcedefinition/{strategy,etcd}.go` and
//! `pkg/apis/apiextensions/v1/defaults.go` of `k8s.io/apiextensions-apiserver` at v1.37.

use coracle_api::{meta, name, status::FieldErrors};
use serde_json::{Value, json};

use super::definition::{self, CLEANUP, conditions};
use crate::{
    beside::beside,
    cells::{self, CREATED_AT, NAME},
    check, fill,
    lifecycle::{self, Lifecycle},
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{items, string},
};

/// The strategy of CustomResourceDefinitions.
pub struct CustomResourceDefinition;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, CREATED_AT];

impl BuiltIn for CustomResourceDefinition {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for CustomResourceDefinition {
    fn default(&self, object: &mut Value) {
        fill::within(object, "spec", |spec| {
            fill::within(spec, "names", |names| {
                let kind = string(&names["kind"]).to_owned();
                fill::text(names, "singular", &kind.to_lowercase());
                if !kind.is_empty() {
                    fill::text(names, "listKind", &format!("{kind}List"));
                }
            });
            fill::value(spec, "conversion", json!({"strategy": "None"}));
            fill::within(spec, "conversion", |conversion| {
                fill::within(conversion, "webhook", |webhook| {
                    fill::within(webhook, "clientConfig", |config| {
                        fill::within(config, "service", |service| {
                            fill::value(service, "port", 443);
                        });
                    });
                });
            });
        });
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, object: &Value) -> Value {
        let mut status = json!({});
        if let Some(version) = definition::storage_version(object) {
            status["storedVersions"] = json!([version]);
        }
        status
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::update(self, new, old);
        let Some(version) = definition::storage_version(new).map(str::to_owned) else {
            return;
        };
        let stored = items(&new["status"]["storedVersions"]);
        if !stored.iter().any(|one| *one == version) {
            let mut stored = stored.to_vec();
            stored.push(version.into());
            new["status"]["storedVersions"] = stored.into();
        }
    }

    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let expected = format!(
            "{}.{}",
            string(&spec["names"]["plural"]),
            string(&spec["group"])
        );
        if meta::name(object) != expected {
            let name = &object["metadata"]["name"];
            errors.invalid(
                "metadata.name",
                name,
                "must be spec.names.plural+\".\"+spec.group",
            );
        }
        errors.extend(self.validate(object));
        errors
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        // Patterns and rules are compiled.
        let mut errors = beside(|| definition::spec_errors(object));
        errors.extend(rest(object, None));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = beside(|| definition::spec_errors(new));
        let is_established = conditions::is_true(old, "Established");
        if is_established {
            definition::conversion_update_errors(&mut errors, new, old);
        }
        let established: &[&str] = &["spec.scope", "spec.names.kind"];
        let always = ["spec.group", "spec.names.plural"];
        for path in established.iter().filter(|_| is_established).chain(&always) {
            check::immutable_field(&mut errors, path, new, old);
        }
        errors.extend(rest(new, Some(old)));
        errors
    }

    /// Versions that are stored may be taken back: who has migrated all objects says so here.
    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        definition::accepted_names_errors(new, &mut errors);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        name::dns_subdomain_error(name)
    }

    fn pending_finalizers<'a>(&self, object: &'a Value) -> &'a [Value] {
        // Its objects go first, always: the finalizer comes with the deletion.
        let is_first = !meta::is_terminating(object);
        if is_first { definition::pending() } else { &[] }
    }

    fn prepare_for_deletion(&self, object: &mut Value) {
        let mut finalizers = items(&object["metadata"]["finalizers"]).to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(CLEANUP.into());
            object["metadata"]["finalizers"] = finalizers.into();
        }
        let terminating = conditions::Condition {
            kind: "Terminating",
            status: "True",
            reason: "InstanceDeletionPending".to_owned(),
            message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon".to_owned(),
        };
        terminating.set(object);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        definition::warnings(object)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::created_at(object)]
    }
}

/// What is wrong besides the spec, which is told last.
fn rest(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    definition::accepted_names_errors(new, &mut errors);
    definition::stored_versions_errors(new, &mut errors);
    errors.extend(definition::approval::errors(new, old));
    if new["spec"]["preserveUnknownFields"] == true {
        let what = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid("spec.preserveUnknownFields", &true.into(), what);
    }
    errors
}

#[cfg(test)]
mod tests;
