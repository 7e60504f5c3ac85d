//! Services and controllers, of which nothing is read or held but their names and what they select
//! by.

use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use coracle_api::selector::LabelSelector;
use coracle_client::{cache::Change, informers::Informers};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, StatefulSet},
        core::v1::{ReplicationController, Service},
    },
};
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Inbox, SyncEvent};
use crate::selectors::{SelectorKind, SelectorOwner};

/// A kind that selects pods.
pub(super) trait Selects:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static
{
    const KIND: SelectorKind;

    /// From `spec.selector`; `None` if that selects nothing.
    fn selector(selector: &Value) -> Option<LabelSelector>;
}

impl Selects for Service {
    const KIND: SelectorKind = SelectorKind::Service;

    fn selector(selector: &Value) -> Option<LabelSelector> {
        of_labels(selector)
    }
}

impl Selects for ReplicationController {
    const KIND: SelectorKind = SelectorKind::ReplicationController;

    fn selector(selector: &Value) -> Option<LabelSelector> {
        of_labels(selector)
    }
}

impl Selects for ReplicaSet {
    const KIND: SelectorKind = SelectorKind::ReplicaSet;

    fn selector(selector: &Value) -> Option<LabelSelector> {
        LabelSelector::from_object(selector).ok()
    }
}

impl Selects for StatefulSet {
    const KIND: SelectorKind = SelectorKind::StatefulSet;

    fn selector(selector: &Value) -> Option<LabelSelector> {
        LabelSelector::from_object(selector).ok()
    }
}

fn of_labels(selector: &Value) -> Option<LabelSelector> {
    Some(LabelSelector::from_map(selector)).filter(|selector| !selector.is_everything())
}

/// An object of kind `K`, as far as it matters.
pub(super) struct Selecting<K> {
    metadata: ObjectMeta,
    selector: Option<Arc<LabelSelector>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Selecting<K> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            selector: self.selector.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Selecting<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selecting")
            .field("name", &self.metadata.name)
            .field("selector", &self.selector)
            .finish()
    }
}

#[derive(Deserialize)]
struct Narrow {
    metadata: Named,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    selector: Value,
}

impl<'de, K: Selects> Deserialize<'de> for Selecting<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Narrow {
            metadata:
                Named {
                    name,
                    namespace,
                    uid,
                    resource_version,
                },
            spec,
        } = Narrow::deserialize(deserializer)?;
        let metadata = ObjectMeta {
            name,
            namespace,
            uid,
            resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self {
            metadata,
            selector: K::selector(&spec.selector).map(Arc::new),
            kind: PhantomData,
        })
    }
}

impl<K: Selects> Resource for Selecting<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Adds the informer of all of kind `K` that select something.
pub(super) fn follow<K: Selects>(informers: Informers, inbox: &Arc<Inbox>) -> Informers {
    let mut informers = informers.only(|one: &Selecting<K>| one.selector.is_some());
    let inbox = inbox.clone();
    informers
        .of()
        .on_change(move |change: &Change<'_, Selecting<K>>| {
            let one = change.latest();
            let owner = SelectorOwner {
                kind: K::KIND,
                namespace: one.metadata.namespace.clone().unwrap_or_default(),
                name: one.metadata.name.clone().unwrap_or_default(),
            };
            match change {
                // Most changes are of its status.
                Change::Updated { old, new } if old.selector == new.selector => {}
                Change::Added(_) | Change::Updated { .. } => {
                    inbox.put(SyncEvent::Selects(owner, one.selector.clone()))
                }
                Change::Deleted(_) => inbox.put(SyncEvent::Selects(owner, None)),
            }
        });
    informers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_an_object_only_what_it_selects_by_is_held() {
        fn read<K: Selects>(spec: Value) -> Option<String> {
            let metadata = json!({"name": "n", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]});
            let one: Selecting<K> =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {}}))
                    .expect("an object");
            assert_eq!(
                (one.metadata.labels, one.metadata.managed_fields),
                (None, None)
            );
            one.selector.map(|selector| selector.to_string())
        }
        let expressions =
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}});
        assert_eq!(
            read::<Service>(json!({"selector": {"a": "b"}})).as_deref(),
            Some("a=b")
        );
        assert_eq!(
            read::<Service>(json!({"ports": [], "externalName": "x"})),
            None
        );
        assert_eq!(
            read::<ReplicationController>(json!({"selector": {"a": "b"}})).as_deref(),
            Some("a=b")
        );
        assert_eq!(
            read::<ReplicaSet>(json!({"selector": {"matchLabels": {"a": "b"}}})).as_deref(),
            Some("a=b")
        );
        assert_eq!(read::<StatefulSet>(expressions).as_deref(), Some("a"));
    }
}
