//! What is told of the resources that are served, and the documents that tell it: discovery,
//! OpenAPI.
//!
//! Each document is made when it is first asked for, and kept as long as the resources are these;
//! what those of OpenAPI have of a resource, as long as that is the same ([`crate::pieced`]).
//! What is in them is [`crate::discovery`]'s and [`crate::openapi`]'s to say.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use coracle_api::{resource::Gvk, schema};
use coracle_registry::api_resource::{ApiResource, Text, VersionPriority};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::pieced::{Document, Part};

/// A resource, as it is told of.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) info: Arc<ApiResource>,
    /// `None` if its kind is in the schema table.
    pub(crate) definitions: Option<Arc<Definitions>>,
    /// What documents have of it.
    pub(crate) pieces: Arc<Pieces>,
}

/// What the documents of OpenAPI have of a resource, once somebody has asked for them.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) v3: Piece,
    pub(crate) v2: Piece,
    pub(crate) v2_protobuf: Piece,
}

/// The same of one of the documents.
#[derive(Default)]
pub(crate) struct Piece {
    pub(crate) paths: Arc<Part>,
    pub(crate) schemas: Arc<Part>,
}

/// Makes schemas, each with its name, for a prefix of references.
type Schemas = dyn Fn(&str) -> Vec<(String, Value)> + Send + Sync;

/// What OpenAPI tells of a kind that the schema table does not have.
pub(crate) struct Definitions {
    /// What the kind is called among the schemas.
    pub(crate) name: String,
    /// What all its schemas are called; other kinds may have some of them, too.
    pub(crate) names: Vec<String>,
    /// What its list is called.
    pub(crate) list_name: String,
    /// The schemas by name. In them a reference is the given prefix and a name.
    pub(crate) schemas: Box<Schemas>,
    /// The types of the schema table that these refer to.
    pub(crate) foreign: Vec<schema::Type>,
}

impl Shown {
    pub(crate) fn new(info: Arc<ApiResource>, definitions: Option<Arc<Definitions>>) -> Self {
        Self {
            info,
            definitions,
            pieces: Arc::default(),
        }
    }

    /// What a kind is called among the schemas: this resource's, its list, or one of the table.
    pub(crate) fn schema_name(&self, group: &str, version: &str, kind: &str) -> Option<String> {
        let info = &self.info;
        let of_own = self
            .definitions
            .as_ref()
            .filter(|_| info.group == group && info.version == version);
        let own = of_own.and_then(|own| match kind {
            kind if *kind == *info.kind => Some(own.name.clone()),
            kind if *kind == *info.list_kind => Some(own.list_name.clone()),
            _ => None,
        });
        own.or_else(|| {
            schema::table()
                .by_gvk(&Gvk::new(group, version, kind))
                .map(|ty| ty.name().to_owned())
        })
    }
}

/// The resources, groups and versions that are told of, and their documents once made.
pub(crate) struct Published {
    pub(crate) resources: Vec<Shown>,
    /// Every group, in discovery's order.
    pub(crate) groups: Vec<Group>,
    /// Every group and version that has resources, in discovery's order: of a group first what
    /// clients prefer.
    pub(crate) versions: Vec<GroupVersion>,
    /// `/`: every path that is no resource.
    pub(crate) root: OnceLock<Bytes>,
    /// The core group's, `/api`.
    pub(crate) api: Discovery,
    /// The others', `/apis`.
    pub(crate) apis: Discovery,
    pub(crate) openapi_v2: OpenApiV2,
    pub(crate) openapi_v3_index: OnceLock<Bytes>,
    pub(crate) tables: Arc<Tables>,
}

/// The forms of a document that tells of groups.
#[derive(Default)]
pub(crate) struct Discovery {
    pub(crate) v2: OnceLock<Tagged>,
    pub(crate) v2beta1: OnceLock<Tagged>,
    pub(crate) legacy: OnceLock<Bytes>,
}

/// The forms of the one document of everything.
#[derive(Default)]
pub(crate) struct OpenApiV2 {
    pub(crate) json: OnceLock<Document>,
    pub(crate) protobuf: OnceLock<Document>,
}

/// What documents have of types of the schema table, by the document's form and the types: of those
/// that kinds of run time refer to there are few sets.
#[derive(Default)]
pub(crate) struct Tables(Mutex<HashMap<TypesOf, Arc<Part>>>);

