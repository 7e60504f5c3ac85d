//! Objects in one version of their kind, as webhooks and policies ask for them, and back.
//!
//! Those of a request are in the version of its URL if they are a custom resource's, and else in
//! the form in which they are stored.

use std::{borrow::Cow, sync::Arc};

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    meta,
    resource::Gvk,
    status::Status,
};
use coracle_registry::{resource::Resource, scale, strategy::Subresource};
use serde_json::Value;

use super::criteria::Invocation;
use crate::{attributes::Attributes, kinds::Kinds};

/// What is needed to show the objects of a request.
pub struct Forms {
    /// What the request is about, if objects of its kind are stored.
    own: Option<Arc<Resource>>,
    /// Whether the objects are of that kind, and not of one that is below it.
    is_own: bool,
    /// Whether they are shown as what is to be written of them: how many replicas there are to be.
    is_scale: bool,
}

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
        }
    }

    /// An object of the request as who is invoked sees it.
    ///
    /// # Errors
    /// It cannot be had in that version.
    pub fn shown<'a>(
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
        Ok(match &invocation.equivalent {
            Some(other) => Cow::Owned(other.shown(own.stored_of_admitted(object.clone()))),
            None if own.view.is_some() => Cow::Owned(own.shown(object.clone())),
            None => Cow::Borrowed(object),
        })
    }

    /// What was made of such an object, as one that a client sends: pruned, of the right types,
    /// with its defaults.
    ///
    /// # Errors
    /// What does not fit.
    pub fn decoded(
        &self,
        invocation: &Invocation,
        kind: &Gvk,
        object: &Value,
    ) -> Result<Value, Status> {
        let body = serde_json::to_vec(object).map_err(Status::internal)?;
        let (json, lenient) = (ContentType::Json, FieldValidation::Ignore);
        let as_kind = match &invocation.equivalent {
            Some(other) => Some(other),
            None => self.own.as_ref(),
        };
        let as_kind = as_kind.filter(|_| self.is_own);
        let decoded = match as_kind.and_then(|one| one.schema.as_ref()) {
            Some(schema) => decode::decode_along(schema, &body, json, kind, lenient)?,
            None => decode::decode(&body, json, kind, lenient)?,
        };
        let mut object = decoded.object;
        if let Some(kind) = as_kind {
            kind.strategy.default(&mut object);
        }
        Ok(object)
    }

    /// What was shown and then changed, as the request has it, whose object is `before`.
    ///
    /// # Errors
    /// It cannot be had in that version.
    pub fn back(
        &self,
        invocation: &Invocation,
        object: Value,
        before: &Value,
    ) -> Result<Value, Status> {
        if let Some(own) = self.own.as_ref().filter(|_| self.is_scale) {
            let paths = scale::paths(&*own.strategy);
            return Ok(scale::written(&object, before, &paths));
        }
        let Some(own) = self.own.as_ref().filter(|_| self.is_own) else {
            return Ok(object);
        };
        match &invocation.equivalent {
            Some(other) => Ok(own.admitted(other.stored_of_shown(object)?)),
            None if own.view.is_some() => own.stored_of_shown(object),
            None => Ok(object),
        }
    }
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
