//! VolumeAttachment: the wish that a volume be attached to a node.
//!
//! Source: `pkg/registry/storage/volumeattachment/strategy.go`, `pkg/apis/storage/validation` at
//! v1.37.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, flag, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Scope, Strategy, Subresource},
    value::string,
};

/// The strategy of VolumeAttachments.
pub struct VolumeAttachment;

static INFO: ResourceInfo = ResourceInfo {
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    scope: Scope::Cluster,
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Attacher",
        "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().",
    ),
    text(
        "PV",
        "persistentVolumeName represents the name of the persistent volume to attach.",
    ),
    text(
        "Node",
        "nodeName represents the node that the volume should be attached to.",
    ),
    flag(
        "Attached",
        "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.",
    ),
    AGE,
];

impl BuiltIn for VolumeAttachment {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for VolumeAttachment {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(&mut object["spec"], "source");
        fill::object(object, "status");
        fill::value(&mut object["status"], "attached", false);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"attached": false})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        super::driver_name(&mut errors, "spec.attacher", &spec["attacher"]);
        if check::required(&mut errors, "spec.nodeName", &spec["nodeName"]) {
            check::dns_subdomain(&mut errors, "spec.nodeName", &spec["nodeName"]);
        }
        const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let source = &spec["source"];
        match (
            source["persistentVolumeName"].as_str(),
            source["inlineVolumeSpec"].is_object(),
        ) {
            (None, false) => errors.required("spec.source", ONE),
            (Some(_), true) => errors.forbidden("spec.source", ONE),
            (Some(""), false) => {
                errors.required(
                    "spec.source.persistentVolumeName",
                    "must specify non empty persistentVolumeName",
                );
            }
            _ => {}
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        vec![
            cells::name(object),
            string(&spec["attacher"]).into(),
            string(&spec["source"]["persistentVolumeName"]).into(),
            string(&spec["nodeName"]).into(),
            (object["status"]["attached"] == true).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn attachments_are_checked() {
        let attachment = json!({"metadata": {"name": "a"}, "spec": {
            "attacher": "csi.example", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
        for (pointer, value, expect) in [
            ("/spec/nodeName", json!("m"), ""),
            ("/spec/attacher", json!(""), "spec.attacher: Required value"),
            ("/spec/nodeName", json!(""), "spec.nodeName: Required value"),
            (
                "/spec/source",
                json!({}),
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
        ] {
            assert_eq!(
                create_errors(&VolumeAttachment, with(&attachment, pointer, value.clone())),
                expect,
                "{value}"
            );
        }
        let old = created(&VolumeAttachment, attachment);
        let errors = update_errors(
            &VolumeAttachment,
            with(&old, "/spec/nodeName", json!("x")),
            &old,
        );
        assert!(
            errors.starts_with("spec: Invalid value: ") && errors.ends_with("field is immutable"),
            "{errors}"
        );
        assert_eq!(
            json!(VolumeAttachment.row(&old, 0)),
            json!(["a", "csi.example", "pv", "n", false, "<unknown>"])
        );
    }
}
