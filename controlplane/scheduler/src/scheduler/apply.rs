//! What the informers tell: it changes the cache, and lets pods go on that it may help.

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;

use super::Scheduler;
use crate::{
    framework::ClusterEvent,
    pod_info::{PodInfo, PodUid},
    storage::StorageObject,
    sync::SyncEvent,
};

impl Scheduler {
    pub(crate) fn apply(&mut self, event: SyncEvent) {
        match event {
            SyncEvent::PodApplied(pod) => self.pod_applied(pod),
            SyncEvent::PodGone(uid) => self.pod_gone(&uid),
            SyncEvent::NodeApplied(node) => self.node_applied(&node),
            SyncEvent::NodeGone(name) => self.node_gone(&name),
            SyncEvent::NamespaceApplied(namespace) => self.namespace_applied(&namespace),
            SyncEvent::NamespaceGone(name) => self.cache.remove_namespace(&name),
            // It changes how well nodes suit, and none from no to yes: nobody has to be tried
            // again.
            SyncEvent::Selects(owner, selector) => self.cache.set_selector(owner, selector),
            SyncEvent::Budget(key, budget) => self.cache.set_budget(&key, budget.as_deref()),
            SyncEvent::StorageApplied(object) => self.storage_applied(&object),
            SyncEvent::StorageGone(object) => self.storage_gone(&object),
        }
    }

    fn node_applied(&mut self, node: &Arc<Node>) {
        let old = self.cache.set_node(node);
        self.cache.keep_object(node.clone());
        let Some(new) = node
            .metadata
            .name
            .as_deref()
            .and_then(|name| self.cache.snapshot().node(name))
        else {
            return;
        };
        if old.as_ref().is_none_or(|old| old.labels != new.labels) {
            self.storage
                .tell_if_asked(|bindings| bindings.node_changed(&new.name, Some(new)));
        }
        let event = match &old {
            Some(old) => ClusterEvent::NodeUpdated { old, new },
            None => ClusterEvent::NodeAdded(new),
        };
        self.queue.move_to_active_or_backoff(&event, Instant::now());
    }

    fn node_gone(&mut self, name: &str) {
        self.storage
            .tell_if_asked(|bindings| bindings.node_changed(name, None));
        if let Some(old) = self.cache.remove_node(name) {
            self.queue
                .move_to_active_or_backoff(&ClusterEvent::NodeDeleted(&old), Instant::now());
        }
    }

    fn namespace_applied(&mut self, namespace: &Namespace) {
        let (name, labels) = (
            namespace.name_any(),
            namespace.metadata.labels.clone().unwrap_or_default(),
        );
        if self.cache.set_namespace(&name, labels) {
            self.queue
                .move_to_active_or_backoff(&ClusterEvent::NamespaceLabelled, Instant::now());
        }
    }

    fn pod_applied(&mut self, pod: Arc<PodInfo>) {
        let now = Instant::now();
        if let Some(node) = &pod.node_name {
            self.queue.remove(&pod.uid);
            self.reports.forget(&pod.uid);
            if pod.terminating {
                self.cache.set_ending(&pod.uid, false);
            }
            let old = self.cache.observe(pod.clone(), node);
            let event = match &old {
                Some(old) => ClusterEvent::AssignedPodUpdated { old, new: &pod },
                None => ClusterEvent::AssignedPodAdded(&pod),
            };
            self.queue.move_to_active_or_backoff(&event, now);
        } else if !self.cache.is_placed(&pod.uid) {
            self.nomination_seen(&pod);
            self.reports.changed(&pod, now);
            let nomination = self.cache.nomination(&pod.uid);
            self.reports.nominated(&pod.uid, nomination, now);
            self.queue.add(pod, now);
        }
    }

    /// Takes over where somebody says that room is made for the pod. As long as that is nowhere, it
    /// is where this scheduler makes it: what it has decided may not be written yet.
    fn nomination_seen(&mut self, pod: &Arc<PodInfo>) {
        let known = self.cache.nominee(&pod.uid);
        let known = known.map(|known| known.nominated_node.clone());
        match (known, &pod.nominated_node) {
            (Some(before), now) if before == *now => {
                let node = self.cache.nomination(&pod.uid).map(str::to_owned);
                if let Some(node) = node {
                    self.cache.nominate(pod.clone(), &node);
                }
            }
            (_, Some(node)) => {
                self.withdraw(&pod.uid);
                self.cache.nominate(pod.clone(), node);
            }
            (Some(_), None) => self.withdraw(&pod.uid),
            (None, None) => {}
        }
    }

    /// No room is made for the pod any more, or elsewhere: others may fit where it was.
    pub(super) fn withdraw(&mut self, uid: &PodUid) {
        if let Some(pod) = self.cache.withdraw(uid) {
            self.queue
                .move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&pod), Instant::now());
        }
    }

    fn pod_gone(&mut self, uid: &PodUid) {
        self.queue.remove(uid);
        self.reports.forget(uid);
        self.profiles.reject_waiting_pod(uid, "the pod is gone");
        self.storage
            .tell_if_asked(|bindings| bindings.pod_gone(uid));
        self.cache.set_ending(uid, false);
        if let Some(pod) = self.cache.remove_pod(uid) {
            self.queue
                .move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&pod), Instant::now());
        }
    }

    fn storage_applied(&mut self, new: &StorageObject) {
        let old = self.storage.change(|storage| storage.apply(new));
        let old = old.as_ref();
        self.queue
            .move_to_active_or_backoff(&ClusterEvent::StorageApplied { old, new }, Instant::now());
    }

    fn storage_gone(&mut self, gone: &StorageObject) {
        self.storage.change(|storage| storage.remove(gone));
        self.queue
            .move_to_active_or_backoff(&ClusterEvent::StorageGone(gone), Instant::now());
    }
}
