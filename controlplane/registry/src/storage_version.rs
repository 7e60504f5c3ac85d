//! A kind of several versions is stored in one of them, and read and written in each.
//!
//! The conversion is `None`, as a CustomResourceDefinition calls it: `apiVersion` is replaced, and
//! what the version that an object comes to does not know is removed. Strategy, field managers and
//! admission see objects in the version of the request; only the text in the store is of another.
//!
//! What is stored may be older than the schema: as it is read, what its version does not know any
//! more is removed, and what has come to it since gets its defaults. That is done once for each
//! text, on its way into the cache; the store is written only when somebody writes the object.
//!
//! Not here: objects of one kind shown as another ([`View`](crate::strategy::View)), and versions
//! that a webhook turns into one another ([`crate::converter`]).
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/nop_converter.go`,
//! `schemaCoercingDecoder`, `schemaCoercingConverter` and `unstructuredDefaulter` in
//! `pkg/apiserver/customresource_handler.go` at v1.37.

use std::sync::Arc;

use coracle_api::schema::Structural;
use serde_json::Value;

use crate::{encode, watch_cache::Convert};

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
    pub(crate) fn of(&self, mut object: Value) -> Value {
        if object["apiVersion"] != self.api_version {
            object["apiVersion"] = self.api_version.as_str().into();
            self.schema.prune(&mut object);
        }
        object
    }

    /// Brings an object of this version in line with the schema as it is now.
    fn renew(&self, object: &mut Value) {
        self.schema.prune(object);
        self.schema.default(object);
    }
}

/// What is stored of a kind, and how it is read.
pub(crate) struct StoredVersions {
    /// What the cache holds.
    pub(crate) storage: Version,
    /// What has been the storage version, or may have been.
    pub(crate) others: Vec<Version>,
}

impl StoredVersions {
    /// Makes text as it would be stored now of text that was stored when the schema, or the storage
    /// version, was another one.
    pub(crate) fn convert(self) -> Convert {
        Arc::new(move |text| {
            // What is no JSON is for the cache to complain of.
            let mut object: Value = serde_json::from_slice(text).ok()?;
            object.is_object().then_some(())?;
            if let Some(own) = self.version_of(&object) {
                own.renew(&mut object);
            }
            let converted = encode::encode(&self.storage.of(object)).ok()?;
            (converted != text).then_some(converted)
        })
    }

    /// The same without another version: it stays in the one in which it was stored.
    pub(crate) fn renew(self) -> Convert {
        Arc::new(move |text| {
            let mut object: Value = serde_json::from_slice(text).ok()?;
            object.is_object().then_some(())?;
            self.version_of(&object)?.renew(&mut object);
            let renewed = encode::encode(&object).ok()?;
            (renewed != text).then_some(renewed)
        })
    }

    fn version_of(&self, object: &Value) -> Option<&Version> {
        std::iter::once(&self.storage)
            .chain(&self.others)
            .find(|version| object["apiVersion"] == version.api_version)
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

    fn convert(storage: Version, others: Vec<Version>) -> Convert {
        StoredVersions { storage, others }.convert()
    }

    #[test]
    fn text_that_fits_is_left_alone() {
        let convert = convert(version("example.org/v1", "old"), Vec::new());
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

    #[test]
    fn what_was_stored_under_an_older_schema_is_brought_in_line() {
        let schema = json!({"type": "object", "properties": {
            "both": {"type": "integer"}, "mode": {"type": "string", "default": "fast"}}});
        let v2 = Version {
            api_version: "example.org/v2".to_owned(),
            schema: Structural::read(&schema).unwrap(),
        };
        let read = |storage: &Version, others: &[Version], stored: Value| {
            let convert = convert(storage.clone(), others.to_vec());
            let converted = convert(stored.to_string().as_bytes()).unwrap();
            serde_json::from_slice::<Value>(&converted).unwrap()
        };
        let object = |api_version: &str, more: Value| {
            let mut object =
                json!({"kind": "A", "apiVersion": api_version, "metadata": {}, "both": 1});
            object
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            object
        };
        let old = object("example.org/v2", json!({"gone": true}));
        assert_eq!(
            read(&v2, &[], old.clone()),
            object("example.org/v2", json!({"mode": "fast"}))
        );
        // Its defaults are those of the version that it is stored in.
        let v1 = version("example.org/v1", "mode");
        assert_eq!(
            read(&v1, &[v2], old),
            object("example.org/v1", json!({"mode": "fast"}))
        );
    }
}
