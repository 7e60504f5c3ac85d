//! Objects between the forms in which clients, admission and the store have them.

use coracle_api::status::Status;
use serde_json::Value;

use super::Resource;

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
}
