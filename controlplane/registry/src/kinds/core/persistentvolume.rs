//! PersistentVolume: a piece of storage that a claim can have.
//!
//! Source: `pkg/registry/core/persistentvolume/strategy.go`, `pkg/apis/core/validation` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::storage;
use crate::{
    cells::{self, AGE, NAME, text, wide},
    check, fill,
    kinds::podspec::scheduling,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::{self, string},
};

/// The strategy of PersistentVolumes.
pub struct PersistentVolume;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    scope: Scope::Cluster,
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Capacity",
        "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
    ),
    text(
        "Access Modes",
        "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
    ),
    text(
        "Reclaim Policy",
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
    ),
    text(
        "Status",
        "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
    ),
    text(
        "Claim",
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
    ),
    text("StorageClass", "StorageClass of the pv"),
    text(
        "VolumeAttributesClass",
        "Name of VolumeAttributesClass to which this persistent volume belongs.",
    ),
    text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
    ),
    AGE,
    wide(
        "VolumeMode",
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.",
    ),
];

/// The fields of the spec that say what kind of storage it is.
const SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

const ATTRIBUTES: &str = "volumeAttributesClassName";

impl BuiltIn for PersistentVolume {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PersistentVolume {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill::value(spec, "volumeMode", "Filesystem");
        fill::within(spec, "hostPath", |source| fill::value(source, "type", ""));
        fill::within(spec, "iscsi", |source| {
            fill::text(source, "iscsiInterface", "default")
        });
        fill::within(spec, "rbd", |source| {
            fill::text(source, "pool", "rbd");
            fill::text(source, "user", "admin");
            fill::text(source, "keyring", "/etc/ceph/keyring");
        });
        fill::object(object, "status");
        fill::within(object, "status", |status| {
            fill::text(status, "phase", "Pending")
        });
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn first_status(&self, object: &Value) -> Value {
        json!({"phase": "Pending", "lastPhaseTransitionTime": object["metadata"]["creationTimestamp"]})
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let (status, before) = (&mut new["status"], &old["status"]);
        if status["phase"] != before["phase"]
            && status["lastPhaseTransitionTime"] == before["lastPhaseTransitionTime"]
        {
            status["lastPhaseTransitionTime"] = coracle_api::meta::now().into();
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check_spec(&mut errors, &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let (spec, before) = (&new["spec"], &old["spec"]);
        if SOURCES
            .iter()
            .any(|source| spec[*source] != before[*source])
        {
            let message = "spec.persistentvolumesource is immutable after creation";
            errors.forbidden("spec.persistentvolumesource", message);
        }
        check::immutable(
            &mut errors,
            "volumeMode",
            &spec["volumeMode"],
            &before["volumeMode"],
        );
        if !before[ATTRIBUTES].is_null() && spec[ATTRIBUTES].is_null() {
            let why = "update from non-nil value to nil is forbidden";
            errors.forbidden("spec.volumeAttributesClassName", why);
        }
        if !before["nodeAffinity"].is_null() {
            check::immutable(
                &mut errors,
                "spec.nodeAffinity",
                &spec["nodeAffinity"],
                &before["nodeAffinity"],
            );
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let claim = match &spec["claimRef"] {
            Value::Object(claim) => {
                let part = |field| claim.get(field).and_then(Value::as_str).unwrap_or_default();
                format!("{}/{}", part("namespace"), part("name"))
            }
            _ => String::new(),
        };
        let phase = if object["metadata"]["deletionTimestamp"].is_null() {
            string(&status["phase"])
        } else {
            "Terminating"
        };
        vec![
            cells::name(object),
            value::string_or(&spec["capacity"]["storage"], "0").into(),
            storage::access_modes(&spec["accessModes"]).into(),
            string(&spec["persistentVolumeReclaimPolicy"]).into(),
            phase.into(),
            claim.into(),
            storage::class(object).into(),
            value::string_or(&spec["volumeAttributesClassName"], storage::UNSET).into(),
            string(&status["reason"]).into(),
            cells::age(object, now_secs),
            value::string_or(&spec["volumeMode"], storage::UNSET).into(),
        ]
    }
}

fn check_spec(errors: &mut FieldErrors, spec: &Value) {
    if value::len(&spec["accessModes"]) == 0 {
        errors.required("spec.accessModes", "");
    }
    storage::check_access_modes(errors, "spec.accessModes", &spec["accessModes"]);
    let capacity = &spec["capacity"];
    if value::len(capacity) == 0 {
        errors.required("spec.capacity", "");
    }
    if capacity["storage"].is_null() || value::len(capacity) > 1 {
        errors.not_supported("spec.capacity", capacity, &["storage"]);
    }
    for (resource, amount) in capacity.as_object().into_iter().flatten() {
        storage::positive(errors, &format!("spec.capacity[{resource}]"), amount);
    }
    let policy = &spec["persistentVolumeReclaimPolicy"];
    let policies = ["Delete", "Recycle", "Retain"];
    check::optional_one_of(
        errors,
        "spec.persistentVolumeReclaimPolicy",
        policy,
        &policies,
    );
    if spec["nodeAffinity"].is_object() {
        let required = &spec["nodeAffinity"]["required"];
        if required.is_null() {
            errors.required(
                "spec.nodeAffinity.required",
                "must specify required node constraints",
            );
        } else {
            scheduling::node_selector(errors, "spec.nodeAffinity.required", required);
        }
    }
    sources(errors, spec);
    // Recycling removes all that is in it.
    if spec["hostPath"]["path"] == "/" && *policy == "Recycle" {
        let message = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden("spec.persistentVolumeReclaimPolicy", message);
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        if !string(&spec[field]).is_empty() {
            check::dns_subdomain(errors, &format!("spec.{field}"), &spec[field]);
        }
    }
    check::optional_one_of(
        errors,
        "spec.volumeMode",
        &spec["volumeMode"],
        &["Block", "Filesystem"],
    );
}

/// Exactly one source.
fn sources(errors: &mut FieldErrors, spec: &Value) {
    let mut given = SOURCES.iter().filter(|source| !spec[**source].is_null());
    let Some(first) = given.next() else {
        errors.required("spec", "must specify a volume type");
        return;
    };
    for another in given {
        errors.forbidden(
            format!("spec.{another}"),
            "may not specify more than 1 volume type",
        );
    }
    let (path, source) = (format!("spec.{first}"), &spec[*first]);
    let required: &[&str] = match *first {
        "hostPath" => &["path"],
        "nfs" => &["server", "path"],
        "csi" => &["driver", "volumeHandle"],
        "local" => &["path"],
        _ => &[],
    };
    for field in required {
        check::required(errors, &format!("{path}.{field}"), &source[*field]);
    }
    match *first {
        "hostPath" => check::no_backsteps(errors, &format!("{path}.path"), &source["path"]),
        "nfs" if !string(&source["path"]).starts_with('/') => {
            errors.invalid(
                format!("{path}.path"),
                &source["path"],
                "must be an absolute path",
            );
        }
        "local" => {
            check::no_backsteps(errors, &format!("{path}.path"), &source["path"]);
            if spec["nodeAffinity"].is_null() {
                errors.required("spec.nodeAffinity", "Local volume requires node affinity");
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    fn volume() -> Value {
        json!({"metadata": {"name": "pv"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"}}})
    }

    #[test]
    fn volumes_are_checked() {
        for (pointer, value, expect) in [
            ("/spec/storageClassName", json!("fast"), ""),
            (
                "/spec/accessModes",
                json!([]),
                "spec.accessModes: Required value",
            ),
            (
                "/spec/capacity",
                json!({}),
                "[spec.capacity: Required value, spec.capacity: Unsupported value: {}: supported values: \"storage\"]",
            ),
            (
                "/spec/capacity/storage",
                json!("0"),
                "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            (
                "/spec/hostPath",
                Value::Null,
                "spec: Required value: must specify a volume type",
            ),
            (
                "/spec/nfs",
                json!({"server": "s", "path": "/"}),
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ),
            (
                "/spec/persistentVolumeReclaimPolicy",
                json!("x"),
                "spec.persistentVolumeReclaimPolicy: Unsupported value: \"x\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
            ),
        ] {
            assert_eq!(
                create_errors(&PersistentVolume, with(&volume(), pointer, value.clone())),
                expect,
                "{value}"
            );
        }
        let old = created(&PersistentVolume, volume());
        assert_eq!(
            update_errors(
                &PersistentVolume,
                with(&old, "/spec/hostPath/path", json!("/x")),
                &old
            ),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
        );
    }

    #[test]
    fn rows_show_the_claim() {
        let mut object = created(&PersistentVolume, volume());
        object["spec"]["claimRef"] = json!({"namespace": "a", "name": "b"});
        assert_eq!(
            json!(PersistentVolume.row(&object, 0)),
            json!([
                "pv",
                "1Gi",
                "RWO",
                "Retain",
                "Pending",
                "a/b",
                "",
                "<unset>",
                "",
                "<unknown>",
                "Filesystem"
            ])
        );
    }
}
