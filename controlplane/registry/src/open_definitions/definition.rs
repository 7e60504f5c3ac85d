//! What a kind that comes at run time knows of its definition.

use std::sync::Arc;

use coracle_api::meta;
use serde_json::Value;

const PREFIX: &str = "/registry/open-definitions/";

/// The definition of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Such as `widgets.example.org`.
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The key that is there as long as it takes new objects.
    pub(crate) key: Arc<str>,
}

impl Definition {
    /// Of a CustomResourceDefinition.
    #[must_use]
    pub fn of(definition: &Value) -> Self {
        let (name, uid) = (meta::name(definition), meta::uid(definition));
        Self {
            key: format!("{PREFIX}{name}/{uid}").into(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }
}
