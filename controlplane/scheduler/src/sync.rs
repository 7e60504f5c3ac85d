//! What the scheduler follows: pods that count on a node or that it has to place, nodes, the labels
//! of namespaces, what Services and controllers select by, which pods had better not be preempted,
//! and what has to do with volumes.
//!
//! Where there are extenders, pods are held whole, and so are nodes if one of them wants those.
//!
//! An informer holds no pod that is of no concern here: one that has ended, one that waits for
//! another scheduler. Handlers only put the newest state into the inbox; the scheduler's task takes
//! what is there when it comes to it, each object once.

mod selecting;
mod storing;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use coracle_api::selector::LabelSelector;
use coracle_client::{
    cache::{Change, Key},
    informers::Informers,
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, StatefulSet},
        core::v1::{Namespace, Node, NodeStatus, Pod, ReplicationController, Service},
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{Client, Resource, ResourceExt, api::ObjectMeta};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::{
    config::{ExtenderConfig, SchedulerConfig},
    pod_info::{PodInfo, PodUid, Shared},
    selectors::SelectorOwner,
    storage::{StorageKind, StorageObject},
};

/// What has become of one object.
#[derive(Debug)]
pub(crate) enum SyncEvent {
    /// A pod is new or has changed.
    PodApplied(Arc<PodInfo>),
    /// A pod is gone, has ended, or is another scheduler's.
    PodGone(PodUid),
    /// A node is new or has changed.
    NodeApplied(Arc<Node>),
    /// A node is gone.
    NodeGone(String),
    /// A namespace is new, or its labels may be others.
    NamespaceApplied(Arc<Namespace>),
    /// A namespace is gone.
    NamespaceGone(String),
    /// A Service or controller is new or selects by something else; `None` if it is gone.
    Selects(SelectorOwner, Option<Arc<LabelSelector>>),
    /// A PodDisruptionBudget is new or has changed; `None` if it is gone.
    Budget(Key, Option<Arc<PodDisruptionBudget>>),
    /// Something that has to do with volumes is new or has changed.
    StorageApplied(StorageObject),
    /// Something that has to do with volumes is gone.
    StorageGone(StorageObject),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Pod(PodUid),
    Node(String),
    Namespace(String),
    Selector(SelectorOwner),
    Budget(Key),
    Storage(StorageKind, Key),
}

impl SyncEvent {
    fn subject(&self) -> Subject {
        match self {
            Self::PodApplied(pod) => Subject::Pod(pod.uid.clone()),
            Self::PodGone(uid) => Subject::Pod(uid.clone()),
            Self::NodeApplied(node) => Subject::Node(node.name_any()),
            Self::NodeGone(name) => Subject::Node(name.clone()),
            Self::NamespaceApplied(namespace) => Subject::Namespace(namespace.name_any()),
            Self::NamespaceGone(name) => Subject::Namespace(name.clone()),
            Self::Selects(owner, _) => Subject::Selector(owner.clone()),
            Self::Budget(key, _) => Subject::Budget(key.clone()),
            Self::StorageApplied(object) | Self::StorageGone(object) => {
                let (kind, key) = object.id();
                Subject::Storage(kind, key)
            }
        }
    }
}

/// What the scheduler's task has not looked at yet: the newest of each object, in the order in
/// which they first changed. Bounded by the number of objects.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Subject>,
    newest: HashMap<Subject, SyncEvent>,
}

