//! Who is woken by a change of an object that others control, or select.
//!
//! Source: `addPod`, `updatePod`, `deletePod` in `pkg/controller/replicaset/replica_set.go` at
//! v1.37, which every controller of owned objects repeats.

use std::{collections::BTreeMap, sync::Arc};

use kube::api::ObjectMeta;

use super::Queue;
use crate::{
    cache::{
        Cache, Change, Key,
        labels::{Selecting, SelectorOf},
        owner::{controller_of, owner_key, selector_of},
    },
    informers::Kind,
};

/// The objects that may control others: `O`s.
pub(super) struct Owners<O> {
    selecting: Selecting<O>,
    selector: SelectorOf<O>,
}

impl<O: Kind> Owners<O> {
    pub(super) fn of(cache: &Arc<Cache<O>>, selector: SelectorOf<O>) -> Self {
        Self {
            selecting: Selecting::of(cache, selector),
            selector,
        }
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
                    self.wake_adopters(object.meta(), queue);
                }
            }
        }
    }

    /// An orphan may be adopted by any that selects it, unless that would adopt everything.
    fn wake_adopters(&self, orphan: &ObjectMeta, queue: &Queue) {
        if orphan.labels.as_ref().is_none_or(BTreeMap::is_empty) {
            return;
        }
        for owner in self.selecting.get(orphan) {
            let selector = (self.selector)(&owner);
            if selector.as_deref().and_then(selector_of).is_some() {
                queue.add(Key::of(owner.as_ref()));
            }
        }
    }
}

/// Wakes what selects an object, and what did before its labels changed.
pub(super) fn wake_selecting<S: Kind, K: Kind>(
    selecting: &Selecting<S>,
    change: &Change<'_, K>,
    queue: &Queue,
) {
    let wake = |object: &K| {
        let selecting = selecting.get(object.meta()).into_iter();
        selecting.for_each(|other| queue.add(Key::of(other.as_ref())));
    };
    wake(change.latest());
    if let Change::Updated { old, new } = change
        && old.meta().labels != new.meta().labels
    {
        wake(old);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use coracle_telemetry::metrics::MetricsRegistry;
    use futures::FutureExt;
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
    use serde_json::json;

    use super::*;
    use crate::{cache::Writer, reflector::Event};

    fn pod(owner: Option<(&str, &str, &str)>, app: &str, version: u32) -> Arc<Pod> {
        let reference = owner.map(|(kind, api, name)| {
            json!([{"kind": kind, "apiVersion": api, "name": name, "uid": name, "controller": true}])
        });
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": version.to_string(),
            "labels": {"app": app}, "ownerReferences": reference});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    const SELECTOR: SelectorOf<ReplicaSet> = |rs| Some(Cow::Borrowed(&rs.spec.selector));

    /// ReplicaSets `web` and `db`, which select by the label `app`, and another `web` elsewhere.
    fn replica_sets() -> Arc<Cache<ReplicaSet>> {
        let (cache, mut writer) = (Arc::new(Cache::<ReplicaSet>::new()), Writer::new());
        for (namespace, app) in [("ns", "web"), ("ns", "db"), ("other", "web")] {
            let rs = json!({"metadata": {"namespace": namespace, "name": app},
                "spec": {"selector": {"matchLabels": {"app": app}}}});
            let rs = Event::Apply(serde_json::from_value(rs).unwrap());
            writer.apply(&cache, rs, |_| {});
        }
        cache
    }

    /// The names of those in `ns` who are woken by what becomes of a pod.
    fn woken(
        before: Option<Arc<Pod>>,
        after: Option<Arc<Pod>>,
        wake: impl Fn(&Change<'_, Pod>, &Queue),
    ) -> String {
        let change = match (&before, &after) {
            (Some(old), Some(new)) => Change::Updated { old, new },
            (None, Some(new)) => Change::Added(new),
            (Some(old), None) => Change::Deleted(old),
            (None, None) => panic!("there is no change"),
        };
        let queue = Queue::named(&MetricsRegistry::default(), "test");
        wake(&change, &queue);
        let next = || queue.next().now_or_never().flatten();
        let keys = std::iter::from_fn(next).map(|key| {
            assert_eq!(key.namespace, "ns", "{key}");
            key.name
        });
        keys.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_selects_and_who_did_hears_of_a_change() {
        let selecting = Selecting::of(&replica_sets(), SELECTOR);
        let table = [
            (None, Some("web"), "web"),
            (Some("web"), Some("web"), "web"),
            (Some("web"), Some("db"), "db web"),
            (Some("web"), Some("cache"), "web"),
            (Some("db"), None, "db"),
            (None, Some("cache"), ""),
        ];
        for (before, after, expected) in table {
            let old = before.map(|app| pod(None, app, 1));
            let new = after.map(|app| pod(None, app, 2));
            let wake = |change: &Change<'_, Pod>, queue: &Queue| {
                wake_selecting(&selecting, change, queue);
            };
            assert_eq!(woken(old, new, wake), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn an_owner_hears_of_its_own_and_of_what_it_may_adopt() {
        let owners = Owners::of(&replica_sets(), SELECTOR);
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
            let wake = |change: &Change<'_, Pod>, queue: &Queue| owners.wake(change, queue);
            assert_eq!(woken(before, after, wake), expected, "{why}");
        }
    }
}
