//! Objects of which only a part is kept: what nobody reads takes no memory.

use std::{borrow::Cow, marker::PhantomData};

use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// What is kept of an object of kind `O`: `T`, and of its metadata what tells it from others.
#[derive(Debug, Clone)]
pub struct Part<O, T> {
    /// Name, namespace, uid and resourceVersion, unless `T` [reads](ReadPart) more of it.
    pub metadata: ObjectMeta,
    /// What is read of it.
    pub part: T,
    of: PhantomData<fn() -> O>,
}

impl<O: Resource, T: From<O>> Part<O, T> {
    /// Of an object.
    pub fn of(mut object: O) -> Self {
        let meta = object.meta_mut();
        meta.managed_fields = None;
        let metadata = ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectMeta::default()
        };
        Self {
            metadata,
            part: T::from(object),
            of: PhantomData,
        }
    }
}

/// What can be read of an object of kind `O`.
pub trait ReadPart<O>: Sized {
    /// Reads it and the metadata.
    ///
    /// # Errors
    /// It is no such object.
    fn read<'de, D: Deserializer<'de>>(object: D) -> Result<(ObjectMeta, Self), D::Error>;
}

/// By way of the whole object.
impl<O: Resource + DeserializeOwned, T: From<O>> ReadPart<O> for T {
    fn read<'de, D: Deserializer<'de>>(object: D) -> Result<(ObjectMeta, Self), D::Error> {
        let Part { metadata, part, .. } = Part::of(O::deserialize(object)?);
        Ok((metadata, part))
    }
}

impl<'de, O, T: ReadPart<O>> Deserialize<'de> for Part<O, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (metadata, part) = T::read(deserializer)?;
        Ok(Self {
            metadata,
            part,
            of: PhantomData,
        })
    }
}

impl<O: Resource, T> Resource for Part<O, T> {
    type DynamicType = O::DynamicType;
    type Scope = O::Scope;

    fn kind(kind: &O::DynamicType) -> Cow<'_, str> {
        O::kind(kind)
    }

    fn group(kind: &O::DynamicType) -> Cow<'_, str> {
        O::group(kind)
    }

    fn version(kind: &O::DynamicType) -> Cow<'_, str> {
        O::version(kind)
    }

    fn plural(kind: &O::DynamicType) -> Cow<'_, str> {
        O::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::cache::Key;

    struct Count(usize);

    impl From<ConfigMap> for Count {
        fn from(map: ConfigMap) -> Self {
            assert_eq!(map.metadata.managed_fields, None);
            Self(map.data.map_or(0, |data| data.len()))
        }
    }

    #[test]
    fn a_part_is_found_as_the_object_is_and_has_nothing_else_of_it() {
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "labels": {"l": "v"}, "managedFields": [{"manager": "m"}]});
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"x": "1", "y": "2"}});
        let part: Part<ConfigMap, Count> = serde_json::from_value(map).unwrap();
        assert_eq!((part.part.0, Key::of(&part)), (2, Key::new("ns", "a")));
        let kept = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"});
        assert_eq!(serde_json::to_value(part.meta()).unwrap(), kept);
        assert_eq!(Part::<ConfigMap, Count>::plural(&()), "configmaps");
    }
}