impl Inbox {
    fn put(&self, event: SyncEvent) {
        let subject = event.subject();
        let mut waiting = self.lock();
        if waiting.newest.insert(subject.clone(), event).is_none() {
            waiting.order.push_back(subject);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> impl Iterator<Item = SyncEvent> + use<> {
        let Waiting { order, mut newest } = std::mem::take(&mut *self.lock());
        order
            .into_iter()
            .filter_map(move |subject| newest.remove(&subject))
    }

    /// Returns once something has been put in since it last returned. Cancel-safe.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nobody who holds it can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is held whole, for extenders.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeldWhole {
    pub(crate) pods: bool,
    pub(crate) nodes: bool,
}

impl HeldWhole {
    pub(crate) fn by(config: &SchedulerConfig) -> Self {
        let mut extenders = config.extenders.iter();
        Self {
            pods: !config.extenders.is_empty(),
            nodes: extenders.any(ExtenderConfig::is_told_of_nodes),
        }
    }
}

/// A Pod as the informer holds it: its name, and what placing needs. A `WHOLE` one takes several
/// times the memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct WatchedPod<const WHOLE: bool> {
    metadata: ObjectMeta,
    /// `None` if the object is not complete.
    info: Option<Arc<PodInfo>>,
}

impl<const WHOLE: bool> From<Pod> for WatchedPod<WHOLE> {
    fn from(pod: Pod) -> Self {
        let (whole, info) = match WHOLE {
            true => (pod.metadata.clone(), PodInfo::whole(pod)),
            false => {
                let info = PodInfo::new(&pod);
                (pod.metadata, info)
            }
        };
        let metadata = ObjectMeta {
            name: whole.name,
            namespace: whole.namespace,
            uid: whole.uid,
            resource_version: whole.resource_version,
            ..ObjectMeta::default()
        };
        Self {
            metadata,
            info: info.map(Arc::new),
        }
    }
}

impl<const WHOLE: bool> Resource for WatchedPod<WHOLE> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<const WHOLE: bool> WatchedPod<WHOLE> {
    /// Whether a scheduler of these names has to know of it.
    fn concerns(&self, names: &[String]) -> bool {
        self.info.as_ref().is_some_and(|pod| {
            let waits_for_it = names.contains(&pod.scheduler_name) && !pod.terminating;
            !pod.finished && (pod.node_name.is_some() || waits_for_it)
        })
    }
}

/// Lets pods of one template share what they have in common.
fn sharing<const WHOLE: bool>() -> impl FnMut(&mut WatchedPod<WHOLE>) + Clone + Send {
    let mut shared = Shared::default();
    // Nobody else has the information of a pod that is not in the cache yet.
    move |pod| {
        if let Some(info) = pod.info.as_mut().and_then(Arc::get_mut) {
            shared.with(info);
        }
    }
}

/// The informers of all nodes, all namespaces, all that selects pods or has to do with volumes, and
/// the pods that concern a scheduler of these names. What they see goes into `inbox`.
pub(crate) fn informers(
    client: &Client,
    names: Vec<String>,
    whole: HeldWhole,
    inbox: &Arc<Inbox>,
) -> Informers {
    let informers = Informers::new(client.clone());
    let informers = match whole.pods {
        true => pods::<true>(informers, names, inbox),
        false => pods::<false>(informers, names, inbox),
    };
    let mut informers = informers
        .trim(move |node: &mut Node| {
            if whole.nodes {
                return;
            }
            node.metadata.annotations = None;
            if let Some(status) = &mut node.status {
                let (allocatable, images) = (status.allocatable.take(), status.images.take());
                *status = NodeStatus {
                    allocatable,
                    images,
                    ..Default::default()
                };
            }
        })
        .trim(|namespace: &mut Namespace| {
            namespace.metadata.annotations = None;
            (namespace.spec, namespace.status) = (None, None);
        });
    let of_nodes = inbox.clone();
    informers.of().on_change(move |change: &Change<'_, Node>| {
        of_nodes.put(match change {
            Change::Added(node) | Change::Updated { new: node, .. } => {
                SyncEvent::NodeApplied((*node).clone())
            }
            Change::Deleted(node) => SyncEvent::NodeGone(node.name_any()),
        });
    });
    let of_namespaces = inbox.clone();
    informers
        .of()
        .on_change(move |change: &Change<'_, Namespace>| {
            of_namespaces.put(match change {
                Change::Added(now) | Change::Updated { new: now, .. } => {
                    SyncEvent::NamespaceApplied((*now).clone())
                }
                Change::Deleted(gone) => SyncEvent::NamespaceGone(gone.name_any()),
            });
        });
    let informers = budgets(informers, inbox);
    let informers = selecting::follow::<Service>(informers, inbox);
    let informers = selecting::follow::<ReplicationController>(informers, inbox);
    let informers = selecting::follow::<ReplicaSet>(informers, inbox);
    let informers = selecting::follow::<StatefulSet>(informers, inbox);
    storing::follow(informers, inbox)
}

