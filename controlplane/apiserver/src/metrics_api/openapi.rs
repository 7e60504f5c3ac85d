//! The types of `metrics.k8s.io` as OpenAPI schemas. They are of a group that the schema table does
//! not have, because nothing of it is stored or sent to the server.
//!
//! Source: `k8s.io/metrics/pkg/apis/metrics/v1beta1/types.go` at v1.37.

use coracle_api::schema;
use serde_json::{Map, Value, json};

use super::{GROUP, VERSION};
use crate::published::Definitions;

const PREFIX: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const USAGE: &str = "The memory usage is the memory working set.";

/// The types of other groups that these refer to.
const FOREIGN: [&str; 4] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    QUANTITY,
];

/// What OpenAPI tells of a kind of this group.
pub(super) fn definitions(kind: &str) -> Definitions {
    let foreign = FOREIGN
        .iter()
        .filter_map(|name| schema::table().by_name(name))
        .collect();
    Definitions {
        name: format!("{PREFIX}{kind}"),
        names: schemas("").into_iter().map(|(name, _)| name).collect(),
        list_name: format!("{PREFIX}{kind}List"),
        schemas: Box::new(schemas),
        foreign,
    }
}

/// Every type, by name. A reference is `ref_prefix` and a name.
fn schemas(ref_prefix: &str) -> Vec<(String, Value)> {
    let list = |of: &str, what: &str| {
        let items = json!({"type": "array", "description": format!("List of {what} metrics."),
            "items": {"$ref": format!("{ref_prefix}{PREFIX}{of}")}});
        let metadata = reference(
            ref_prefix,
            &format!("{META}ListMeta"),
            "Standard list metadata.",
        );
        let properties = json!({"metadata": metadata, "items": items});
        object(
            &format!("{of}List"),
            &format!("{of}List is a list of {of}."),
            properties,
            &["items"],
        )
    };
    let sample = |kind: &str, what: &str, (field, schema): (&str, Value)| {
        let mut properties = json!({
            "metadata": reference(ref_prefix, &format!("{META}ObjectMeta"), "Standard object's metadata."),
            "timestamp": reference(ref_prefix, &format!("{META}Time"), "The following fields define time interval from which metrics were collected from the interval [Timestamp-Window, Timestamp]."),
            "window": reference(ref_prefix, &format!("{META}Duration"), ""),
        });
        properties[field] = schema;
        let description = format!("{kind} sets resource usage metrics of a {what}.");
        object(
            kind,
            &description,
            properties,
            &["timestamp", "window", field],
        )
    };
    let containers = json!({"type": "array", "x-kubernetes-list-type": "atomic",
        "description": "Metrics for all containers are collected within the same time window.",
        "items": {"$ref": format!("{ref_prefix}{PREFIX}ContainerMetrics")}});
    let container = json!({
        "name": {"type": "string", "description": "Container name corresponding to the one from pod.spec.containers."},
        "usage": usage(ref_prefix),
    });
    let duration = "Duration is a wrapper around time.Duration which supports correct marshaling to YAML and JSON. In particular, it marshals into strings, which can be used as map keys in json.";
    vec![
        sample("NodeMetrics", "node", ("usage", usage(ref_prefix))),
        list("NodeMetrics", "node"),
        sample("PodMetrics", "pod", ("containers", containers)),
        list("PodMetrics", "pod"),
        (
            format!("{PREFIX}ContainerMetrics"),
            json!({"type": "object", "required": ["name", "usage"], "properties": container,
                "description": "ContainerMetrics sets resource usage metrics of a container."}),
        ),
        (
            format!("{META}Duration"),
            json!({"type": "string", "description": duration}),
        ),
    ]
}

/// A kind: what every kind has, and its own properties.
fn object(
    kind: &str,
    description: &str,
    mut properties: Value,
    required: &[&str],
) -> (String, Value) {
    let text = |description: &str| json!({"type": "string", "description": description});
    properties["apiVersion"] = text(
        "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    );
    properties["kind"] = text(
        "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    );
    let schema = json!({
        "type": "object", "description": description, "properties": properties, "required": required,
        "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": kind}],
    });
    (format!("{PREFIX}{kind}"), schema)
}

fn usage(ref_prefix: &str) -> Value {
    let quantity = json!({"$ref": format!("{ref_prefix}{QUANTITY}")});
    json!({"type": "object", "description": USAGE, "additionalProperties": quantity})
}

fn reference(ref_prefix: &str, name: &str, description: &str) -> Value {
    let mut property = Map::from_iter([(
        "allOf".to_owned(),
        json!([{"$ref": format!("{ref_prefix}{name}")}]),
    )]);
    if !description.is_empty() {
        property.insert("description".to_owned(), description.into());
    }
    property.into()
}
