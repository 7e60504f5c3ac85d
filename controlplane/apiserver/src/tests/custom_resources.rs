//! Kinds that come, change and go while the server runs.

mod kubectl;
mod objects;
mod serving;
mod versions;
pub(super) mod webhook;

use std::{sync::Arc, time::Duration};

use coracle_api::schema::Structural;
use coracle_auth::user::UserInfo;
use coracle_registry::{
    api_resource::ApiResource,
    custom_resource::{CustomResource, CustomResourceVersion, PrinterColumn, RuleMetrics},
    json_path::JsonPath,
    strategy::{Column, Subresource},
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::raw::Raw;
use crate::{custom_resources, server::ApiServer, testing};

const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/example.org/v2/namespaces/default/widgets";

/// Widgets of one version, with more properties in their spec.
fn widgets(more: Value) -> CustomResource {
    let info = ApiResource {
        short_names: vec!["wd".into()],
        ..ApiResource::new("example.org", "", "Widget", "widgets")
    };
    CustomResource {
        info,
        storage: v1(more),
        others: Vec::new(),
        conversion: None,
        definition: None,
        rule_metrics: RuleMetrics::default(),
    }
}

/// Widgets of two versions, stored as v1; the properties are those of v1.
fn widgets_of_two_versions(more: Value) -> CustomResource {
    CustomResource {
        others: vec![v2()],
        ..widgets(more)
    }
}

/// A size is required, and there are parts.
fn v1(more: Value) -> CustomResourceVersion {
    let mut spec = json!({"type": "object", "description": "What is wanted.", "required": ["size"], "properties": {
        "size": {"type": "integer", "description": "How large it is."},
        "mode": {"type": "string", "default": "fast"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
    }});
    for (name, property) in more.as_object().into_iter().flatten() {
        spec["properties"][name] = property.clone();
    }
    version("v1", spec, vec![column("Size", "integer", ".spec.size")])
}

/// There need be no size, there are no parts, and there is a flavour.
fn v2() -> CustomResourceVersion {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "description": "Its size in this version."},
        "mode": {"type": "string", "default": "calm"},
        "flavour": {"type": "string"},
    }});
    version("v2", spec, vec![column("Mode", "string", ".spec.mode")])
}

fn version(name: &str, spec: Value, mut columns: Vec<PrinterColumn>) -> CustomResourceVersion {
    let schema = json!({"type": "object", "description": "A Widget is a thing.", "properties": {
        "spec": spec,
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }});
    columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    CustomResourceVersion {
        name: name.to_owned().into(),
        served: true,
        deprecated: "".into(),
        scale: None,
        subresources: vec![Subresource::Status],
        schema: Structural::read(&schema).unwrap(),
        columns,
        selectable_fields: vec!["spec.mode".to_owned()],
    }
}

fn column(name: &str, kind: &str, path: &str) -> PrinterColumn {
    let head = Column {
        name: name.to_owned().into(),
        kind: kind.to_owned().into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
    };
    PrinterColumn {
        column: head,
        path: JsonPath::parse(path).unwrap(),
    }
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn served() -> (Arc<ApiServer>, Raw) {
    serving(widgets(json!({}))).await
}

async fn serving(kind: CustomResource) -> (Arc<ApiServer>, Raw) {
    let server = testing::server().await;
    custom_resources::serve(&server.state, kind).await.unwrap();
    let admin = Raw::of(&server, UserInfo::master("test"));
    (server, admin)
}

/// A watch of all widgets at a path, as its lines.
pub(super) async fn watch(admin: &Raw, path: &str) -> impl futures::Stream<Item = Value> + Unpin {
    let answer = admin
        .response("GET", &format!("{path}?watch=true"), "", "")
        .await;
    assert_eq!(answer.status(), 200);
    let bytes = http_body_util::BodyDataStream::new(answer.into_body());
    let lines = bytes.map_ok(|chunk| {
        let text = String::from_utf8_lossy(&chunk).into_owned();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    });
    Box::pin(lines.flat_map(|lines| futures::stream::iter(lines.unwrap())))
}

pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what)
        .await
        .expect("it happens in time")
}
