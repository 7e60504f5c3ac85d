//! DefaultIngressClass: a new Ingress that does not say of which class it is is of the default one;
//! of several, of the newest.
//!
//! Source: `plugin/pkg/admission/network/defaultingressclass/admission.go` at v1.37.

use std::cmp::Reverse;

use async_trait::async_trait;
use coracle_api::{meta, status::Status};
use coracle_registry::{api_resource::ApiResource, value::string};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    classes::Classes,
    parts::Parts,
    plugin::Plugin,
};

const GROUP: &str = "networking.k8s.io";
/// What came before the field.
const OLD_ANNOTATION: &str = "kubernetes.io/ingress.class";
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

pub(crate) struct DefaultIngressClass {
    classes: Classes,
}

impl DefaultIngressClass {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            classes: Classes::new(parts, GROUP, "ingressclasses"),
        }
    }
}

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is(GROUP, "ingresses")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let ingress = attributes.object();
        let says_class = meta::annotation(ingress, OLD_ANNOTATION).is_some()
            || ingress["spec"]["ingressClassName"].is_string();
        if !attributes.subresource.is_empty() || says_class || !ingress["spec"].is_object() {
            return Ok(());
        }
        if let Some(name) = default_of(&self.classes.all().await?) {
            attributes.object_mut()["spec"]["ingressClassName"] = name.into();
        }
        Ok(())
    }
}

fn default_of(classes: &[Value]) -> Option<&str> {
    let defaults = classes
        .iter()
        .filter(|class| meta::annotation(class, IS_DEFAULT) == Some("true"));
    let newest = defaults.min_by_key(|class| {
        let made = meta::parse_time(string(&class["metadata"]["creationTimestamp"]));
        (Reverse(made), meta::name(class))
    });
    newest.map(meta::name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_several_defaults_the_newest_counts() {
        let class = |name: &str, is_default: &str, second: u32| {
            json!({"metadata": {"name": name, "annotations": {IS_DEFAULT: is_default},
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}})
        };
        for (classes, expect) in [
            (vec![], None),
            (vec![class("a", "false", 1), class("b", "yes", 1)], None),
            (
                vec![class("a", "true", 1), class("b", "false", 2)],
                Some("a"),
            ),
            (
                vec![class("a", "true", 1), class("b", "true", 2)],
                Some("b"),
            ),
            (
                vec![class("b", "true", 1), class("a", "true", 1)],
                Some("a"),
            ),
        ] {
            assert_eq!(default_of(&classes), expect, "{classes:?}");
        }
    }
}
