//! A definition as the kind that is served.

use coracle_api::{
    meta,
    schema::{Structural, structural::ReadStructural},
};
use serde_json::Value;

use super::conditions;
use crate::{
    api_resource::{ApiResource, Text},
    converter::ReviewVersion,
    custom_resource::{
        CustomResource, CustomResourceVersion, PrinterColumn, RuleMetrics, WebhookConversion,
    },
    json_path::JsonPath,
    open_definitions::definition::Definition,
    strategy::{Column, ScalePaths, Scope, Subresource},
    value::{items, string},
};

/// Without `create`: its objects go. Upstream does not tell of `patch` and `update` then either,
/// but takes them, so that finalizers come off.
const VERBS_TERMINATING: [&str; 7] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The kind of a definition that has been given names; `None` if nothing of it can be served.
///
/// # Errors
/// A schema that is not structural: it was stored by something that takes others.
pub fn kind(definition: &Value) -> Result<Option<CustomResource>, ReadStructural> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let mut info = ApiResource::new(
        owned(&spec["group"]),
        "",
        owned(&names["kind"]),
        // The definition's own name, whatever somebody has written into its status.
        owned(&spec["names"]["plural"]),
    );
    if let Some(kind) = names["listKind"].as_str().filter(|kind| !kind.is_empty()) {
        info.list_kind = Text::Owned(kind.to_owned());
    }
    info.singular = owned(&names["singular"]);
    info.short_names = items(&names["shortNames"]).iter().map(owned).collect();
    info.categories = items(&names["categories"]).iter().map(owned).collect();
    if spec["scope"] == "Cluster" {
        info.scope = Scope::Cluster;
    }
    // Upstream's handler never overwrites what it was not told the version of.
    info.unconditional_update = false;
    if conditions::is_true(definition, "Terminating") {
        info.verbs = VERBS_TERMINATING.map(Text::Borrowed).to_vec();
    }
    let (mut storage, mut others) = (None, Vec::new());
    for version in items(&spec["versions"]) {
        let read = self::version(version, &info)?;
        if version["storage"] == true {
            storage = Some(read);
        } else {
            others.push(read);
        }
    }
    Ok(storage.map(|storage| CustomResource {
        info,
        conversion: conversion(definition).filter(|_| !others.is_empty()),
        definition: Some(Definition::of(definition)),
        storage,
        others,
        rule_metrics: RuleMetrics::default(),
    }))
}

/// The webhook that converts, if one does.
fn conversion(definition: &Value) -> Option<WebhookConversion> {
    let conversion = &definition["spec"]["conversion"];
    let webhook = &conversion["webhook"];
    let versions = items(&webhook["conversionReviewVersions"]);
    Some(WebhookConversion {
        definition: meta::name(definition).to_owned(),
        client_config: webhook["clientConfig"].clone(),
        review: ReviewVersion::of(versions.iter().map(string))
            .filter(|_| conversion["strategy"] == "Webhook")?,
    })
}

fn version(version: &Value, info: &ApiResource) -> Result<CustomResourceVersion, ReadStructural> {
    let name = owned(&version["name"]);
    let subresources = &version["subresources"];
    let scale = scale_paths(&subresources["scale"]);
    let mut has = Vec::new();
    if !subresources["status"].is_null() {
        has.push(Subresource::Status);
    }
    if scale.is_some() {
        has.push(Subresource::Scale);
    }
    let deprecated = match (
        version["deprecated"] == true,
        version["deprecationWarning"].as_str(),
    ) {
        (false, _) => String::new(),
        (true, Some(warning)) => warning.to_owned(),
        (true, None) => format!("{}/{name} {} is deprecated", info.group, info.kind),
    };
    Ok(CustomResourceVersion {
        served: version["served"] == true,
        deprecated: deprecated.into(),
        subresources: has,
        scale,
        schema: Structural::read(&version["schema"]["openAPIV3Schema"])?,
        columns: items(&version["additionalPrinterColumns"])
            .iter()
            .filter_map(column)
            .collect(),
        selectable_fields: items(&version["selectableFields"])
            .iter()
            .map(|field| {
                string(&field["jsonPath"])
                    .trim_start_matches('.')
                    .to_owned()
            })
            .collect(),
        name,
    })
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let path = |field: &str| {
        let text = scale[field].as_str()?.strip_prefix('.')?;
        Some(text.split('.').map(str::to_owned).collect::<Vec<String>>())
    };
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

/// A path that cannot be read shows nothing.
fn column(column: &Value) -> Option<PrinterColumn> {
    let head = Column {
        name: owned(&column["name"]),
        kind: owned(&column["type"]),
        format: owned(&column["format"]),
        description: match string(&column["description"]) {
            "" => Text::Owned(format!(
                "Custom resource definition column (in JSONPath format): {}",
                string(&column["jsonPath"])
            )),
            text => Text::Owned(text.to_owned()),
        },
        priority: column["priority"]
            .as_i64()
            .and_then(|at| i32::try_from(at).ok())
            .unwrap_or(0),
    };
    Some(PrinterColumn {
        column: head,
        path: JsonPath::parse(string(&column["jsonPath"]))?,
    })
}

fn owned(value: &Value) -> Text {
    Text::Owned(string(value).to_owned())
}
