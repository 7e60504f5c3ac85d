//! Who is woken by a change of an object that others control.
//!
//! Source: `addPod`, `updatePod`, `deletePod` in `pkg/controller/replicaset/replica_set.go` at
//! v1.37, which every controller of owned objects repeats.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::SelectorExt;

use super::Queue;
use crate::{
    cache::{
        By, Change, Index, Key,
        labels::{pair_key, pair_of, selecting},
        owner::{controller_of, owner_key, selector_of},
    },
    informers::Kind,
};

/// The objects that may control others: `O`s.
pub(super) struct Owners<O> {
    selecting: By<O>,
    selector: fn(&O) -> Option<&LabelSelector>,
}

impl<O: Kind> Owners<O> {
    /// `selecting` is by [`Owners::index`] of the same selector.
    pub(super) fn new(selecting: By<O>, selector: fn(&O) -> Option<&LabelSelector>) -> Self {
        Self {
            selecting,
            selector,
        }
    }

    /// The owners by what they select.
    pub(super) fn index(selector: fn(&O) -> Option<&LabelSelector>) -> Index<O> {
        Index::new("selects", move |owner: &O, put| {
            let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
            put(&pair_key(namespace, selector(owner).and_then(pair_of)));
        })
    }

    pub(super) fn wake<K: Kind>(&self, change: &Change<'_, K>, queue: &Queue) {
        let object = change.latest();
        let before = if let Change::Updated { old, .. } = change {
            Some(old)
        } else {
            None
        };
        let (owner, former) = (
            owner_key::<O>(&**object),
            before.and_then(|old| owner_key::<O>(&***old)),
        );
        if let Some(former) = former.clone().filter(|_| former != owner) {
            queue.add(former);
        }
        match owner {
            Some(owner) => queue.add(owner),
            None if matches!(change, Change::Deleted(_))
                || controller_of(object.meta()).is_some() => {}
            None => {
                let was_controlled = |old: &Arc<K>| controller_of(old.meta()).is_some();
                if before.is_none_or(|old| {
                    was_controlled(old) || old.meta().labels != object.meta().labels
                }) {
                    self.wake_adopters(
                        object.meta().namespace.as_deref(),
                        object.meta().labels.as_ref(),
                        queue,
                    );
                }
            }
        }
    }

    /// An orphan may be adopted by any that selects it.
    fn wake_adopters(
        &self,
        namespace: Option<&str>,
        labels: Option<&BTreeMap<String, String>>,
        queue: &Queue,
    ) {
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else {
            return;
        };
        for owner in selecting(&self.selecting, namespace.unwrap_or_default(), labels) {
            let selector = (self.selector)(&owner).and_then(selector_of);
            if selector.is_some_and(|selector| selector.matches(labels)) {
                queue.add(Key::of(owner.as_ref()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_telemetry::metrics::MetricsRegistry;
    use futures::FutureExt;
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
    use serde_json::json;

    use super::*;
    use crate::{
        cache::{Cache, Writer},
        reflector::Event,
    };

    fn pod(owner: Option<(&str, &str, &str)>, app: &str, version: u32) -> Arc<Pod> {
        let reference = owner.map(|(kind, api, name)| {
            json!([{"kind": kind, "apiVersion": api, "name": name, "uid": name, "controller": true}])
        });
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": version.to_string(),
            "labels": {"app": app}, "ownerReferences": reference});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn an_owner_hears_of_its_own_and_of_what_it_may_adopt() {
        let selector: fn(&ReplicaSet) -> Option<&LabelSelector> = |rs| Some(&rs.spec.selector);
        let (cache, mut writer) = (Arc::new(Cache::<ReplicaSet>::new()), Writer::new());
        for (namespace, name, app) in [
            ("ns", "web", "web"),
            ("ns", "db", "db"),
            ("other", "web", "web"),
        ] {
            let rs = json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"selector": {"matchLabels": {"app": app}}}});
            writer.apply(
                &cache,
                Event::Apply(serde_json::from_value(rs).unwrap()),
                |_| {},
            );
        }
        let owners = Owners::new(cache.index(Owners::index(selector)), selector);
        let of =
            |kind: &'static str, api: &'static str, name: &'static str| Some((kind, api, name));
        let (web, db) = (
            of("ReplicaSet", "apps/v1", "web"),
            of("ReplicaSet", "apps/v1", "db"),
        );
        let (later, other_group) = (
            of("ReplicaSet", "apps/v2", "web"),
            of("ReplicaSet", "a.io/v1", "web"),
        );
        let other_kind = of("Job", "batch/v1", "web");
        // The controller and the label, before and after.
        let table = [
            ("owned", None, Some((web, "web")), "web"),
            (
                "owned in a version to come",
                None,
                Some((later, "web")),
                "web",
            ),
            (
                "owned by one of another group",
                None,
                Some((other_group, "web")),
                "",
            ),
            (
                "owned by one of another kind",
                None,
                Some((other_kind, "web")),
                "",
            ),
            ("changed", Some((web, "web")), Some((web, "db")), "web"),
            ("gone", Some((web, "web")), None, "web"),
            (
                "handed over",
                Some((db, "web")),
                Some((web, "web")),
                "db web",
            ),
            ("an orphan", None, Some((None, "web")), "web"),
            (
                "an orphan, as it was",
                Some((None, "web")),
                Some((None, "web")),
                "",
            ),
            (
                "an orphan with other labels",
                Some((None, "web")),
                Some((None, "db")),
                "db",
            ),
            ("let go", Some((web, "db")), Some((None, "db")), "web db"),
            ("an orphan that is gone", Some((None, "web")), None, ""),
        ];
        for (why, before, after, expected) in table {
            let made = |(owner, app), version| pod(owner, app, version);
            let (before, after) = (before.map(|it| made(it, 1)), after.map(|it| made(it, 2)));
            let queue = Queue::named(&MetricsRegistry::default(), "test");
            let change = match (&before, &after) {
                (Some(old), Some(new)) => Change::Updated { old, new },
                (None, Some(new)) => Change::Added(new),
                (Some(old), None) => Change::Deleted(old),
                (None, None) => continue,
            };
            owners.wake(&change, &queue);
            let next = || queue.next().now_or_never().flatten();
            let woken: Vec<String> = std::iter::from_fn(next)
                .map(|key| key.to_string())
                .collect();
            let expected: Vec<String> = expected
                .split_whitespace()
                .map(|name| format!("ns/{name}"))
                .collect();
            assert_eq!(woken, expected, "{why}");
        }
    }
}
