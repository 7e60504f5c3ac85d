//! `ObjectMeta`: what the system fills in, and what is checked the same for every kind.
//!
//! Source: `k8s.io/apimachinery/pkg/api/validation/objectmeta.go` and
//! `k8s.io/apiserver/pkg/registry/rest/{create,update}.go` at v1.37.

use std::{borrow::Cow, collections::HashSet};

use coracle_api::{
    meta, name,
    status::{FieldErrors, Status},
};
use serde_json::{Map, Value, json};

use super::{
    check,
    resource::Resource,
    texts::{annotations, labels},
};

/// What no new object has, whoever says so.
const NOT_OF_NEW: [&str; 4] = [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
];
const FINALIZER_ORPHAN: &str = "orphan";
const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Makes the object's namespace that of the request.
///
/// # Errors
/// 400 if it names another one.
pub(crate) fn match_namespace(
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), Status> {
    if !resource.is_namespaced() {
        metadata_mut(object).remove("namespace");
        return Ok(());
    }
    match_namespace_of_request(namespace, object)
}

/// Makes the namespace of what is in one, and stored nowhere, that of the request.
///
/// # Errors
/// 400 if it names another one.
pub fn match_namespace_of_request(namespace: &str, object: &mut Value) -> Result<(), Status> {
    let metadata = metadata_mut(object);
    match metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "" => {
            metadata.insert("namespace".to_owned(), namespace.into());
            Ok(())
        }
        own if own == namespace => Ok(()),
        _ => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// The object's `metadata`, made if it is missing.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    object["metadata"]
        .as_object_mut()
        .expect("it is an object since the line before")
}

/// What the system gives a new object.
#[derive(Debug)]
pub(crate) struct Given {
    uid: Value,
    created: Value,
}

impl Given {
    /// Makes it the object's again, whatever has become of that meanwhile.
    pub(crate) fn put_back(&self, object: &mut Value) {
        let metadata = metadata_mut(object);
        for field in NOT_OF_NEW {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), self.uid.clone());
        metadata.insert("creationTimestamp".to_owned(), self.created.clone());
    }
}

/// Fills in what the system gives a new object.
pub(crate) fn fill_new(object: &mut Value) -> Given {
    let given = Given {
        uid: uuid::Uuid::new_v4().to_string().into(),
        created: meta::now().into(),
    };
    given.put_back(object);
    metadata_mut(object).remove("managedFields");
    given
}

/// Gives an object without a name one that begins as it says. Whether it did.
pub fn generate_name(object: &mut Value) -> bool {
    if !meta::name(object).is_empty() || meta::generate_name(object).is_empty() {
        return false;
    }
    let generated = name::generate(meta::generate_name(object));
    meta::set_text(object, "name", generated);
    true
}

/// Carries over from the stored object what an update may leave out or not change.
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    let old = old.get("metadata").and_then(Value::as_object);
    let metadata = metadata_mut(new);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    let system = [
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    for field in system {
        match old.and_then(|old| old.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["uid", "name", "generateName"] {
        let is_set = metadata
            .get(field)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty());
        if let (false, Some(value)) = (is_set, old.and_then(|old| old.get(field))) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
}

/// Checks the metadata of a new object.
pub(crate) fn validate(resource: &Resource, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let generate_name = meta::generate_name(object);
    if !generate_name.is_empty() {
        // A prefix may end in a dash: what follows it is added.
        let masked = generate_name
            .strip_suffix('-')
            .filter(|rest| !rest.is_empty());
        let masked = masked.map_or(Cow::Borrowed(generate_name), |rest| {
            Cow::Owned(format!("{rest}a"))
        });
        if let Some(reason) = resource.strategy.name_error(&masked) {
            errors.invalid("metadata.generateName", &json!(generate_name), reason);
        }
    }
    let object_name = meta::name(object);
    if object_name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else if let Some(reason) = resource.strategy.name_error(object_name) {
        errors.invalid("metadata.name", &json!(object_name), reason);
    }
    let namespace = meta::namespace(object);
    if !resource.is_namespaced() {
        if !namespace.is_empty() {
            errors.forbidden("metadata.namespace", "not allowed on this type");
        }
    } else if namespace.is_empty() {
        errors.required("metadata.namespace", "");
    } else if let Some(reason) = name::dns_label_error(namespace) {
        errors.invalid("metadata.namespace", &json!(namespace), reason);
    }
    validate_lists(object, &mut errors);
    errors
}

/// Checks what of metadata has many entries.
pub(crate) fn validate_lists(object: &Value, errors: &mut FieldErrors) {
    labels(object, errors);
    annotations(object, errors);
    owner_references(object, errors);
    finalizers(object, errors);
}

/// Checks the metadata of an update.
pub(crate) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    if meta::is_terminating(old) {
        let before: HashSet<_> = meta::finalizers(old).into_iter().collect();
        let added: Vec<_> = meta::finalizers(new)
            .into_iter()
            .filter(|one| !before.contains(one))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added
                    .iter()
                    .map(|one| format!("{one:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            errors.forbidden("metadata.finalizers", detail);
        }
    }
    for field in ["name", "namespace", "uid"] {
        let (new, old) = (meta::text(new, field), meta::text(old, field));
        if new != old {
            errors.immutable(format!("metadata.{field}"), &json!(new));
        }
    }
    let same = |field: &str| new["metadata"].get(field) == old["metadata"].get(field);
    // What has not changed was checked when it came: the hot path of status writers.
    if !same("labels") {
        labels(new, &mut errors);
    }
    if !same("annotations") {
        annotations(new, &mut errors);
    }
    if !same("ownerReferences") {
        owner_references(new, &mut errors);
    }
    if !same("finalizers") {
        finalizers(new, &mut errors);
    }
    errors
}

fn owner_references(object: &Value, errors: &mut FieldErrors) {
    let mut controllers: Vec<&Value> = Vec::new();
    for (index, owner) in meta::owner_references(object).iter().enumerate() {
        let path = |field: &str| format!("metadata.ownerReferences[{index}].{field}");
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        if version.is_empty() {
            errors.invalid(
                path("apiVersion"),
                &json!(text("apiVersion")),
                "version must not be empty",
            );
        }
        for (field, detail) in [
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(field).is_empty() {
                errors.invalid(path(field), &json!(""), detail);
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(owner);
        }
    }
    if let [first, second, ..] = controllers[..] {
        let describe = |owner: &Value| {
            let text = |field: &str| {
                owner
                    .get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            format!("{}/{}", text("kind"), text("name"))
        };
        errors.invalid(
            "metadata.ownerReferences",
            &json!(meta::owner_references(object)),
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                describe(first),
                describe(second)
            ),
        );
    }
}

fn finalizers(object: &Value, errors: &mut FieldErrors) {
    let all = meta::finalizers(object);
    for (index, finalizer) in all.iter().enumerate() {
        check::finalizer(
            errors,
            &format!("metadata.finalizers[{index}]"),
            &json!(finalizer),
        );
    }
    if all.contains(&FINALIZER_ORPHAN) && all.contains(&FINALIZER_FOREGROUND) {
        errors.invalid(
            "metadata.finalizers",
            &json!(all),
            format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set"),
        );
    }
}
