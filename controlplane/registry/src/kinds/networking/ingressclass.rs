//! IngressClass: which controller serves an Ingress.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::string,
};

/// The strategy of IngressClasses.
pub struct IngressClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Controller",
        "Controller that is responsible for handling this class",
    ),
    text(
        "Parameters",
        "A reference to a resource with additional parameters",
    ),
    AGE,
];

impl BuiltIn for IngressClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::within(&mut object["spec"], "parameters", |parameters| {
            fill::text(parameters, "scope", "Cluster")
        });
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let controller = &object["spec"]["controller"];
        if string(controller).len() > 250 {
            errors.too_long("spec.controller", controller, 250);
        }
        check::domain_prefixed_path(&mut errors, "spec.controller", controller);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.controller", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let parameters = &object["spec"]["parameters"];
        let shown = if parameters.is_object() {
            let group = parameters["apiGroup"]
                .as_str()
                .map(|group| format!(".{group}"))
                .unwrap_or_default();
            format!(
                "{}{group}/{}",
                string(&parameters["kind"]),
                string(&parameters["name"])
            )
        } else {
            NONE.to_owned()
        };
        vec![
            cells::name(object),
            string(&object["spec"]["controller"]).into(),
            shown.into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn classes_name_a_controller() {
        assert_eq!(
            create_errors(
                &IngressClass,
                json!({"spec": {"controller": "example.com/c"}})
            ),
            ""
        );
        assert_eq!(
            create_errors(&IngressClass, json!({"spec": {"controller": "c"}})),
            "spec.controller: Invalid value: \"c\": must be a domain-prefixed path (such as \"acme.io/foo\")"
        );
    }
}
