//! PersistentVolumeClaim: a wish for storage.
//!
//! Source: `pkg/registry/core/persistentvolumeclaim/strategy.go`, `pkg/apis/core/validation` at
//! v1.37.

use coracle_api::{quantity::Quantity, status::FieldErrors, volume::BETA_STORAGE_CLASS};
use serde_json::{Value, json};

use super::storage;
use crate::{
    cells::{self, AGE, NAME, text, wide},
    check, fill,
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{self, string},
};

/// The strategy of PersistentVolumeClaims.
pub struct PersistentVolumeClaim;

const ATTRIBUTES: &str = "volumeAttributesClassName";

static INFO: ResourceInfo = ResourceInfo {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Status",
        "phase represents the current phase of PersistentVolumeClaim.",
    ),
    text(
        "Volume",
        "volumeName is the binding reference to the PersistentVolume backing this claim.",
    ),
    text(
        "Capacity",
        "capacity represents the actual resources of the underlying volume.",
    ),
    text(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    ),
    text("StorageClass", "StorageClass of the pvc"),
    text(
        "VolumeAttributesClass",
        "volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim.",
    ),
    AGE,
    wide(
        "VolumeMode",
        "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
    ),
];

const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

impl BuiltIn for PersistentVolumeClaim {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PersistentVolumeClaim {
    fn default(&self, object: &mut Value) {
        default(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"phase": "Pending"})
    }

    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::create(self, object);
        data_sources(&mut object["spec"]);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::update(self, new, old);
        data_sources(&mut new["spec"]);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check_spec(&mut errors, "spec", &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        update(&mut errors, new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let phase = if object["metadata"]["deletionTimestamp"].is_null() {
            string(&status["phase"])
        } else {
            "Terminating"
        };
        let volume = string(&spec["volumeName"]);
        let (mut capacity, mut modes) = (String::new(), String::new());
        if !volume.is_empty() {
            capacity = value::string_or(&status["capacity"]["storage"], "0").to_owned();
            modes = storage::access_modes(&status["accessModes"]);
        }
        vec![
            cells::name(object),
            phase.into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            storage::class(object).into(),
            value::string_or(&spec["volumeAttributesClassName"], storage::UNSET).into(),
            cells::age(object, now_secs),
            value::string_or(&spec["volumeMode"], storage::UNSET).into(),
        ]
    }
}

/// Fills in a claim, also one in a template.
pub(crate) fn default(claim: &mut Value) {
    fill::object(claim, "spec");
    fill::within(claim, "spec", |spec| {
        fill::value(spec, "volumeMode", "Filesystem");
        fill::object(spec, "resources");
        // Without a group Go shows null: its field is a pointer that is never left out.
        for source in ["dataSource", "dataSourceRef"] {
            fill::within(spec, source, |source| {
                if let Some(source) = source.as_object_mut() {
                    source.entry("apiGroup").or_insert(Value::Null);
                }
            });
        }
    });
    fill::object(claim, "status");
    fill::within(claim, "status", |status| {
        fill::text(status, "phase", "Pending")
    });
}

/// Keeps the two forms of the source in step.
fn data_sources(spec: &mut Value) {
    let (old_form, reference) = (spec["dataSource"].clone(), spec["dataSourceRef"].clone());
    if old_form.is_object() && !reference.is_object() {
        spec["dataSourceRef"] = old_form;
    } else if reference.is_object()
        && !old_form.is_object()
        && string(&reference["namespace"]).is_empty()
    {
        spec["dataSource"] = reference;
    }
    for form in ["dataSource", "dataSourceRef"] {
        if spec.get(form).is_some_and(Value::is_null)
            && let Some(map) = spec.as_object_mut()
        {
            map.remove(form);
        }
    }
}

/// Checks the spec of a claim.
pub(crate) fn check_spec(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    if value::len(&spec["accessModes"]) == 0 {
        errors.required(at("accessModes"), "at least 1 access mode is required");
    }
    check::label_selector(errors, &at("selector"), &spec["selector"]);
    storage::check_access_modes(errors, &at("accessModes"), &spec["accessModes"]);
    let amount = &spec["resources"]["requests"]["storage"];
    let amount_path = format!("{path}.resources[storage]");
    if amount.is_null() {
        errors.required(amount_path, "");
    } else {
        storage::positive(errors, &amount_path, amount);
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        if !string(&spec[field]).is_empty() {
            check::dns_subdomain(errors, &at(field), &spec[field]);
        }
    }
    check::optional_one_of(
        errors,
        &at("volumeMode"),
        &spec["volumeMode"],
        &["Block", "Filesystem"],
    );
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    for (field, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if source.is_object() {
            data_source(errors, &at(field), source);
        }
    }
    if source.is_object() && reference.is_object() {
        let same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|field| string(&source[*field]) == string(&reference[*field]));
        if !same {
            errors.invalid(at("dataSource"), source, "must match dataSourceRef");
        }
    }
}

