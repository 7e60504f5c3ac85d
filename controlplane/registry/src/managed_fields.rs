//! Field managers: keeps `metadata.managedFields`, who owns which field, right on every write.
//!
//! What clients make is tracked from its creation on. What the cluster's own components make (the
//! pods of a ReplicaSet, Leases, Events) is not, and what they report in the status of pods and
//! nodes owns nothing: nobody applies those, and they are most of what is written and kept. An
//! object that was not tracked is from its first apply on; what it has then belongs to
//! `before-first-apply`, as upstream has it for objects it did not track.
//!
//! Of a kind of several versions, managers may own fields in each (`versions`).
//!
//! Source: `k8s.io/apimachinery/pkg/util/managedfields/internal/{skipnonapplied,fieldmanager}.go`
//! at v1.37.

mod versions;

use coracle_api::{
    meta,
    patch::apply::{Writer, apply_across, track, track_across},
    status::Status,
};
use parking_lot::Mutex;
use serde_json::Value;

use self::versions::{InVersions, Memory};
use super::{object_meta::metadata_mut, part::Part, resource::Resource, strategy::Subresource};

const FIELD: &str = "managedFields";
const BEFORE: &str = "before-first-apply";
/// Groups and kinds that components write all the time.
const HOT: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "nodes"),
    LEASES,
    EVENTS,
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
];
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");
/// As they are stored.
const EVENTS: (&str, &str) = ("", "events");

/// The manager of what a request writes: its name, and how it writes.
pub struct FieldManager {
    name: String,
    subresource: String,
    time: String,
    is_apply: bool,
    is_component: bool,
    memory: Mutex<Memory>,
}

impl FieldManager {
    /// The manager `name` that writes to `subresource`, now. `is_component` says that it is a part
    /// of the cluster.
    pub fn new(name: String, subresource: &str, is_component: bool) -> Self {
        Self {
            name,
            subresource: subresource.to_owned(),
            time: meta::now(),
            is_apply: false,
            is_component,
            memory: Mutex::default(),
        }
    }

    /// The same for server-side apply, which keeps the list itself.
    pub fn applying(self) -> Self {
        Self {
            is_apply: true,
            ..self
        }
    }

    /// Whether the object comes with the list it is to have.
    pub fn is_apply(&self) -> bool {
        self.is_apply
    }

    fn writer<'a>(&'a self, api_version: &'a str) -> Writer<'a> {
        Writer {
            manager: &self.name,
            api_version,
            subresource: &self.subresource,
            time: &self.time,
        }
    }

    /// Whether an object is left without managers when it is made.
    fn skips_new(&self, resource: &Resource) -> bool {
        self.is_component || [LEASES, EVENTS].contains(&kind(resource))
    }

    /// Sets the managers of a new object, which is defaulted. An applied one has them already.
    pub fn update_new(&self, resource: &Resource, object: &mut Value) {
        let schema = resource
            .schema
            .as_ref()
            .filter(|_| !self.is_apply && !self.skips_new(resource));
        let Some(schema) = schema else { return };
        let status = if has_status(resource) {
            object.as_object_mut().and_then(|map| map.remove("status"))
        } else {
            None
        };
        track(
            schema,
            None,
            object,
            self.writer(&resource.gvk.api_version()),
        );
        if let Some(status) = status {
            object["status"] = status;
        }
    }

    /// Converts the object to the version of a manager, if that is why something has failed; then
    /// it is to be tried again.
    pub async fn convert(&self, resource: &Resource) -> bool {
        versions::convert(&self.memory, resource).await
    }

    fn versions<'a>(&'a self, resource: &'a Resource) -> InVersions<'a> {
        InVersions {
            resource,
            memory: &self.memory,
            is_lenient: !self.is_apply,
        }
    }

    /// Sets the managers of a changed object. `given` is the list as the client sent it.
    ///
    /// # Errors
    /// Something is to be [converted](Self::convert) first.
    pub fn update(
        &self,
        resource: &Resource,
        part: Part,
        new: &mut Value,
        given: Option<Value>,
        old: &Value,
    ) -> Result<(), Status> {
        let given = given.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        if self.is_apply {
            set(new, given);
            return Ok(());
        }
        let present = old["metadata"].get(FIELD).filter(|list| list.is_array());
        let is_quiet = self.is_component && (part != Part::Main || HOT.contains(&kind(resource)));
        let given = given.filter(|_| part == Part::Main);
        let schema = resource
            .schema
            .as_ref()
            .filter(|_| !is_quiet && (present.is_some() || given.is_some()));
        let Some(schema) = schema else {
            set(new, present.cloned());
            return Ok(());
        };
        set(new, given);
        let api_version = resource.gvk.api_version();
        let (writer, versions) = (self.writer(&api_version), self.versions(resource));
        track_across(&versions, schema, (Some(old), new), writer)
    }

    /// `live` with `config` applied.
    ///
    /// # Errors
    /// 409 with the conflicts unless `force`; something is to be [converted](Self::convert) first,
    /// or cannot be.
    pub fn apply(
        &self,
        resource: &Resource,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, Status> {
        let Some(schema) = &resource.schema else {
            return Err(Status::no_such_path());
        };
        let api_version = resource.gvk.api_version();
        let writer = self.writer(&api_version);
        let versions = self.versions(resource);
        let untracked = live.filter(|live| meta::get_array(live, &["metadata", FIELD]).is_empty());
        let Some(untracked) = untracked else {
            return apply_across(&versions, schema, (live, config), writer, force);
        };
        let mut tracked = untracked.clone();
        track(
            schema,
            None,
            &mut tracked,
            Writer {
                manager: BEFORE,
                subresource: "",
                ..writer
            },
        );
        apply_across(&versions, schema, (Some(&tracked), config), writer, force)
    }
}

fn kind(resource: &Resource) -> (&str, &str) {
    (&resource.info.group, &resource.info.plural)
}

/// Whether the kind's status is written through its own subresource only.
pub fn has_status(resource: &Resource) -> bool {
    resource.info.subresources.contains(&Subresource::Status)
}

/// Takes the list out of an object.
pub fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove(FIELD)
}

/// Puts the list into an object, or takes it out.
pub fn set(object: &mut Value, list: Option<Value>) {
    let metadata = metadata_mut(object);
    match list {
        Some(list) => drop(metadata.insert(FIELD.to_owned(), list)),
        None => drop(metadata.remove(FIELD)),
    }
}