/// Adds the informer of the pods that concern a scheduler of these names.
fn pods<const WHOLE: bool>(
    informers: Informers,
    names: Vec<String>,
    inbox: &Arc<Inbox>,
) -> Informers {
    let mut informers = informers
        .only(move |pod: &WatchedPod<WHOLE>| pod.concerns(&names))
        .trim(sharing::<WHOLE>());
    let inbox = inbox.clone();
    informers
        .of()
        .on_change(move |change: &Change<'_, WatchedPod<WHOLE>>| {
            let Some(pod) = &change.latest().info else {
                return;
            };
            inbox.put(match change {
                Change::Added(_) | Change::Updated { .. } => SyncEvent::PodApplied(pod.clone()),
                Change::Deleted(_) => SyncEvent::PodGone(pod.uid.clone()),
            });
        });
    informers
}

/// Adds the informer of PodDisruptionBudgets.
fn budgets(informers: Informers, inbox: &Arc<Inbox>) -> Informers {
    let mut informers = informers.trim(|budget: &mut PodDisruptionBudget| {
        budget.metadata.annotations = None;
        if let Some(status) = &mut budget.status {
            status.conditions = None;
        }
    });
    let inbox = inbox.clone();
    informers
        .of()
        .on_change(move |change: &Change<'_, PodDisruptionBudget>| {
            let latest = change.latest();
            let key = Key::new(latest.namespace().unwrap_or_default(), latest.name_any());
            let gone = matches!(change, Change::Deleted(_));
            inbox.put(SyncEvent::Budget(key, (!gone).then(|| (*latest).clone())));
        });
    informers
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn watched(spec: Value, status: Value) -> WatchedPod<false> {
        let metadata = json!({"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .expect("a pod")
    }

    #[test]
    fn pods_of_others_are_of_no_concern_before_they_have_a_node() {
        let running = json!({"phase": "Running"});
        for (spec, status, expected) in [
            (
                json!({"containers": [], "schedulerName": "mine"}),
                json!({}),
                true,
            ),
            (
                json!({"containers": [], "schedulerName": "another"}),
                json!({}),
                false,
            ),
            (
                json!({"containers": [], "schedulerName": "another", "nodeName": "n"}),
                running,
                true,
            ),
            (
                json!({"containers": [], "schedulerName": "mine", "nodeName": "n"}),
                json!({"phase": "Failed"}),
                false,
            ),
        ] {
            assert_eq!(
                watched(spec.clone(), status).concerns(&["mine".to_owned()]),
                expected,
                "{spec}"
            );
        }
    }

    #[test]
    fn the_inbox_holds_the_newest_of_each_in_the_order_of_first_change() {
        let (inbox, uid) = (Inbox::default(), |name: &str| PodUid(name.into()));
        inbox.put(SyncEvent::PodGone(uid("a")));
        inbox.put(SyncEvent::NodeGone("a".to_owned()));
        let pod = Arc::new(crate::testing::pod("a", "1"));
        inbox.put(SyncEvent::PodApplied(pod));
        inbox.put(SyncEvent::PodGone(uid("b")));
        let taken: Vec<String> = inbox
            .take()
            .map(|event| format!("{:?}", event.subject()))
            .collect();
        assert_eq!(
            taken,
            ["Pod(PodUid(\"a\"))", "Node(\"a\")", "Pod(PodUid(\"b\"))"]
        );
        inbox.put(SyncEvent::PodGone(uid("a")));
        assert!(matches!(
            inbox.take().collect::<Vec<_>>()[..],
            [SyncEvent::PodGone(_)]
        ));
    }
}
