//! The OpenAPI v3 documents: an index, and one document for each group and version. Version 2, one
//! document of everything, is `v2`'s.
//!
//! Made from what is published and the schema table. Clients fetch a document once and keep it by
//! its hash. A document is joined of parts, one a resource and one of all types of the table
//! (`pieced`): those that somebody asks for are kept, compressed; of the others hashes.
//!
//! What kubectl reads: the group, version and kind on every operation, the query parameters and
//! patch types of PATCH, and the schemas with their patch strategies.
//!
//! Source: `k8s.io/kube-openapi/pkg/handler3`, `k8s.io/apiserver/pkg/endpoints/installer.go` at
//! v1.37.

pub(crate) mod custom;
mod gnostic;
mod operations;
mod parameters;
mod parts;
mod paths;
pub(crate) mod v2;

use bytes::Bytes;
use coracle_api::{
    resource::Gvk,
    schema::{self, Type},
};
use coracle_registry::{api_resource::ApiResource, strategy::Subresource};
use serde_json::{Map, Value, json};

use crate::{
    pieced::{self, Document, Joining, Source},
    published::{GroupVersion, Published, Shown},
};

const REF_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const FORM: parts::Form = parts::Form {
    name: "v3",
    prefix: REF_PREFIX,
    piece: |pieces| &pieces.v3,
    paths: parts::json,
    schemas: parts::json,
};
/// What is around the paths and the schemas of a document, and between them.
const FRAME: [&str; 3] = [
    r#"{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"v1.37.0"},"paths":{"#,
    r#"},"components":{"schemas":{"#,
    r#"},"securitySchemes":{"BearerToken":{"type":"apiKey","name":"authorization","in":"header","description":"Bearer Token authentication"}}}}"#,
];

/// The answer to `GET /openapi/v3`: where each document is, with a hash of what is in it.
pub(crate) fn index(published: &Published) -> Bytes {
    if let Some(known) = published.openapi_v3_index.get() {
        return known.clone();
    }
    let of_version = |of: &GroupVersion| {
        let name = document_name(&of.group, &of.version);
        let url = format!("/openapi/v3/{name}?hash={}", hash(published, of));
        (name, json!({"serverRelativeURL": url}))
    };
    let paths: Map<String, Value> = published.versions.iter().map(of_version).collect();
    let index = json!({"paths": paths}).to_string().into();
    published.openapi_v3_index.get_or_init(|| index).clone()
}

/// The document of `api/v1` or `apis/apps/v1`; `None` is 404.
pub(crate) fn of_version<'a>(published: &'a Published, name: &str) -> Option<&'a Document> {
    let (group, version) = match name.strip_prefix("api/") {
        Some(version) => ("", version),
        None => name.strip_prefix("apis/")?.split_once('/')?,
    };
    let of = published.version(group, version)?;
    Some(match of.openapi_v3.document.get() {
        Some(known) => known,
        None => {
            let document = document(published, of);
            of.openapi_v3.document.get_or_init(|| document)
        }
    })
}

/// `api/v1`, `apis/apps/v1`.
fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// A hash of a document, made of those of its parts: whole documents would be made for nothing.
fn hash<'a>(published: &Published, of: &'a GroupVersion) -> &'a str {
    if let Some(known) = of.openapi_v3.hash.get() {
        return known;
    }
    let [paths, schemas] = sources(published, of);
    let hash = pieced::hash(FRAME.concat().as_bytes(), paths.iter().chain(&schemas));
    of.openapi_v3.hash.get_or_init(|| hash)
}

fn document(published: &Published, of: &GroupVersion) -> Document {
    let [begin, between, end] = FRAME.map(str::as_bytes);
    let [paths, schemas] = sources(published, of);
    let mut document = Joining::default();
    document.text(begin);
    document.members(&paths);
    document.text(between);
    document.members(&schemas);
    document.text(end);
    document.finish(hash(published, of))
}

fn sources<'a>(published: &'a Published, of: &'a GroupVersion) -> [Vec<Source<'a>>; 2] {
    parts::of(published, of.resources(published).collect(), &FORM)
}

/// What the operations of these kinds refer to themselves.
fn roots(all: &[&Shown]) -> Vec<Type> {
    let table = schema::table();
    let mut roots: Vec<Type> = [
        "DeleteOptions",
        "Status",
        "Patch",
        "APIResourceList",
        "WatchEvent",
    ]
    .iter()
    .filter_map(|name| table.by_name(&format!("{META}{name}")))
    .collect();
    for shown in all {
        let info = &shown.info;
        match &shown.definitions {
            Some(own) => roots.extend(&own.foreign),
            None => roots.extend(["", "List"].iter().filter_map(|suffix| {
                let kind = format!("{}{suffix}", info.kind);
                table.by_gvk(&Gvk::new(&*info.group, &*info.version, kind))
            })),
        }
        roots.extend(
            info.subresources
                .iter()
                .filter_map(|sub| foreign_type(info, *sub)),
        );
    }
    roots
}

/// The type that a subresource speaks, where that is not the resource's own.
fn foreign_type(info: &ApiResource, sub: Subresource) -> Option<Type> {
    let (group, version, kind) = sub.foreign_kind(&info.kind)?;
    schema::table().by_gvk(&Gvk::new(group, version, kind))
}

#[cfg(test)]
mod tests;
