//! The OpenAPI v3 documents: an index, and one document for each group and version. Version 2, one
//! document of everything, is `v2`'s.
//!
//! Made from what is published and the schema table. Clients fetch a document once and keep it by
//! its hash: those that somebody asks for are kept too, compressed; of the others only the hash.
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
mod paths;
pub(crate) mod v2;

use std::{collections::BTreeMap, sync::OnceLock};

use bytes::Bytes;
use coracle_api::{
    resource::Gvk,
    schema::{self, Type},
};
use coracle_registry::{api_resource::ApiResource, beside::beside, strategy::Subresource};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::published::{Compressed, GroupVersion, Published, Shown};

const REF_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The answer to `GET /openapi/v3`: where each document is, with a hash of what is in it.
pub(crate) fn index(published: &Published) -> Bytes {
    // Hashes, because whole documents would stay in memory for nothing. They cost one build of
    // each.
    let make = || {
        let hash = |of: &GroupVersion| {
            let hash = || hex::encode_upper(Sha256::digest(document(published, of).as_bytes()));
            of.openapi_v3.hash.get_or_init(hash).clone()
        };
        let of_version = |of: &GroupVersion| {
            let name = document_name(&of.group, &of.version);
            let url = format!("/openapi/v3/{name}?hash={}", hash(of));
            (name, json!({"serverRelativeURL": url}))
        };
        let paths: Map<String, Value> = published.versions.iter().map(of_version).collect();
        json!({"paths": paths}).to_string().into()
    };
    made(&published.openapi_v3_index, make).clone()
}

/// The document of `api/v1` or `apis/apps/v1`; `None` is 404.
pub(crate) fn of_version<'a>(published: &'a Published, name: &str) -> Option<&'a Compressed> {
    let (group, version) = match name.strip_prefix("api/") {
        Some(version) => ("", version),
        None => name.strip_prefix("apis/")?.split_once('/')?,
    };
    let of = published.version(group, version)?;
    let make = || Compressed::of(document(published, of).as_bytes());
    Some(made(&of.openapi_v3.document, make))
}

/// What is kept, made beside the runtime's threads if it is not there yet: with a thousand kinds it
/// takes seconds, and who asks for the same waits for it.
pub(crate) fn made<T>(kept: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    match kept.get() {
        Some(kept) => kept,
        None => beside(|| kept.get_or_init(make)),
    }
}

/// `api/v1`, `apis/apps/v1`.
fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn document(published: &Published, of: &GroupVersion) -> String {
    let all: Vec<&Shown> = of.resources(published).collect();
    let mut all_paths = Map::new();
    for shown in &all {
        paths::of_resource(&mut all_paths, shown);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": all_paths,
        "components": {
            "schemas": schemas(&all),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication",
            }},
        },
    });
    document.to_string()
}

/// Everything that the operations of these kinds refer to.
fn schemas(all: &[&Shown]) -> Map<String, Value> {
    let types = schema::closure(&roots(all));
    let of_table = types.into_iter().map(|ty| {
        (
            ty.name().to_owned(),
            schema::openapi_v3_schema(ty, REF_PREFIX),
        )
    });
    of_table.chain(own_schemas(all, REF_PREFIX)).collect()
}

/// The schemas of kinds that the schema table does not have, each once.
fn own_schemas(all: &[&Shown], ref_prefix: &str) -> BTreeMap<String, Value> {
    let definitions = all.iter().filter_map(|shown| shown.definitions.as_ref());
    definitions
        .flat_map(|own| (own.schemas)(ref_prefix))
        .collect()
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
    for Shown { info, definitions } in all {
        match definitions {
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