fn data_source(errors: &mut FieldErrors, path: &str, source: &Value) {
    check::required(errors, &format!("{path}.name"), &source["name"]);
    check::required(errors, &format!("{path}.kind"), &source["kind"]);
    let group = string(&source["apiGroup"]);
    if group.is_empty() && source["kind"] != "PersistentVolumeClaim" {
        errors.invalid(path, &source["kind"], "");
    }
    if !group.is_empty() {
        check::dns_subdomain(errors, &format!("{path}.apiGroup"), &source["apiGroup"]);
    }
}

fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let mut masked = new["spec"].clone();
    let before = &old["spec"];
    // Bound once, given a class once.
    for field in ["volumeName", "storageClassName"] {
        if string(&before[field]).is_empty() && before[field] != "" {
            lifecycle::keep(&mut masked, before, field);
        }
    }
    let is_bound = new["status"]["phase"] == "Bound";
    if is_bound && masked["resources"]["requests"].is_object() {
        lifecycle::keep(
            &mut masked["resources"]["requests"],
            &before["resources"]["requests"],
            "storage",
        );
    }
    if is_bound || string(&before["volumeName"]).is_empty() {
        lifecycle::keep(&mut masked, before, ATTRIBUTES);
    }
    if masked != *before {
        errors.forbidden("spec", IMMUTABLE);
    }
    let attributes = &new["spec"][ATTRIBUTES];
    let has_some = !old["status"]["currentVolumeAttributesClassName"].is_null();
    let why = match &before[ATTRIBUTES] {
        Value::Null => None,
        _ if attributes == "" => Some("update from non-nil value to an empty string is forbidden"),
        _ if attributes.is_null() && has_some => Some(
            "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil",
        ),
        _ => None,
    };
    if let Some(why) = why {
        errors.forbidden("spec.volumeAttributesClassName", why);
    }
    let amount = |value: &Value| Quantity::parse(string(value)).ok();
    let wanted = amount(&new["spec"]["resources"]["requests"]["storage"]);
    let asked = amount(&before["resources"]["requests"]["storage"]);
    let given = amount(&old["status"]["capacity"]["storage"]);
    if let (Some(wanted), Some(asked)) = (wanted, asked)
        && wanted < asked
        && given.is_none_or(|given| wanted <= given)
    {
        errors.forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        );
    }
    check::immutable(
        errors,
        "volumeMode",
        &new["spec"]["volumeMode"],
        &before["volumeMode"],
    );
    let class = |object: &Value| object["metadata"]["annotations"][BETA_STORAGE_CLASS].clone();
    if !moves_class_to_its_field(new, old) {
        let field = format!("metadata.annotations.{BETA_STORAGE_CLASS}");
        check::immutable(errors, &field, &class(new), &class(old));
    }
}

