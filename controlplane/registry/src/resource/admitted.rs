//! Objects between the forms in which clients, admission and the store have them.

use coracle_api::{schema::Schema, status::Status};
use serde_json::Value;

use super::Resource;
use crate::storage_version::Version;

impl Resource {
    /// A stored object as admission has it: in this resource's version, or for a view as it is
    /// stored.
    #[must_use]
    pub fn admitted(&self, stored: Value) -> Value {
        if self.view.is_some() {
            stored
        } else {
            self.shown(stored)
        }
    }

    /// An object as admission has it, as it is stored.
    #[must_use]
    pub fn stored_of_admitted(&self, object: Value) -> Value {
        match &self.stored_as {
            Some(version) => version.encoded(object),
            None => object,
        }
    }

    /// An object as clients have it, as it is stored.
    ///
    /// # Errors
    /// 422 for what the validation of a view says.
    pub fn stored_of_shown(&self, object: Value) -> Result<Value, Status> {
        match &self.view {
            Some(seen) => self.stored(seen, object),
            None => Ok(self.stored_of_admitted(object)),
        }
    }
    /// An object of `own` as admission has it, as this resource shows it, which shows the same
    /// objects.
    ///
    /// # Errors
    /// What the webhook says that converts it.
    pub async fn shown_of_admitted(&self, own: &Self, object: Value) -> Result<Value, Status> {
        match self.own_version() {
            Some(version) => own.in_version(object, &version).await,
            None => Ok(self.shown(own.stored_of_admitted(object))),
        }
    }

    /// The way back: an object that `other` shows, as admission has it of this resource, which
    /// has it in the version of `before`. What only another version knows than the one in which it
    /// is stored goes when it is stored.
    ///
    /// # Errors
    /// 422 for what the validation of a view says; what the webhook says that converts it.
    pub async fn admitted_of_shown(
        &self,
        other: &Self,
        object: Value,
        before: &Value,
    ) -> Result<Value, Status> {
        let Some(own) = self.own_version() else {
            return Ok(self.admitted(other.stored_of_shown(object)?));
        };
        // Who looks at metadata alone changes objects in the version in which they are stored.
        let mut others = self.as_stored.iter().filter_map(|one| one.own_version());
        let found = others.find(|version| before["apiVersion"] == version.api_version);
        let own = found.unwrap_or(own);
        let mut object = self.in_version(object, &own).await?;
        if self.stored_as.is_none() {
            own.schema.prune(&mut object);
        }
        Ok(object)
    }

    async fn in_version(&self, mut object: Value, version: &Version) -> Result<Value, Status> {
        if let Some(versions) = &self.converted {
            return versions.in_version(object, version).await;
        }
        // As upstream: all that the request's version knows is shown, and comes back.
        object["apiVersion"] = version.api_version.as_str().into();
        Ok(object)
    }

    /// The version that this is of a kind that may have several, whose objects are told by it.
    fn own_version(&self) -> Option<Version> {
        match self.schema.as_ref().filter(|_| self.is_storing())? {
            Schema::Structural(schema) => Some(Version {
                api_version: self.gvk.api_version(),
                schema: schema.clone(),
            }),
            Schema::BuiltIn(_) => None,
        }
    }
}
