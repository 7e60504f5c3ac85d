//! Empties a namespace that is being deleted, and lets it go when nothing is left.
//!
//! Pods go first, for they may need what else is in the namespace; everything else follows. What
//! cannot be deleted shows in the namespace's conditions.
//!
//! Source: `pkg/controller/namespace/deletion/namespaced_resources_deleter.go` at v1.37.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{api::core::v1::Namespace, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use parking_lot::Mutex;
use tracing::debug;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing, or_event},
    errors::message_of,
    pod::Pod,
    removals::Gone,
    served_kinds::{ServedKind, ServedKinds},
    writes::Write,
};

mod plan;

use plan::{Remains, Rounds};

/// Namespaces worked on at once.
const WORKERS: usize = 4;
/// The finalizer that this controller removes.
const FINALIZER: &str = "kubernetes";
/// How soon to look again when something in the namespace has gone: what goes together is looked at
/// once.
const GATHER: Duration = Duration::from_millis(200);

/// The controller; its state is in caches and `rounds`.
pub(crate) struct NamespaceController {
    client: Client,
    kinds: Arc<ServedKinds>,
    namespaces: Arc<Cache<Namespace>>,
    pods: Arc<Cache<Pod>>,
    rounds: Mutex<HashMap<Key, Rounds>>,
}

impl NamespaceController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "namespace-controller", "namespace").workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            kinds: context.kinds.clone(),
            namespaces: controller.reads(),
            pods: controller.reads(),
            rounds: Mutex::default(),
        });
        controller.on_change(&this, Self::namespace_changed);
        controller.on_change(&this, Self::pod_changed);
        let removals = &context.removals;
        removals.on_removed(&controller, &this, Self::content_removed);
        controller.complete(this);
    }

    fn content_removed(&self, gone: Gone<'_>, queue: &Queue) {
        // What was not seen to go is found by the next round: each comes by itself.
        let Gone::In(namespace) = gone else { return };
        let key = Key::new("", namespace);
        if self.is_terminating(&key) {
            queue.add_after(key, GATHER);
        }
    }

    fn namespace_changed(&self, change: &Change<'_, Namespace>, queue: &Queue) {
        let (namespace, key) = (change.latest(), Key::of(change.latest().as_ref()));
        if matches!(change, Change::Deleted(_)) {
            self.rounds.lock().remove(&key);
        } else if is_first_look(change) && namespace.metadata.deletion_timestamp.is_some() {
            queue.add(key);
        }
    }

    /// The last pod's end is what most namespaces wait for.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        if let Change::Deleted(pod) = change {
            let key = Key::new("", pod.metadata.namespace.clone().unwrap_or_default());
            if self.is_terminating(&key) && !self.pods.has_any_in(&key.name) {
                queue.add(key);
            }
        }
    }
}

impl Reconciler for NamespaceController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(namespace) = self.namespaces.get(&key) else {
            return Ok(None);
        };
        let finalizers = namespace
            .spec
            .as_ref()
            .and_then(|spec| spec.finalizers.clone())
            .unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none()
            || !finalizers.iter().any(|name| name == FINALIZER)
        {
            return Ok(None);
        }
        let mut remains = Remains::default();
        if let Err(error) = self.kinds.refresh().await {
            remains.discovery_error = Some(message_of(&error));
        }
        self.empty(&key.name, &mut remains).await;
        if remains.is_empty() {
            return self.finalize(&namespace).await;
        }
        debug!(namespace = %key, ?remains, "content remains");
        self.write_conditions(&namespace, &remains).await?;
        Ok(Some(
            self.rounds.lock().entry(key).or_default().pause(remains),
        ))
    }
}

impl NamespaceController {
    fn is_terminating(&self, key: &Key) -> bool {
        self.namespaces
            .get(key)
            .is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    /// Deletes what can be deleted and counts what is left.
    async fn empty(&self, namespace: &str, remains: &mut Remains) {
        let (pods, others): (Vec<_>, Vec<_>) = self
            .kinds
            .all()
            .into_iter()
            .filter(|kind| kind.namespaced && kind.deletable)
            .partition(|kind| kind.resource.group.is_empty() && kind.resource.kind == "Pod");
        for kinds in [pods, others] {
            let rounds = join_all(kinds.iter().map(|kind| self.empty_kind(namespace, kind))).await;
            for (kind, round) in kinds.iter().zip(rounds) {
                let resource = format!("{}.{}", kind.resource.plural, kind.resource.group);
                match round {
                    Ok(left) if left.is_empty() => {}
                    Ok(left) => {
                        remains.resources.insert(resource, left.len());
                        for finalizer in left.into_iter().flatten() {
                            *remains.finalizers.entry(finalizer).or_default() += 1;
                        }
                    }
                    Err(error) => remains
                        .content_errors
                        .push(format!("{resource}: {}", message_of(&error))),
                }
            }
            if !remains.resources.is_empty() || !remains.content_errors.is_empty() {
                return;
            }
        }
    }

    /// Deletes all objects of a kind; the finalizers of each that is left.
    async fn empty_kind(
        &self,
        namespace: &str,
        kind: &ServedKind,
    ) -> kube::Result<Vec<Vec<String>>> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
        // Listing is cheaper than deleting nothing, and most kinds have nothing here.
        let present = api.list_metadata(&ListParams::default()).await?.items;
        if present.is_empty() {
            return Ok(Vec::new());
        }
        if present
            .iter()
            .any(|object| object.metadata.deletion_timestamp.is_none())
        {
            if kind.delete_collection {
                api.delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await?;
            } else {
                for object in &present {
                    let name = object.metadata.name.as_deref().unwrap_or_default();
                    ignore_missing(api.delete(name, &DeleteParams::background()).await)?;
                }
            }
        }
        let left = api.list_metadata(&ListParams::default()).await?.items;
        Ok(left
            .into_iter()
            .map(|object| object.metadata.finalizers.unwrap_or_default())
            .collect())
    }

    async fn finalize(&self, namespace: &Namespace) -> Outcome {
        let mut wanted = namespace.clone();
        if let Some(finalizers) = wanted
            .spec
            .as_mut()
            .and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|name| name != FINALIZER);
        }
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Namespace> = Api::all(self.client.clone());
        let finalized: kube::Result<Namespace> = api
            .replace_subresource("finalize", name, &PostParams::default(), &wanted)
            .await;
        ignore_missing(finalized).during("finalize Namespace")?;
        Ok(None)
    }

    async fn write_conditions(
        &self,
        namespace: &Namespace,
        remains: &Remains,
    ) -> Result<(), ReconcileError> {
        let present = namespace
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let Some(conditions) = remains.conditions(&present, Timestamp::now()) else {
            return Ok(());
        };
        let write = Write::to(&self.client, namespace, "update Namespace conditions");
        let written = write.status(|namespace| {
            namespace.status.get_or_insert_default().conditions = Some(conditions);
        });
        // Another look comes anyway, with what is there by then.
        or_event(written.await).map(drop)
    }
}

/// Whether a change is one of the namespace itself: a round that wrote the conditions has looked
/// already.
fn is_first_look(change: &Change<'_, Namespace>) -> bool {
    match change {
        Change::Updated { old, new } => !only_version(old, new) || old.spec != new.spec,
        _ => true,
    }
}

/// Whether the metadata differs in nothing but the version.
fn only_version(old: &Namespace, new: &Namespace) -> bool {
    let mut old = old.metadata.clone();
    old.resource_version
        .clone_from(&new.metadata.resource_version);
    old == new.metadata
}
