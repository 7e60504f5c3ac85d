//! What the server has: the discovery documents, aggregated and legacy, made from the list of kinds.
//!
//! Serves no HTTP and knows no paths: `endpoints` asks for a document and sends its bytes.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, `k8s.io/api/apidiscovery/v2` at v1.37.

mod subresource;

use std::sync::LazyLock;

use bytes::Bytes;
use coracle_registry::{
    kinds,
    strategy::{ResourceInfo, Scope},
};
use serde_json::{Value, json};

use crate::{
    metrics_api, review,
    table::accept::{media_ranges, takes_json},
    unstored,
};

/// Which discovery document `/api` and `/apis` give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One document with everything: `apidiscovery.k8s.io/v2`.
    AggregatedV2,
    /// The same as `v2beta1`, for clients before 1.30.
    AggregatedV2beta1,
    /// Names of groups and versions only; one document a version besides.
    Legacy,
}

/// A document ready to send.
#[derive(Debug, Clone)]
pub struct Document {
    /// JSON.
    pub body: Bytes,
    /// Value of the `Content-Type` header.
    pub content_type: &'static str,
}

/// The form that an `Accept` header asks for; `None` is 406.
#[must_use]
pub fn negotiate(accept: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Legacy);
    }
    media_ranges(accept).filter(|range| takes_json(range.media_type)).find_map(|range| {
        match (range.as_kind, range.group, range.version) {
            ("", ..) => Some(Form::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Form::AggregatedV2),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Some(Form::AggregatedV2beta1),
            _ => None,
        }
    })
}

/// The answer to `GET /api`. `server_address` is where this client reached the server, `host:port`.
#[must_use]
pub fn api(form: Form, server_address: &str) -> Document {
    static V2: LazyLock<Bytes> = LazyLock::new(|| aggregated("v2", |group| group.is_empty()));
    static V2BETA1: LazyLock<Bytes> = LazyLock::new(|| aggregated("v2beta1", |group| group.is_empty()));
    document(form, &V2, &V2BETA1, || {
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        })
    })
}

/// The answer to `GET /apis`.
#[must_use]
pub fn apis(form: Form) -> Document {
    static V2: LazyLock<Bytes> = LazyLock::new(|| aggregated("v2", |group| !group.is_empty()));
    static V2BETA1: LazyLock<Bytes> = LazyLock::new(|| aggregated("v2beta1", |group| !group.is_empty()));
    document(form, &V2, &V2BETA1, || {
        let groups: Vec<_> = groups().into_iter().filter(|group| !group.is_empty()).map(group_value).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    })
}

/// The answer to `GET /apis/GROUP`.
#[must_use]
pub fn group(name: &str) -> Option<Document> {
    let name = groups().into_iter().find(|group| *group == name && !group.is_empty())?;
    let mut value = group_value(name);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(plain(&value))
}

/// The answer to `GET /api/v1` and `GET /apis/GROUP/VERSION`.
#[must_use]
pub fn resources(group: &str, version: &str) -> Option<Document> {
    let infos: Vec<_> = infos().filter(|info| info.group == group && info.version == version).collect();
    if infos.is_empty() {
        return None;
    }
    let mut resources = Vec::new();
    for info in infos {
        resources.push(legacy_resource(info));
        resources.extend(info.subresources.iter().map(|sub| subresource::legacy(info, *sub)));
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut list =
        json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(plain(&list))
}

/// `v1`, `apps/v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Every group and version that has kinds, in discovery's order.
#[must_use]
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    versions(infos())
}

fn versions(infos: impl Iterator<Item = &'static ResourceInfo>) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for info in infos {
        if !all.contains(&(info.group, info.version)) {
            all.push((info.group, info.version));
        }
    }
    all
}

/// Every kind: those of the registry, then those without a store.
pub(crate) fn infos() -> impl Iterator<Item = &'static ResourceInfo> {
    let stored = kinds::all().iter().map(|strategy| strategy.resource());
    stored.chain(unstored::INFOS).chain(&review::INFOS).chain(&metrics_api::RESOURCES)
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = versions(infos()).into_iter().map(|(group, _)| group).collect();
    groups.dedup();
    groups
}

fn versions_of(group: &str) -> impl Iterator<Item = &'static str> {
    versions(infos()).into_iter().filter(move |(g, _)| *g == group).map(|(_, version)| version)
}

fn plain(value: &Value) -> Document {
    Document { body: value.to_string().into(), content_type: "application/json" }
}

fn document(form: Form, v2: &Bytes, v2beta1: &Bytes, legacy: impl FnOnce() -> Value) -> Document {
    match form {
        Form::AggregatedV2 => Document {
            body: v2.clone(),
            content_type: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        },
        Form::AggregatedV2beta1 => Document {
            body: v2beta1.clone(),
            content_type: "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        },
        Form::Legacy => plain(&legacy()),
    }
}

fn group_value(group: &str) -> Value {
    let versions: Vec<_> = versions_of(group)
        .map(|version| json!({"groupVersion": api_version(group, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned();
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

fn legacy_resource(info: &ResourceInfo) -> Value {
    let mut value = json!({
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.scope == Scope::Namespaced,
        "kind": info.kind,
        "verbs": info.verbs,
    });
    add_names(&mut value, info);
    value
}

fn add_names(value: &mut Value, info: &ResourceInfo) {
    if !info.short_names.is_empty() {
        value["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        value["categories"] = json!(info.categories);
    }
}

fn aggregated(version: &str, select: impl Fn(&str) -> bool) -> Bytes {
    let items: Vec<_> = groups().into_iter().filter(|group| select(group)).map(aggregated_group).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
    .to_string()
    .into()
}

fn aggregated_group(group: &str) -> Value {
    let versions: Vec<_> = versions_of(group)
        .map(|version| {
            let resources: Vec<_> = infos()
                .filter(|info| info.group == group && info.version == version)
                .map(aggregated_resource)
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(info: &ResourceInfo) -> Value {
    let scope = match info.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let mut value = json!({
        "resource": info.plural,
        "responseKind": {"group": info.group, "version": info.version, "kind": info.kind},
        "scope": scope,
        "singularResource": info.singular,
        "verbs": info.verbs,
    });
    add_names(&mut value, info);
    if !info.subresources.is_empty() {
        value["subresources"] =
            info.subresources.iter().map(|sub| subresource::aggregated(info, *sub)).collect::<Vec<_>>().into();
    }
    value
}

#[cfg(test)]
mod tests;
