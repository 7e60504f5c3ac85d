//! The type of `scheduling.coracle.dev` as an OpenAPI schema: Bindings and Statuses are upstream's.

use coracle_api::schema;
use serde_json::json;

use super::{GROUP, MAX_BINDINGS, VERSION};
use crate::published::Definitions;

const PREFIX: &str = "dev.coracle.scheduling.v1alpha1.";
const BINDING: &str = "io.k8s.api.core.v1.Binding";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// What OpenAPI tells of the kind.
pub(super) fn definitions(kind: &'static str) -> Definitions {
    let foreign = [BINDING, META, STATUS]
        .iter()
        .filter_map(|name| schema::table().by_name(name))
        .collect();
    let schemas = move |ref_prefix: &str| {
        let all = |of: &str, what: &str| {
            json!({"type": "array", "items": {"$ref": format!("{ref_prefix}{of}")}, "description": what,
                "x-kubernetes-list-type": "atomic"})
        };
        let sent = format!(
            "What is to be bound, at most {MAX_BINDINGS} Bindings; each names its pod's namespace."
        );
        let schema = json!({
            "type": "object",
            "description": "BindingBatch binds many pods to their nodes, each as if it had been sent alone.",
            "required": ["bindings"],
            "properties": {
                "apiVersion": {"type": "string", "description": "The version of this schema."},
                "kind": {"type": "string", "description": "What this object is."},
                "metadata": {"allOf": [{"$ref": format!("{ref_prefix}{META}")}]},
                "bindings": all(BINDING, &sent),
                "outcomes": all(STATUS, "What became of each, in the same order; in answers."),
            },
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": kind}],
        });
        vec![(format!("{PREFIX}{kind}"), schema)]
    };
    Definitions {
        name: format!("{PREFIX}{kind}"),
        names: vec![format!("{PREFIX}{kind}")],
        list_name: format!("{PREFIX}{kind}List"),
        schemas: Box::new(schemas),
        foreign,
    }
}