/// Whether the class that an annotation has named is named by its field from now on.
///
/// Source: `validateStorageClassUpgradeFromAnnotation` in `pkg/apis/core/validation/validation.go`
/// at v1.37.
fn moves_class_to_its_field(new: &Value, old: &Value) -> bool {
    let said = |object: &Value| object["metadata"]["annotations"][BETA_STORAGE_CLASS].clone();
    let (before, after) = (said(old), said(new));
    before.is_string()
        && old["spec"]["storageClassName"].is_null()
        && new["spec"]["storageClassName"] == before
        && (after.is_null() || after == before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn a_class_of_attributes_is_another_and_none_only_before_it_was_given() {
        let with = |class: Value, current: Value| {
            let mut object = claim();
            object["spec"][ATTRIBUTES] = class;
            object["status"] =
                json!({"phase": "Bound", "currentVolumeAttributesClassName": current});
            object
        };
        for (new, current, is_refused) in [
            (json!("silver"), json!("gold"), false),
            (json!(null), json!("gold"), true),
            (json!(null), json!(null), false),
            (json!(""), json!(null), true),
        ] {
            let (old, new) = (with(json!("gold"), current.clone()), with(new, current));
            let mut errors = FieldErrors::default();
            update(&mut errors, &new, &old);
            let said = format!("{errors:?}");
            assert_eq!(said.contains(ATTRIBUTES), is_refused, "{new}: {said}");
        }
    }

    /// By class quotas and whether a claim may grow are said: the class stays.
    #[test]
    fn the_class_of_an_annotation_stays_and_may_move_to_its_field() {
        let annotated = |class: Value, field: Value| {
            let mut object = claim();
            object["metadata"]["annotations"][BETA_STORAGE_CLASS] = class;
            object["spec"]["storageClassName"] = field;
            object
        };
        let why = format!("metadata.annotations.{BETA_STORAGE_CLASS}");
        for (old, new, is_refused) in [
            (
                annotated(json!("gold"), json!(null)),
                annotated(json!("bronze"), json!(null)),
                true,
            ),
            (
                annotated(json!(null), json!("gold")),
                annotated(json!("bronze"), json!("gold")),
                true,
            ),
            (
                annotated(json!("gold"), json!(null)),
                annotated(json!(null), json!(null)),
                true,
            ),
            (
                annotated(json!("gold"), json!(null)),
                annotated(json!(null), json!("gold")),
                false,
            ),
            (
                annotated(json!("gold"), json!(null)),
                annotated(json!("gold"), json!("gold")),
                false,
            ),
            (
                annotated(json!("gold"), json!(null)),
                annotated(json!("gold"), json!(null)),
                false,
            ),
        ] {
            let mut errors = FieldErrors::default();
            update(&mut errors, &new, &old);
            let said = format!("{errors:?}");
            assert_eq!(said.contains(&why), is_refused, "{old} {new}: {said}");
        }
    }

    fn claim() -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    }

    #[test]
    fn claims_are_checked() {
        for (pointer, value, expect) in [
            ("/spec/volumeMode", json!("Block"), ""),
            (
                "/spec/accessModes",
                json!([]),
                "spec.accessModes: Required value: at least 1 access mode is required",
            ),
            (
                "/spec/accessModes",
                json!(["x"]),
                "spec.accessModes: Unsupported value: \"x\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            ),
            (
                "/spec/accessModes",
                json!(["ReadWriteOnce", "ReadWriteOncePod"]),
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            ),
            (
                "/spec/resources",
                json!({}),
                "spec.resources[storage]: Required value",
            ),
            (
                "/spec/resources/requests/storage",
                json!("0"),
                "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            (
                "/spec/volumeMode",
                json!("x"),
                "spec.volumeMode: Unsupported value: \"x\": supported values: \"Block\", \"Filesystem\"",
            ),
        ] {
            let object = with(&claim(), pointer, value.clone());
            assert_eq!(
                create_errors(&PersistentVolumeClaim, object),
                expect,
                "{pointer} = {value}"
            );
        }
    }

    #[test]
    fn a_claim_is_bound_once_and_only_grows() {
        let mut old = created(&PersistentVolumeClaim, claim());
        let bound = with(&old, "/spec/volumeName", json!("pv"));
        assert_eq!(
            update_errors(&PersistentVolumeClaim, bound.clone(), &old),
            ""
        );
        let other = with(&bound, "/spec/volumeName", json!("x"));
        assert_eq!(
            update_errors(&PersistentVolumeClaim, other, &bound),
            format!("spec: Forbidden: {IMMUTABLE}")
        );
        old = bound;
        old["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        let grown = with(&old, "/spec/resources/requests/storage", json!("2Gi"));
        assert_eq!(update_errors(&PersistentVolumeClaim, grown, &old), "");
        let shrunk = with(&old, "/spec/resources/requests/storage", json!("1Mi"));
        assert_eq!(
            update_errors(&PersistentVolumeClaim, shrunk, &old),
            "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
        );
    }

    #[test]
    fn rows_show_the_volume() {
        let mut object = created(
            &PersistentVolumeClaim,
            with(&claim(), "/spec/volumeName", json!("pv")),
        );
        object["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        object["spec"]["storageClassName"] = json!("fast");
        assert_eq!(
            json!(PersistentVolumeClaim.row(&object, 0)),
            json!([
                "c",
                "Bound",
                "pv",
                "1Gi",
                "RWO",
                "fast",
                "<unset>",
                "<unknown>",
                "Filesystem"
            ])
        );
    }
}
