//! Objects in one version of their kind, as webhooks and policies ask for them, and back.
//!
//! Those of a request are in the version of its URL if they are a custom resource's, and else in
//! the form in which they are stored. What a webhook converts is remembered as long as one plugin
//! looks at a write: many may ask for the same version.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    meta,
    resource::Gvk,
    schema::{self, Schema, Structural},
    status::Status,
};
use coracle_registry::{resource::Resource, scale, strategy::Subresource};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::criteria::Invocation;
use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
};

/// Most bytes of an object that was changed, as JSON: as many as a client may send.
const MOST_BYTES: usize = 3 << 20;

/// What is needed to show the objects of a request.
pub struct Forms {
    /// What the request is about, if objects of its kind are stored.
    own: Option<Arc<Resource>>,
    /// Whether the objects are of that kind, and not of one that is below it.
    is_own: bool,
    /// Whether they are shown as what is to be written of them: how many replicas there are to be.
    is_scale: bool,
    /// Whether it is new, and so shown without its identity to those that may change it.
    is_new: bool,
    /// Of a kind that a webhook converts, the latest last.
    known: Mutex<Vec<Known>>,
}

/// An object of the request in another version.
struct Known {
    own: Value,
    shown: Value,
}

/// What any object is of any kind.
static ANYTHING: LazyLock<Schema> = LazyLock::new(|| {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Schema::Structural(Structural::read(&schema).expect("it is structural"))
});

/// The old object and the new one in each of a few versions.
const MOST_KNOWN: usize = 8;

impl Forms {
    /// For the objects of a request.
    #[must_use]
    pub fn of(attributes: &Attributes<'_>, kinds: &dyn Kinds) -> Self {
        let info = attributes.resource;
        let own = kinds.at(&info.group, &info.version, &info.plural);
        Self {
            own,
            is_own: attributes.foreign_kind().is_none(),
            is_scale: attributes.subresource == Subresource::Scale.name(),
            is_new: is_new(attributes),
            known: Mutex::default(),
        }
    }

