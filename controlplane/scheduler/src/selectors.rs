//! What Services and controllers select by: pods that they select together are each other's like.
//!
//! Source: `DefaultSelector` in `pkg/scheduler/framework/plugins/helper/spread.go` at v1.37.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_api::selector::LabelSelector;

/// The kinds whose selectors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SelectorKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

/// Names one object that selects pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SelectorOwner {
    pub(crate) kind: SelectorKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Key and value to who asks for them first.
type ByLabel = HashMap<(String, String), Vec<Arc<LabelSelector>>>;

/// The selectors of Services and controllers, by namespace and first label.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    all: HashMap<SelectorOwner, Arc<LabelSelector>>,
    /// Services by their namespace and the first label that they ask for: of thousands a pod asks
    /// those few.
    services: HashMap<String, ByLabel>,
}

impl Selectors {
    /// Takes over what an object selects by; `None` if it selects nothing any more.
    pub(crate) fn set(&mut self, owner: SelectorOwner, selector: Option<Arc<LabelSelector>>) {
        let is_service = owner.kind == SelectorKind::Service;
        let old = match &selector {
            Some(selector) => self.all.insert(owner.clone(), selector.clone()),
            None => self.all.remove(&owner),
        };
        if !is_service || old == selector {
            return;
        }
        if let Some(old) = old {
            self.remove_service(&owner.namespace, &old);
        }
        if let Some(new) = selector
            && let Some(first) = first_label(&new)
        {
            self.services
                .entry(owner.namespace)
                .or_default()
                .entry(first)
                .or_default()
                .push(new);
        }
    }

    fn remove_service(&mut self, namespace: &str, selector: &LabelSelector) {
        let Some(first) = first_label(selector) else {
            return;
        };
        let Some(of_namespace) = self.services.get_mut(namespace) else {
            return;
        };
        if let Some(same) = of_namespace.get_mut(&first) {
            if let Some(position) = same.iter().position(|one| **one == *selector) {
                same.swap_remove(position);
            }
            if same.is_empty() {
                of_namespace.remove(&first);
            }
        }
        if of_namespace.is_empty() {
            self.services.remove(namespace);
        }
    }

    /// What selects the like of a pod: all its Services and its controller together. `None` if
    /// nobody selects it.
    pub(crate) fn of_similar(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        controller: Option<&SelectorOwner>,
    ) -> Option<LabelSelector> {
        let mut selector = LabelSelector::everything();
        if let Some(services) = self.services.get(namespace) {
            let asked = labels
                .iter()
                .filter_map(|(key, value)| services.get(&(key.clone(), value.clone())));
            for service in asked
                .flatten()
                .filter(|one| one.matches(|key| labels.get(key).map(String::as_str)))
            {
                selector.narrow(service);
            }
        }
        if let Some(controller) = controller.and_then(|controller| self.all.get(controller)) {
            selector.narrow(controller);
        }
        Some(selector).filter(|selector| !selector.is_everything())
    }
}

/// Of a Service's selector, which is one of labels alone.
fn first_label(selector: &LabelSelector) -> Option<(String, String)> {
    let first = selector.requirements().first()?;
    Some((first.key.clone(), first.values.first()?.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{pod_info::PodInfo, testing::pod_of};

    fn set(selectors: &mut Selectors, kind: SelectorKind, name: &str, selector: Option<Value>) {
        let owner = SelectorOwner {
            kind,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let selector = selector.map(|labels| Arc::new(LabelSelector::from_map(&labels)));
        selectors.set(owner, selector);
    }

    fn selected(selectors: &Selectors, pod: &PodInfo) -> Option<String> {
        let selector = selectors.of_similar(&pod.namespace, &pod.labels, pod.controller.as_ref());
        selector.map(|selector| selector.to_string())
    }

    fn pod(labels: Value, owner: Value) -> PodInfo {
        let metadata = json!({"name": "p", "namespace": "default", "uid": "u", "labels": labels, "ownerReferences": owner});
        pod_of(json!({"metadata": metadata, "spec": {"containers": []}}))
    }

    fn owner(api_version: &str, kind: &str, controller: bool) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "1", "controller": controller}])
    }

    /// Two Services that select pods of `web`, one without a selector, and a controller of each
    /// kind.
    fn some() -> Selectors {
        let mut selectors = Selectors::default();
        for (kind, name, selector) in [
            (SelectorKind::Service, "a", json!({"app": "web"})),
            (
                SelectorKind::Service,
                "b",
                json!({"app": "web", "tier": "front"}),
            ),
            (SelectorKind::Service, "all", json!({})),
            (
                SelectorKind::ReplicaSet,
                "x",
                json!({"app": "web", "hash": "1"}),
            ),
            (SelectorKind::StatefulSet, "x", json!({"set": "x"})),
            (SelectorKind::ReplicationController, "x", json!({"rc": "x"})),
        ] {
            set(&mut selectors, kind, name, Some(selector));
        }
        selectors
    }

    /// After the cases of `spread_test.go`.
    #[test]
    fn services_select_together() {
        let selectors = some();
        for (labels, expected) in [
            (json!({"app": "db"}), None),
            (json!({"app": "web"}), Some("app=web")),
            (
                json!({"app": "web", "tier": "front"}),
                Some("app=web,tier=front"),
            ),
        ] {
            let found = selected(&selectors, &pod(labels.clone(), json!([])));
            assert_eq!(found.as_deref(), expected, "{labels}");
        }
    }

    /// After the cases of `spread_test.go`.
    #[test]
    fn a_controller_selects_with_the_services() {
        let selectors = some();
        let (web, other) = (json!({"app": "web"}), json!({"a": "b"}));
        for (labels, version, kind, controller, expected) in [
            (&web, "apps/v1", "ReplicaSet", true, Some("app=web,hash=1")),
            (&web, "apps/v1", "ReplicaSet", false, Some("app=web")),
            (&web, "example.org/v1", "ReplicaSet", true, Some("app=web")),
            (&other, "apps/v1", "StatefulSet", true, Some("set=x")),
            (&other, "v1", "ReplicationController", true, Some("rc=x")),
            (&other, "batch/v1", "Job", true, None),
        ] {
            let owner = owner(version, kind, controller);
            let found = selected(&selectors, &pod(labels.clone(), owner.clone()));
            assert_eq!(found.as_deref(), expected, "{labels} {owner}");
        }
    }

    #[test]
    fn what_selects_no_more_is_forgotten() {
        let mut selectors = Selectors::default();
        let web = pod(json!({"app": "web", "tier": "front"}), json!([]));
        set(
            &mut selectors,
            SelectorKind::Service,
            "a",
            Some(json!({"app": "web"})),
        );
        set(
            &mut selectors,
            SelectorKind::Service,
            "b",
            Some(json!({"app": "web"})),
        );
        set(
            &mut selectors,
            SelectorKind::Service,
            "b",
            Some(json!({"tier": "front"})),
        );
        assert_eq!(
            selected(&selectors, &web).as_deref(),
            Some("app=web,tier=front")
        );
        set(&mut selectors, SelectorKind::Service, "a", None);
        assert_eq!(selected(&selectors, &web).as_deref(), Some("tier=front"));
        set(&mut selectors, SelectorKind::Service, "b", None);
        assert!(
            selected(&selectors, &web).is_none()
                && selectors.services.is_empty()
                && selectors.all.is_empty()
        );
    }
}
