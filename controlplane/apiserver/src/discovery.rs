//! What the server has: the discovery documents, aggregated and legacy, made from what is
//! published.
//!
//! Serves no HTTP and knows no paths: `nonresource` asks for a document and sends its bytes.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, `k8s.io/api/apidiscovery/v2` at v1.37.

mod subresource;

use std::net::SocketAddr;

use bytes::Bytes;
use coracle_registry::{api_resource::ApiResource, strategy::Scope};
use serde_json::{Value, json};

use crate::{
    pieced::made,
    published::{GroupVersion, Published, Shown, Tagged},
    table::accept::{media_ranges, takes_json},
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
    /// Value of the `ETag` header, where upstream has one: clients ask by it whether they have the
    /// document already.
    pub tag: Option<String>,
}

impl Document {
    fn legacy(body: &Bytes) -> Self {
        Self {
            body: body.clone(),
            content_type: "application/json",
            tag: None,
        }
    }
}

/// The form that an `Accept` header asks for; `None` is 406.
#[must_use]
pub fn negotiate(accept: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Legacy);
    }
    media_ranges(accept)
        .filter(|range| takes_json(range.media_type))
        .find_map(|range| match (range.as_kind, range.group, range.version) {
            ("", ..) => Some(Form::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Form::AggregatedV2),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
                Some(Form::AggregatedV2beta1)
            }
            _ => None,
        })
}

/// The answer to `GET /`: every path that is no resource. `more` are those that no kind is behind.
pub(crate) fn root(published: &Published, more: &[&str]) -> Document {
    let make = || {
        let mut paths: Vec<String> = more.iter().map(|path| (*path).to_owned()).collect();
        for GroupVersion { group, version, .. } in &published.versions {
            if !group.is_empty() {
                paths.push(format!("/apis/{group}"));
                paths.push(format!("/apis/{group}/{version}"));
            }
        }
        paths.sort();
        paths.dedup();
        json!({"paths": paths}).to_string().into()
    };
    Document::legacy(published.root.get_or_init(make))
}

/// The answer to `GET /api`. `server_address` is where this server is reached, `host:port`.
pub(crate) fn api(published: &Published, form: Form, server_address: SocketAddr) -> Document {
    let make = || {
        let server_address = server_address.to_string();
        let versions: Vec<&str> = published.versions_of("").collect();
        let list = json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        });
        list.to_string().into()
    };
    aggregated(published, form, Part::Core)
        .unwrap_or_else(|| Document::legacy(published.api.legacy.get_or_init(make)))
}

/// The answer to `GET /apis`.
pub(crate) fn apis(published: &Published, form: Form) -> Document {
    let make = || {
        let groups = published.groups.iter();
        let groups: Vec<Value> = groups
            .filter(|group| !group.name.is_empty())
            .map(|group| group_value(published, &group.name))
            .collect();
        let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
        list.to_string().into()
    };
    aggregated(published, form, Part::Groups)
        .unwrap_or_else(|| Document::legacy(published.apis.legacy.get_or_init(make)))
}

/// The answer to `GET /apis/GROUP`.
pub(crate) fn group(published: &Published, name: &str) -> Option<Document> {
    let mut groups = published.groups.iter();
    let group = groups.find(|group| group.name == name && !name.is_empty())?;
    let make = || {
        let mut value = group_value(published, name);
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
        value.to_string().into()
    };
    Some(Document::legacy(group.legacy.get_or_init(make)))
}

/// The answer to `GET /api/v1` and `GET /apis/GROUP/VERSION`.
pub(crate) fn resources(published: &Published, group: &str, version: &str) -> Option<Document> {
    let found = published.version(group, version)?;
    let make = || resource_list(published, group, version).to_string().into();
    Some(Document::legacy(found.legacy.get_or_init(make)))
}

fn resource_list(published: &Published, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for Shown { info, .. } in published.of_version(group, version) {
        resources.push(legacy_resource(info));
        resources.extend(
            info.subresources
                .iter()
                .map(|sub| subresource::legacy(info, *sub)),
        );
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut list = json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

/// `v1`, `apps/v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn group_value(published: &Published, group: &str) -> Value {
    let versions: Vec<_> = published
        .versions_of(group)
        .map(|version| json!({"groupVersion": api_version(group, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned();
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

fn legacy_resource(info: &ApiResource) -> Value {
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

fn add_names(value: &mut Value, info: &ApiResource) {
    if !info.short_names.is_empty() {
        value["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        value["categories"] = json!(info.categories);
    }
}

/// Which half of the resources a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
}

/// One document of everything; `None` if the client asks for the legacy form.
fn aggregated(published: &Published, form: Form, part: Part) -> Option<Document> {
    let documents = match part {
        Part::Core => &published.api,
        Part::Groups => &published.apis,
    };
    let (kept, version, content_type) = match form {
        Form::AggregatedV2 => (
            &documents.v2,
            "v2",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        Form::AggregatedV2beta1 => (
            &documents.v2beta1,
            "v2beta1",
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        ),
        Form::Legacy => return None,
    };
    let make = || {
        let groups = published.groups.iter().map(|group| &*group.name);
        let items: Vec<Value> = groups
            .filter(|group| group.is_empty() == (part == Part::Core))
            .map(|group| aggregated_group(published, group))
            .collect();
        let api_version = format!("apidiscovery.k8s.io/{version}");
        let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items});
        Tagged::of(list.to_string())
    };
    let Tagged { body, tag } = made(kept, make);
    Some(Document {
        body: body.clone(),
        content_type,
        tag: Some(tag.clone()),
    })
}

fn aggregated_group(published: &Published, group: &str) -> Value {
    let versions: Vec<_> = published
        .versions_of(group)
        .map(|version| {
            let resources: Vec<_> = published
                .of_version(group, version)
                .map(|shown| aggregated_resource(&shown.info))
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(info: &ApiResource) -> Value {
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
        value["subresources"] = info
            .subresources
            .iter()
            .map(|sub| subresource::aggregated(info, *sub))
            .collect::<Vec<_>>()
            .into();
    }
    value
}

#[cfg(test)]
mod tests;
