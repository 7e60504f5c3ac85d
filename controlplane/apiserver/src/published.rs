//! What is told of the resources that are served, and the documents that tell it: discovery,
//! OpenAPI.
//!
//! Each document is made when it is first asked for, and kept as long as the resources are these.
//! What is in them is [`crate::discovery`]'s and [`crate::openapi`]'s to say.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    io::{Read as _, Write as _},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use coracle_api::{resource::Gvk, schema};
use coracle_registry::api_resource::{ApiResource, Text, VersionPriority};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A resource, as it is told of.
pub(crate) struct Shown {
    pub(crate) info: Arc<ApiResource>,
    /// `None` if its kind is in the schema table.
    pub(crate) definitions: Option<Arc<Definitions>>,
}

/// Makes schemas, each with its name, for a prefix of references.
type Schemas = dyn Fn(&str) -> Vec<(String, Value)> + Send + Sync;

/// What OpenAPI tells of a kind that the schema table does not have.
pub(crate) struct Definitions {
    /// What the kind is called among the schemas. Its list is called so too, with `List` behind it.
    pub(crate) name: String,
    /// The schemas by name. In them a reference is the given prefix and a name.
    pub(crate) schemas: Box<Schemas>,
    /// The types of the schema table that these refer to.
    pub(crate) foreign: Vec<schema::Type>,
}

impl Shown {
    /// What a kind is called among the schemas: this resource's, its list, or one of the table.
    pub(crate) fn schema_name(&self, group: &str, version: &str, kind: &str) -> Option<String> {
        let info = &self.info;
        let of_own = self
            .definitions
            .as_ref()
            .filter(|_| info.group == group && info.version == version);
        let own = of_own.and_then(|own| match kind.strip_prefix(&*info.kind)? {
            "" => Some(own.name.clone()),
            "List" => Some(format!("{}List", own.name)),
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
    pub(crate) json: OnceLock<Compressed>,
    pub(crate) protobuf: OnceLock<Compressed>,
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
    /// `/apis/GROUP/VERSION`: the legacy list of its resources.
    pub(crate) legacy: OnceLock<Bytes>,
    pub(crate) openapi_v3: OnceLock<Compressed>,
}

impl Published {
    pub(crate) fn new(resources: Vec<Shown>) -> Self {
        let (mut groups, mut versions) = (Vec::new(), Vec::new());
        let mut places: HashMap<Text, usize> = HashMap::new();
        let mut known: HashSet<(usize, Text)> = HashSet::new();
        for ApiResource { group, version, .. } in resources.iter().map(|shown| &*shown.info) {
            let place = *places.entry(group.clone()).or_insert_with(|| {
                groups.push(Group {
                    name: group.clone(),
                    legacy: OnceLock::new(),
                });
                groups.len() - 1
            });
            if known.insert((place, version.clone())) {
                versions.push(GroupVersion {
                    group: group.clone(),
                    version: version.clone(),
                    legacy: OnceLock::new(),
                    openapi_v3: OnceLock::new(),
                });
            }
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
        }
    }

    /// A group in one version, if it has resources.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.versions
            .iter()
            .find(|known| known.group == group && known.version == version)
    }

    /// The resources of a group in one version.
    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Shown> {
        self.resources
            .iter()
            .filter(move |shown| shown.info.group == group && shown.info.version == version)
    }

    /// The versions of a group.
    pub(crate) fn versions_of(&self, group: &str) -> impl Iterator<Item = &str> {
        self.versions
            .iter()
            .filter(move |known| known.group == group)
            .map(|known| &*known.version)
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

/// A large document as it is kept: a tenth of it.
pub(crate) struct Compressed {
    /// With gzip.
    pub(crate) gzip: Bytes,
    /// In quotes, as `ETag` has it.
    pub(crate) tag: String,
}

impl Compressed {
    pub(crate) fn of(document: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let gzip = encoder.write_all(document).and_then(|()| encoder.finish());
        Self {
            gzip: gzip.expect("a vector takes everything").into(),
            tag: tag(document),
        }
    }

    /// For the few clients that do not take gzip.
    pub(crate) fn plain(&self) -> Vec<u8> {
        let mut document = Vec::new();
        GzDecoder::new(&self.gzip[..])
            .read_to_end(&mut document)
            .expect("it was compressed here");
        document
    }
}
