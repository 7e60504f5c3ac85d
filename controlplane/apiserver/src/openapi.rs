//! The OpenAPI v3 documents: an index, and one document for each group and version. Version 2, one document of
//! everything, is `v2`'s.
//!
//! Made from the list of kinds and the schema table on request: clients fetch them once and keep them by their hash,
//! so none is held here.
//!
//! What kubectl reads: the group, version and kind on every operation, the query parameters and patch types of PATCH,
//! and the schemas with their patch strategies.
//!
//! Source: `k8s.io/kube-openapi/pkg/handler3`, `k8s.io/apiserver/pkg/endpoints/installer.go` at v1.37.

mod gnostic;
mod operations;
mod paths;
pub(crate) mod v2;

use std::sync::LazyLock;

use coracle_api::{
    resource::Gvk,
    schema::{self, Type},
};
use coracle_registry::strategy::{ResourceInfo, Subresource};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    discovery::{Document, group_versions, infos},
    metrics_api,
};

const REF_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The answer to a GET below `/openapi`; `None` is 404.
#[must_use]
pub fn get(path: &str) -> Option<Document> {
    let body = match path.strip_prefix("/openapi/v3")?.trim_matches('/') {
        "" => index().into(),
        name => {
            let (group, version) = split(name)?;
            document(group, version)?.into()
        }
    };
    Some(Document { body, content_type: "application/json" })
}

/// The group and version of `api/v1` or `apis/apps/v1`.
fn split(name: &str) -> Option<(&str, &str)> {
    match name.strip_prefix("api/") {
        Some(version) => Some(("", version)),
        None => name.strip_prefix("apis/")?.split_once('/'),
    }
}

/// Where each document is, with a hash of what is in it.
fn index() -> String {
    // Hashes, because whole documents would stay in memory for nothing. They cost one build of each.
    static HASHES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        group_versions()
            .into_iter()
            .filter_map(|(group, version)| {
                let digest = Sha256::digest(document(group, version)?.as_bytes());
                Some((document_name(group, version), hex::encode_upper(digest)))
            })
            .collect()
    });
    let paths: Map<String, Value> = HASHES
        .iter()
        .map(|(name, hash)| (name.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")})))
        .collect();
    json!({"paths": paths}).to_string()
}

/// `api/v1`, `apis/apps/v1`.
fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn document(group: &str, version: &str) -> Option<String> {
    let infos: Vec<&ResourceInfo> = infos().filter(|info| info.group == group && info.version == version).collect();
    if infos.is_empty() {
        return None;
    }
    let mut all_paths = Map::new();
    for info in &infos {
        paths::of_resource(&mut all_paths, info);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": all_paths,
        "components": {
            "schemas": schemas(&infos),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication",
            }},
        },
    });
    Some(document.to_string())
}

/// Everything that the operations of these kinds refer to.
fn schemas(infos: &[&ResourceInfo]) -> Map<String, Value> {
    let types = schema::closure(&roots(infos));
    let of_table = types.into_iter().map(|ty| (ty.name().to_owned(), schema::openapi_v3_schema(ty, REF_PREFIX)));
    of_table
        .chain(has_metrics(infos).then(|| metrics_api::openapi::schemas(REF_PREFIX)).into_iter().flatten())
        .collect()
}

/// What is no type of the schema table.
fn has_metrics(infos: &[&ResourceInfo]) -> bool {
    infos.iter().any(|info| info.group == metrics_api::GROUP)
}

/// What a kind is called among the schemas.
fn schema_name(group: &str, version: &str, kind: &str) -> Option<String> {
    let known = schema::table().by_gvk(&Gvk::new(group, version, kind)).map(|ty| ty.name().to_owned());
    known.or_else(|| metrics_api::openapi::name_of(group, version, kind))
}

/// What the operations of these kinds refer to themselves.
fn roots(infos: &[&ResourceInfo]) -> Vec<Type> {
    let table = schema::table();
    let mut roots: Vec<Type> = ["DeleteOptions", "Status", "Patch", "APIResourceList", "WatchEvent"]
        .iter()
        .filter_map(|name| table.by_name(&format!("{META}{name}")))
        .collect();
    if has_metrics(infos) {
        roots.extend(metrics_api::openapi::FOREIGN.iter().filter_map(|name| table.by_name(name)));
    }
    for info in infos {
        for suffix in ["", "List"] {
            roots.extend(table.by_gvk(&Gvk::new(info.group, info.version, format!("{}{suffix}", info.kind))));
        }
        roots.extend(info.subresources.iter().filter_map(|sub| foreign_type(info, *sub)));
    }
    roots
}

/// The type that a subresource speaks, where that is not the resource's own.
fn foreign_type(info: &ResourceInfo, sub: Subresource) -> Option<Type> {
    let (group, version, kind) = sub.foreign_kind(info)?;
    schema::table().by_gvk(&Gvk::new(group, version, kind))
}

#[cfg(test)]
mod tests;
