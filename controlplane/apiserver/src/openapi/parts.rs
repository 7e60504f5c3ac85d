//! The parts of which documents are joined: of each resource its paths and its schemas, and one of
//! all types of the schema table that they refer to.

use std::{collections::HashSet, sync::Arc};

use coracle_api::schema::{self, Type};
use serde_json::{Map, Value};

use super::{paths, roots};
use crate::{
    pieced::Source,
    published::{Piece, Pieces, Published, Shown},
};

/// How a document is written.
pub(super) struct Form {
    pub(super) name: &'static str,
    /// What references begin with.
    pub(super) prefix: &'static str,
    /// Where its parts are kept.
    pub(super) piece: fn(&Pieces) -> &Piece,
    pub(super) paths: fn(Members<'_>) -> Vec<u8>,
    pub(super) schemas: fn(Members<'_>) -> Vec<u8>,
}

/// Members of an object as they are made, one after the other.
pub(super) type Members<'a> = &'a mut dyn Iterator<Item = (String, Value)>;

/// The parts with the paths of these resources, and those with their schemas.
pub(super) fn of<'a>(
    published: &Published,
    mut all: Vec<&'a Shown>,
    form: &'static Form,
) -> [Vec<Source<'a>>; 2] {
    // Alike on all servers, in whatever order they came to serve them.
    all.sort_by_key(|&shown| {
        let info = &shown.info;
        (&*info.group, &*info.version, &*info.plural)
    });
    let paths = all.iter().map(|&shown| {
        let make = move || (form.paths)(&mut of_resource(shown).into_iter());
        Source {
            part: Arc::clone(&(form.piece)(&shown.pieces).paths),
            make: Box::new(make),
        }
    });
    let types = schema::closure(&roots(&all));
    let mut schemas = vec![Source {
        part: published.tables.part(form.name, types.clone()),
        make: Box::new(move || (form.schemas)(&mut of_table(&types, form.prefix))),
    }];
    // Kinds that share a schema tell of it once.
    let mut told: HashSet<&'a str> = HashSet::new();
    for &shown in &all {
        let Some(own) = &shown.definitions else {
            continue;
        };
        let names = own.names.iter().map(String::as_str);
        let (known, new): (Vec<&str>, Vec<&str>) = names.partition(|name| told.contains(name));
        if new.is_empty() {
            continue;
        }
        told.extend(new);
        schemas.push(Source {
            part: match known.is_empty() {
                true => Arc::clone(&(form.piece)(&shown.pieces).schemas),
                false => Arc::default(),
            },
            make: Box::new(move || {
                let all = (own.schemas)(form.prefix).into_iter();
                (form.schemas)(&mut all.filter(|(name, _)| !known.contains(&name.as_str())))
            }),
        });
    }
    [paths.collect(), schemas]
}

/// Every path of a resource with its operations.
fn of_resource(shown: &Shown) -> Map<String, Value> {
    let mut paths = Map::new();
    paths::of_resource(&mut paths, shown);
    paths
}

fn of_table<'a>(types: &'a [Type], prefix: &'a str) -> impl Iterator<Item = (String, Value)> + 'a {
    types.iter().map(move |ty| {
        let schema = schema::openapi_v3_schema(*ty, prefix);
        (ty.name().to_owned(), schema)
    })
}

/// Members of a JSON object, without its braces.
pub(super) fn json(all: Members<'_>) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in all {
        let comma = if text.is_empty() { "" } else { "," };
        text.push_str(&format!("{comma}{}:{value}", Value::from(name)));
    }
    text.into_bytes()
}
