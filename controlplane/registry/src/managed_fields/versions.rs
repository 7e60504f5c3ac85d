//! Objects in the versions in which their managers own fields.
//!
//! Who owns what is worked out without waiting for anybody. Where a webhook has to convert an
//! object first, that ends early and says what is missing; then that is converted, and it is worked
//! out again with all that is known by then.

use coracle_api::{
    patch::apply::versions::{Form, Versions},
    status::Status,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{resource::Resource, storage_version::Version};

/// Conversions that one write waits for: more than the versions of any kind need.
const MOST: usize = 256;

/// What was converted for one write, and what is missing.
#[derive(Default)]
pub(super) struct Memory {
    known: Vec<Known>,
    missing: Option<Wanted>,
}

struct Wanted {
    object: Value,
    api_version: String,
}

struct Known {
    of: Wanted,
    form: Result<Form, Status>,
}

/// The versions of a resource's kind, for one write.
pub(super) struct InVersions<'a> {
    pub(super) resource: &'a Resource,
    pub(super) memory: &'a Mutex<Memory>,
    /// Whether a write goes on where a version cannot be had: its managers keep what they own.
    pub(super) is_lenient: bool,
}

impl InVersions<'_> {
    /// What a webhook has made of an object.
    fn converted(&self, object: &Value, api_version: &str) -> Result<Form, Status> {
        let mut memory = self.memory.lock();
        let is_it = |known: &&Known| known.of.is(object, api_version);
        if let Some(known) = memory.known.iter().find(is_it) {
            return match &known.form {
                Err(_) if self.is_lenient => Ok(Form::Unseen),
                form => form.clone(),
            };
        }
        memory.missing = Some(Wanted {
            object: object.clone(),
            api_version: api_version.to_owned(),
        });
        Err(Status::internal(format_args!(
            "the object in {api_version} is missing"
        )))
    }
}

impl Versions for InVersions<'_> {
    fn form(&self, object: &Value, api_version: &str) -> Result<Form, Status> {
        let Some(versions) = &self.resource.versions else {
            return Ok(Form::Unseen);
        };
        let Some(version) = find(versions, api_version) else {
            return Ok(Form::Gone);
        };
        if self.resource.converted.is_some() {
            return self.converted(object, api_version);
        }
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(Form::Other(object, version.schema.clone()))
    }

    fn is_one(&self) -> bool {
        let schema = self.resource.schema.as_ref();
        schema.is_none_or(|schema| schema.structural().is_none())
    }
}

impl Wanted {
    fn is(&self, object: &Value, api_version: &str) -> bool {
        self.api_version == api_version && self.object == *object
    }
}

fn find<'a>(versions: &'a [Version], api_version: &str) -> Option<&'a Version> {
    let mut all = versions.iter();
    all.find(|version| version.api_version == api_version)
}

/// Converts what is missing; whether anything was.
pub(super) async fn convert(memory: &Mutex<Memory>, resource: &Resource) -> bool {
    let missing = memory.lock().missing.take();
    let versions = (&resource.versions, &resource.converted);
    let (Some(wanted), (Some(versions), Some(converted))) = (missing, versions) else {
        return false;
    };
    let Some(version) = find(versions, &wanted.api_version) else {
        return false;
    };
    let made = converted.in_version(wanted.object.clone(), version).await;
    if let Err(status) = &made {
        let (of, why) = (&wanted.api_version, &status.message);
        tracing::warn!(
            version = of,
            why,
            "what field managers own cannot be looked at"
        );
    }
    let mut memory = memory.lock();
    memory.known.push(Known {
        of: wanted,
        form: made.map(|object| Form::Other(object, version.schema.clone())),
    });
    memory.known.len() < MOST
}
