//! Kinds of two versions without a conversion webhook: they differ by name and by their fields.

use coracle_api::schema::Structural;
use coracle_registry::{
    api_resource::ApiResource,
    custom_resource::{CustomResource, CustomResourceVersion, RuleMetrics},
};
use serde_json::{Value, json};

use crate::server::ApiServer;

/// Serves a kind of `example.org`, of which the first version is stored. Each has its name and its
/// fields.
pub(super) async fn serve(
    server: &ApiServer,
    (kind, plural): (&'static str, &'static str),
    [stored, other]: [(&'static str, Value); 2],
) {
    let kind = CustomResource {
        info: ApiResource::new("example.org", stored.0, kind, plural),
        storage: version(stored),
        others: vec![version(other)],
        conversion: None,
        definition: None,
        rule_metrics: RuleMetrics::default(),
    };
    server.serve_custom_resource(kind).await.unwrap();
}

fn version((name, fields): (&'static str, Value)) -> CustomResourceVersion {
    let schema = json!({"type": "object", "properties": fields});
    CustomResourceVersion {
        name: name.into(),
        served: true,
        deprecated: "".into(),
        subresources: Vec::new(),
        scale: None,
        schema: Structural::read(&schema).unwrap(),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
    }
}