/// A document's form, and types.
type TypesOf = (&'static str, Vec<schema::Type>);

impl Tables {
    /// The part with these types.
    pub(crate) fn part(&self, form: &'static str, types: Vec<schema::Type>) -> Arc<Part> {
        Arc::clone(self.0.lock().entry((form, types)).or_default())
    }
}

/// A group.
pub(crate) struct Group {
    pub(crate) name: Text,
    /// `/apis/GROUP`.
    pub(crate) legacy: OnceLock<Bytes>,
}

/// A group in one version.
pub(crate) struct GroupVersion {
    pub(crate) group: Text,
    pub(crate) version: Text,
    /// Places in [`Published::resources`].
    places: Vec<usize>,
    /// `/apis/GROUP/VERSION`: the legacy list of its resources.
    pub(crate) legacy: OnceLock<Bytes>,
    /// Shared with what was told before, if its resources are the same.
    pub(crate) openapi_v3: Arc<OpenApiV3>,
}

/// The document of a group in one version.
#[derive(Default)]
pub(crate) struct OpenApiV3 {
    /// Without quotes: asked for far more often than the document.
    pub(crate) hash: OnceLock<String>,
    pub(crate) document: OnceLock<Document>,
}

impl Published {
    /// What is told of these, with those documents of `before` that say the same.
    pub(crate) fn new(resources: Vec<Shown>, before: Option<&Self>) -> Self {
        let (mut groups, mut versions) = (Vec::new(), Vec::new());
        let mut places: HashMap<Text, usize> = HashMap::new();
        let mut known: HashMap<(usize, Text), usize> = HashMap::new();
        for (of_resource, shown) in resources.iter().enumerate() {
            let ApiResource { group, version, .. } = &*shown.info;
            let place = *places.entry(group.clone()).or_insert_with(|| {
                groups.push(Group {
                    name: group.clone(),
                    legacy: OnceLock::new(),
                });
                groups.len() - 1
            });
            let at = *known.entry((place, version.clone())).or_insert_with(|| {
                versions.push(GroupVersion {
                    group: group.clone(),
                    version: version.clone(),
                    places: Vec::new(),
                    legacy: OnceLock::new(),
                    openapi_v3: Arc::default(),
                });
                versions.len() - 1
            });
            versions[at].places.push(of_resource);
        }
        if let Some(before) = before {
            before.hand_on(&resources, &mut versions);
        }
        versions.sort_by(|one, other| {
            let order = |of: &GroupVersion| places[&of.group];
            let priority = |of| Reverse(VersionPriority::of(of));
            let by_group = order(one).cmp(&order(other));
            by_group.then_with(|| priority(&*one.version).cmp(&priority(&*other.version)))
        });
        Self {
            resources,
            groups,
            versions,
            root: OnceLock::new(),
            api: Discovery::default(),
            apis: Discovery::default(),
            openapi_v2: OpenApiV2::default(),
            openapi_v3_index: OnceLock::new(),
            tables: before.map_or_else(Arc::default, |before| Arc::clone(&before.tables)),
        }
    }

    /// Shares the documents of versions whose resources are the same.
    fn hand_on(&self, resources: &[Shown], versions: &mut [GroupVersion]) {
        let known = self.versions.iter();
        let known: HashMap<(&str, &str), &GroupVersion> = known
            .map(|known| ((&*known.group, &*known.version), known))
            .collect();
        for version in versions {
            let before = known.get(&(&*version.group, &*version.version));
            let is_same = |before: &&&GroupVersion| {
                let pairs = before.places.iter().zip(&version.places);
                let mut pairs = pairs.map(|(old, new)| (&self.resources[*old], &resources[*new]));
                before.places.len() == version.places.len()
                    && pairs.all(|(old, new)| Arc::ptr_eq(&old.info, &new.info))
            };
            if let Some(before) = before.filter(is_same) {
                version.openapi_v3 = Arc::clone(&before.openapi_v3);
            }
        }
    }

    /// A group in one version, if it has resources.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.versions
            .iter()
            .find(|known| known.group == group && known.version == version)
    }

    /// The resources of a group in one version.
    pub(crate) fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Shown> {
        let of = self.version(group, version).into_iter();
        of.flat_map(|of| of.resources(self))
    }

    /// The versions of a group.
    pub(crate) fn versions_of(&self, group: &str) -> impl Iterator<Item = &str> {
        self.versions
            .iter()
            .filter(move |known| known.group == group)
            .map(|known| &*known.version)
    }
}

impl GroupVersion {
    /// Its resources.
    pub(crate) fn resources<'a>(&'a self, of: &'a Published) -> impl Iterator<Item = &'a Shown> {
        self.places.iter().map(|place| &of.resources[*place])
    }
}

/// A document as it is sent, and its hash.
pub(crate) struct Tagged {
    pub(crate) body: Bytes,
    /// In quotes, as `ETag` has it.
    pub(crate) tag: String,
}

impl Tagged {
    pub(crate) fn of(document: String) -> Self {
        Self {
            tag: tag(document.as_bytes()),
            body: document.into(),
        }
    }
}

fn tag(document: &[u8]) -> String {
    format!("\"{}\"", hex::encode_upper(Sha256::digest(document)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_changed_is_not_made_again() {
        let kind = |group: &'static str, plural: &'static str| {
            Arc::new(ApiResource::new(group, "v1", plural.to_uppercase(), plural))
        };
        let published = |all: &[&Arc<ApiResource>], before: Option<&Published>| {
            let shown = all.iter().map(|info| Shown::new(Arc::clone(info), None));
            Published::new(shown.collect(), before)
        };
        let (same, old, new) = (kind("a", "as"), kind("b", "bs"), kind("b", "bs"));
        let more = kind("a", "more");
        let first = published(&[&same, &old], None);
        let is_kept = |after: &Published, group: &str| {
            let of = |from: &Published| Arc::clone(&from.version(group, "v1").unwrap().openapi_v3);
            Arc::ptr_eq(&of(&first), &of(after))
        };
        let second = published(&[&new, &same], Some(&first));
        assert!(is_kept(&second, "a") && !is_kept(&second, "b"));
        assert!(!is_kept(
            &published(&[&same, &more, &old], Some(&first)),
            "a"
        ));
        let resources = second.of_version("b", "v1");
        assert!(
            resources
                .map(|shown| &shown.info)
                .all(|info| Arc::ptr_eq(info, &new))
        );
    }
}
