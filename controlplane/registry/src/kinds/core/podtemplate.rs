//! PodTemplate: a pod template kept for whoever wants it.
//!
//! Source: `pkg/registry/core/podtemplate/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, NAME, text},
    kinds::{podspec, workload},
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
};

/// The strategy of PodTemplates.
pub struct PodTemplate;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Containers", "Names of each container in the template."),
    text(
        "Images",
        "Images referenced by each container in the template.",
    ),
    text("Pod Labels", "The labels for the pod template."),
];

impl BuiltIn for PodTemplate {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        workload::default_template(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        new["template"] != old["template"]
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        podspec::validate::template(&mut errors, "template", &object["template"]);
        errors
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        podspec::warnings::template("template", &object["template"])
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        let template = &object["template"];
        let [containers, images] = cells::containers_and_images(template);
        vec![
            cells::name(object),
            containers,
            images,
            cells::labels(&template["metadata"]["labels"]).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, updated, with};

    #[test]
    fn templates_are_checked_and_counted() {
        let template = json!({"metadata": {"name": "t"}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
        assert_eq!(create_errors(&PodTemplate, template.clone()), "");
        assert_eq!(
            create_errors(
                &PodTemplate,
                with(&template, "/template/spec/containers/0/image", json!(""))
            ),
            "template.spec.containers[0].image: Required value"
        );
        let old = created(&PodTemplate, template);
        assert_eq!(
            json!(PodTemplate.row(&old, 0)),
            json!(["t", "c", "i:1", "a=b"])
        );
        let new = with(&old, "/template/spec/containers/0/image", json!("i:2"));
        assert_eq!(
            updated(&PodTemplate, new, &old)["metadata"]["generation"],
            2
        );
    }
}
