//! A kind of several versions is stored in one of them, and read and written in each.
//!
//! The conversion is `None`, as a CustomResourceDefinition calls it: `apiVersion` is replaced, and
//! what the version that an object comes to does not know is removed. Strategy, field managers and
//! admission see objects in the version of the request; only the text in the store is of another.
//!
//! Not here: objects of one kind shown as another ([`View`](crate::strategy::View)).
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/nop_converter.go`,
//! `schemaCoercingConverter` in `pkg/apiserver/customresource_handler.go` at v1.37.

use std::sync::Arc;

use coracle_api::schema::Structural;
use serde_json::Value;

use crate::{encode, stored, watch_cache::Convert};

/// What a resource is stored as, if that is another version than its own.
pub struct StorageVersion {
    /// The resource's.
    pub(crate) own: Version,
    /// The store's.
    pub(crate) stored: Version,
}

impl StorageVersion {
    /// An object of the resource as it is stored.
    pub(crate) fn encoded(&self, object: Value) -> Value {
        self.stored.of(object)
    }

    /// A stored object as the resource has it.
    pub(crate) fn decoded(&self, object: Value) -> Value {
        self.own.of(object)
    }
}

/// One version of a kind.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) api_version: String,
    pub(crate) schema: Arc<Structural>,
}

impl Version {
    /// An object of any version in this one.
    fn of(&self, mut object: Value) -> Value {
        if object["apiVersion"] != self.api_version {
            object["apiVersion"] = self.api_version.as_str().into();
            self.schema.prune(&mut object);
        }
        object
    }

    /// Makes text of this version of text that was stored when another was the storage version.
    pub(crate) fn convert(self) -> Convert {
        Arc::new(move |text| {
            if stored::api_version(text) == Some(&self.api_version) {
                return None;
            }
            // What is no JSON is for the cache to complain of.
            let object: Value = serde_json::from_slice(text).ok()?;
            object.is_object().then_some(())?;
            encode::encode(&self.of(object)).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(api_version: &str, property: &str) -> Version {
        let schema = json!({"type": "object", "properties": {
            "both": {"type": "integer"}, property: {"type": "integer"}}});
        Version {
            api_version: api_version.to_owned(),
            schema: Structural::read(&schema).unwrap(),
        }
    }

    #[test]
    fn what_the_other_version_does_not_know_is_removed() {
        let both = StorageVersion {
            own: version("example.org/v2", "new"),
            stored: version("example.org/v1", "old"),
        };
        let of = |api_version: &str, property: &str| json!({"apiVersion": api_version, "kind": "A", "metadata": {}, "both": 1, property: 2});
        let without = |api_version: &str| json!({"apiVersion": api_version, "kind": "A", "metadata": {}, "both": 1});
        assert_eq!(
            both.encoded(of("example.org/v2", "new")),
            without("example.org/v1")
        );
        assert_eq!(
            both.decoded(of("example.org/v1", "old")),
            without("example.org/v2")
        );
        let own = of("example.org/v2", "new");
        assert_eq!(both.decoded(own.clone()), own);
    }

    #[test]
    fn text_of_the_storage_version_is_left_alone() {
        let convert = version("example.org/v1", "old").convert();
        let text = |version: &str| {
            format!(r#"{{"kind":"A","apiVersion":"{version}","metadata":{{}},"both":1}}"#)
        };
        assert_eq!(convert(text("example.org/v1").as_bytes()), None);
        let converted = convert(text("example.org/v2").as_bytes()).unwrap();
        assert_eq!(converted, text("example.org/v1"));
        for broken in ["", "[]", "{"] {
            assert_eq!(convert(broken.as_bytes()), None, "{broken}");
        }
    }
}
