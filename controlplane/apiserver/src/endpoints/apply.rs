//! PATCH with an apply configuration: makes the object, or takes over the fields that the
//! configuration names.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/patch.go`, `applyPatcher` at v1.37.

use coracle_admission::Operation;
use coracle_api::{
    decode::{ContentType, Decoded, FieldValidation},
    meta,
    resource::Gvk,
    status::{FieldErrors, Reason, Status},
};
use coracle_registry::{
    managed_fields::{self, FieldManager},
    part::Part,
    store::{WriteOptions, update::UpdateTarget},
    strategy::ALL_METADATA,
};
use serde_json::{Map, Value};

use super::{
    Call, create,
    update::{check_name, check_name_if_any, is_missing},
};
use crate::reply::Reply;

/// An object that comes and goes between reading and making it.
const TRIES: usize = 5;

/// Applies the body.
pub(crate) async fn apply(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let config = Configuration::of(call, &call.resource.gvk, part)?;
    let manager = call.field_manager().applying();
    let request = call.admission_request(Operation::Update, options);
    let target = UpdateTarget {
        tries: Some(TRIES),
        ..call.update_target(part, options, &manager)
    };
    for _ in 0..TRIES {
        let change = |live: &Value| config.merged(call, &manager, live);
        match call
            .server
            .update(call.resource, &request, target, change)
            .await
        {
            Err(status) if status.code == 404 && part == Part::Main && is_missing(call).await? => {}
            other => return call.write_reply(other?, config.warnings),
        }
        match make(call, &manager, &config.object, options).await {
            Err(status) if status.reason == Reason::AlreadyExists && !is_missing(call).await? => {}
            other => return call.write_reply(other?, config.warnings),
        }
    }
    Err(Status::modified(
        &call.resource.group_resource,
        &call.info.name,
    ))
}

/// What a client applies.
pub(crate) struct Configuration {
    /// Without what the request does not write.
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
    pub(crate) force: bool,
}

impl Configuration {
    /// The body, which is of kind `gvk` and is written to `part`.
    pub(crate) fn of(call: &Call<'_>, gvk: &Gvk, part: Part) -> Result<Self, Status> {
        check_options(call)?;
        let Decoded {
            mut object,
            warnings,
        } = decoded(call, gvk)?;
        reset(call, part, &mut object);
        Ok(Self {
            object,
            warnings,
            force: call.query.flag("force").unwrap_or(false),
        })
    }

    /// `live` with the configuration in it.
    pub(crate) fn merged(
        &self,
        call: &Call<'_>,
        manager: &FieldManager,
        live: &Value,
    ) -> Result<Value, Status> {
        let mut merged = manager.apply(call.resource, Some(live), &self.object, self.force)?;
        take_version(&mut merged, &self.object);
        Ok(merged)
    }
}

/// Makes the precondition of `object` that of `wanted`, which may have no opinion on the version.
pub(crate) fn take_version(object: &mut Value, wanted: &Value) {
    match meta::resource_version(wanted) {
        "" => drop(meta::remove(object, &["metadata", "resourceVersion"])),
        version => meta::set_text(object, "resourceVersion", version),
    }
}

/// Who applies has to say so.
fn check_options(call: &Call<'_>) -> Result<(), Status> {
    if call.query.text("fieldManager").is_some() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    errors.required("fieldManager", "is required for apply patch");
    Err(Status::invalid(
        &Gvk::new("meta.k8s.io", "v1", "PatchOptions"),
        "",
        errors,
    ))
}

/// The body as an object. Unlike elsewhere, what the schema does not know is an error: nobody could
/// own it.
fn decoded(call: &Call<'_>, gvk: &Gvk) -> Result<Decoded, Status> {
    let read = |validation| {
        super::decoded(
            call.resource,
            &call.body,
            ContentType::Yaml,
            gvk,
            validation,
        )
    };
    let decoded = read(FieldValidation::Warn)?;
    // What is there already has its name.
    check_name_if_any(call, &decoded.object)?;
    let unknown = decoded
        .warnings
        .iter()
        .find_map(|warning| warning.strip_prefix("unknown field \"")?.strip_suffix('"'));
    if let Some(field) = unknown {
        let (namespace, name, version) = (&call.info.namespace, &call.info.name, gvk.api_version());
        let place = if namespace.is_empty() {
            format!("/{name}")
        } else {
            format!("{namespace}/{name}")
        };
        let message = format!(
            "failed to create typed patch object ({place}; {version}, Kind={}): .{field}: field not declared in schema",
            gvk.kind
        );
        return Err(Status::new(500, Reason::Unknown, message));
    }
    match call.field_validation()? {
        FieldValidation::Warn => Ok(decoded),
        other => read(other),
    }
}

/// Leaves out what this part of the object does not write, so that nobody comes to own it here.
fn reset(call: &Call<'_>, part: Part, config: &mut Value) {
    let Some(map) = config.as_object_mut() else {
        return;
    };
    match part {
        Part::Main if managed_fields::has_status(call.resource) => drop(map.remove("status")),
        Part::Status => keep(map, "status", call.resource.strategy.status_keeps()),
        Part::EphemeralContainers | Part::Resize => {
            keep(map, "spec", ALL_METADATA);
            map.get_mut("spec")
                .and_then(Value::as_object_mut)
                .into_iter()
                .for_each(|spec| reset_pod(spec, part));
        }
        Part::Main | Part::Internal => {}
    }
}

/// Keeps what names the object, the rest of its metadata but for some fields, and one more member.
fn keep(config: &mut Map<String, Value>, member: &str, kept_metadata: &[&str]) {
    config.retain(|field, _| {
        matches!(field.as_str(), "apiVersion" | "kind" | "metadata") || field == member
    });
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !kept_metadata.contains(&field.as_str()));
    }
}

fn reset_pod(spec: &mut Map<String, Value>, part: Part) {
    if part == Part::EphemeralContainers {
        return spec.retain(|list, _| list == "ephemeralContainers");
    }
    spec.retain(|list, _| matches!(list.as_str(), "containers" | "initContainers"));
    let containers = spec
        .values_mut()
        .filter_map(Value::as_array_mut)
        .flatten()
        .filter_map(Value::as_object_mut);
    for container in containers {
        container
            .retain(|field, _| matches!(field.as_str(), "name" | "resources" | "resizePolicy"));
    }
}

/// Makes the object, if the user may.
async fn make(
    call: &Call<'_>,
    manager: &FieldManager,
    config: &Value,
    options: WriteOptions,
) -> Result<coracle_registry::store::Written, Status> {
    if !meta::uid(config).is_empty() {
        return Err(Status::not_found(
            &call.resource.group_resource,
            &call.info.name,
        ));
    }
    create::authorize(call).await?;
    check_name(call, config)?;
    let object = manager.apply(call.resource, None, config, false)?;
    create::make(call, object, options, manager).await
}