    /// An object of the request as who is invoked sees it.
    ///
    /// # Errors
    /// It cannot be had in that version.
    pub async fn shown<'a>(
        &self,
        invocation: &Invocation,
        object: &'a Value,
    ) -> Result<Cow<'a, Value>, Status> {
        let own = self.own.as_ref();
        if let Some(own) = own.filter(|_| self.is_scale && object.is_object()) {
            let paths = scale::paths(&*own.strategy);
            return Ok(Cow::Owned(scale::of(object, &paths)));
        }
        let Some(own) = own.filter(|_| self.is_own && object.is_object()) else {
            return Ok(Cow::Borrowed(object));
        };
        let as_kind = invocation.equivalent.as_ref().unwrap_or(own);
        if own.view.is_none() && object["apiVersion"] == as_kind.gvk.api_version() {
            return Ok(Cow::Borrowed(object));
        }
        if own.converted.is_none() {
            let shown = as_kind.shown_of_admitted(own, object.clone()).await?;
            return Ok(Cow::Owned(shown));
        }
        if let Some(known) = self.known(as_kind, object) {
            return Ok(Cow::Owned(known));
        }
        let shown = as_kind.shown_of_admitted(own, object.clone()).await?;
        self.remember(object.clone(), shown.clone());
        Ok(Cow::Owned(shown))
    }

    fn known(&self, as_kind: &Resource, object: &Value) -> Option<Value> {
        let version = as_kind.gvk.api_version();
        let known = self.known.lock();
        let found = known
            .iter()
            .rfind(|known| known.shown["apiVersion"] == version && known.own == *object);
        found.map(|known| known.shown.clone())
    }

    fn remember(&self, own: Value, shown: Value) {
        let mut known = self.known.lock();
        if known.len() == MOST_KNOWN {
            known.remove(0);
        }
        known.push(Known { own, shown });
    }

    /// What was made of such an object, as one that a client sends: of the right types, with its
    /// defaults, and pruned unless `unknown` says otherwise.
    ///
    /// # Errors
    /// What does not fit.
    pub fn decoded(
        &self,
        invocation: &Invocation,
        kind: &Gvk,
        object: &Value,
        unknown: FieldValidation,
    ) -> Result<Value, Status> {
        let body = serde_json::to_vec(object).map_err(Status::internal)?;
        // Each of those that change it may add megabytes, and the next one is sent all of them.
        if body.len() > MOST_BYTES {
            return Err(Status::request_entity_too_large(MOST_BYTES));
        }
        let json = ContentType::Json;
        let as_kind = match &invocation.equivalent {
            Some(other) => Some(other),
            None => self.own.as_ref(),
        };
        let as_kind = as_kind.filter(|_| self.is_own);
        if as_kind.is_none() && schema::table().by_gvk(kind).is_none() {
            return undescribed(object, kind);
        }
        let along = match self.is_renamed(invocation) {
            true => Some(&*ANYTHING),
            false => as_kind.and_then(|one| one.schema.as_ref()),
        };
        let decoded = match along {
            Some(schema) => decode::decode_along(schema, &body, json, kind, unknown)?,
            None => decode::decode(&body, json, kind, unknown)?,
        };
        let mut object = decoded.object;
        if let Some(kind) = as_kind {
            kind.strategy.default(&mut object);
        }
        Ok(object)
    }

    /// Whether another version is shown that differs by its name alone: then what only the
    /// request's knows is in it, too.
    fn is_renamed(&self, invocation: &Invocation) -> bool {
        let own = self.own.as_ref().filter(|_| self.is_own);
        invocation.equivalent.is_some()
            && own.is_some_and(|own| {
                let schema = own.schema.as_ref();
                own.converted.is_none()
                    && schema.is_some_and(|schema| schema.structural().is_some())
            })
    }

    /// What was shown and then changed, as the request has it, whose object is `before`; a new one
    /// has the identity that was hidden, whatever was said of it.
    ///
    /// # Errors
    /// It cannot be had in that version.
    pub async fn back(
        &self,
        invocation: &Invocation,
        mut object: Value,
        before: &Value,
    ) -> Result<Value, Status> {
        if self.is_new {
            show_identity(&mut object, before);
        }
        if let Some(own) = self.own.as_ref().filter(|_| self.is_scale) {
            let paths = scale::paths(&*own.strategy);
            return Ok(scale::written(&object, before, &paths));
        }
        let Some(own) = self.own.as_ref().filter(|_| self.is_own) else {
            return Ok(object);
        };
        if own.view.is_none() && object["apiVersion"] == before["apiVersion"] {
            return Ok(object);
        }
        let other = invocation.equivalent.as_ref().unwrap_or(own);
        if own.converted.is_none() {
            return own.admitted_of_shown(other, object, before).await;
        }
        let back = own.admitted_of_shown(other, object.clone(), before).await?;
        // The next who asks for this version is shown what this one has made of it.
        self.remember(back.clone(), object);
        Ok(back)
    }
}

/// Options of a stream, which nobody sends as an object: whoever goes by them takes what he knows.
fn undescribed(object: &Value, kind: &Gvk) -> Result<Value, Status> {
    let is = |field: &str, text: &str| object[field] == text;
    if is("kind", &kind.kind) && is("apiVersion", &kind.api_version()) {
        return Ok(object.clone());
    }
    let wanted = &kind.kind;
    let why = format!("the object provided is unrecognized (must be of type {wanted})");
    Err(Status::bad_request(why))
}

/// Keeps what no plugin may touch: who owns which field.
pub fn keep_managers(object: &mut Value, before: &Value) {
    let managers = before["metadata"].get("managedFields").cloned();
    match managers {
        Some(managers) => meta::set(object, &["metadata", "managedFields"], managers),
        None => {
            meta::remove(object, &["metadata", "managedFields"]);
        }
    }
}

/// What the system gives a new object: to those that change it, it has none of it yet.
const IDENTITY: [&str; 2] = ["uid", "creationTimestamp"];

/// Whether the object of a request is new, and not the options or a part of another one.
fn is_new(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Create && attributes.subresource.is_empty()
}

/// A new object as those see it that may change it.
pub fn hide_identity(attributes: &Attributes<'_>, object: &mut Value) {
    if is_new(attributes) {
        for field in IDENTITY {
            meta::remove(object, &["metadata", field]);
        }
    }
}

/// Gives it back what was hidden of `before`, whatever is said of it.
fn show_identity(object: &mut Value, before: &Value) {
    for field in IDENTITY {
        match before["metadata"].get(field) {
            Some(value) => meta::set(object, &["metadata", field], value.clone()),
            None => {
                meta::remove(object, &["metadata", field]);
            }
        }
    }
}
