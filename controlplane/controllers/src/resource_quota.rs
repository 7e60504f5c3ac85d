//! Counts what each ResourceQuota's namespace uses and writes it into the quota's status.
//!
//! Admission adds to `status.used` with every object that is made; this controller takes away what
//! went, by counting anew. It reads the quota first, then lists the newest state, then writes with
//! the quota's revision: a create in between has changed the quota, so the write fails and the
//! count is made again. Nothing is counted from caches.
//!
//! Source: `pkg/controller/resourcequota/resource_quota_controller.go` at v1.37.

mod replenished;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coracle_api::{
    quantity::{Format, Quantity},
    quota,
    resource_list::{self, Amounts, amounts_of_json},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota, Service};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::{GroupVersionKind, discovery::ApiResource},
};
use serde_json::{Value, json};

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler},
    pod::Pod,
    removals::Gone,
    served_kinds::ServedKinds,
    writes::Write,
};

/// Quotas counted at once.
const WORKERS: usize = 5;
/// When every quota is counted again without need, as upstream.
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// What goes within this time is counted once.
const SETTLE: Duration = Duration::from_millis(50);
/// Kinds whose objects are looked at; of others only the number counts.
const MEASURED: [(&str, &str, &str); 4] = [
    ("", "pods", "Pod"),
    ("", "services", "Service"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("resource.k8s.io", "resourceclaims", "ResourceClaim"),
];

/// The controller; its state is in the cache.
pub(crate) struct ResourceQuotaController {
    client: Client,
    kinds: Arc<ServedKinds>,
    quotas: Arc<Cache<ResourceQuota>>,
}

impl ResourceQuotaController {
    /// Says what it reads and what wakes it: what changes a use without going, and everything that
    /// goes.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "resourcequota-controller", "resource_quota")
                .workers(WORKERS);
        let this = Arc::new(Self {
            client: context.client.clone(),
            kinds: context.kinds.clone(),
            quotas: controller.reads(),
        });
        controller.on_change(&this, Self::quota_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.on_change(&this, Self::service_changed);
        controller.on_change(&this, Self::claim_changed);
        let removals = &context.removals;
        removals.on_removed(&controller, &this, Self::object_removed);
        controller.complete(this);
    }

    fn quota_changed(&self, change: &Change<'_, ResourceQuota>, queue: &Queue) {
        let key = Key::of(change.latest().as_ref());
        match change {
            Change::Added(_) => queue.add(key),
            // Its own writes and admission's change the status alone.
            Change::Updated { old, new } if old.spec != new.spec => queue.add(key),
            Change::Updated { .. } | Change::Deleted(_) => {}
        }
    }

    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        self.object_changed(change, replenished::by_pod, queue);
    }

    fn service_changed(&self, change: &Change<'_, Service>, queue: &Queue) {
        self.object_changed(change, |old, new| old.spec != new.spec, queue);
    }

    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Queue) {
        self.object_changed(change, replenished::by_claim, queue);
    }

    fn object_changed<K: kube::Resource>(
        &self,
        change: &Change<'_, K>,
        may_use_less: impl FnOnce(&K, &K) -> bool,
        queue: &Queue,
    ) {
        if let Change::Updated { old, new } = change
            && may_use_less(old, new)
        {
            self.look_again(new.meta().namespace.as_deref().unwrap_or_default(), queue);
        }
    }

    fn object_removed(&self, gone: Gone<'_>, queue: &Queue) {
        match gone {
            Gone::In(namespace) => self.look_again(namespace, queue),
            Gone::Unseen => self
                .quotas
                .all()
                .iter()
                .for_each(|quota| queue.add_after(Key::of(quota.as_ref()), SETTLE)),
        }
    }

    /// Something in the namespace may use less.
    fn look_again(&self, namespace: &str, queue: &Queue) {
        for quota in self.quotas.in_namespace(namespace, |_| true) {
            queue.add_after(Key::of(quota.as_ref()), SETTLE);
        }
    }
}

impl Reconciler for ResourceQuotaController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        // Not from the cache: its revision says that nothing was charged since before the count.
        let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let Some(quota) = api
            .list(&only)
            .await
            .during("get ResourceQuota")?
            .items
            .pop()
        else {
            return Ok(None);
        };
        let object = serde_json::to_value(&quota)
            .map_err(|error| ReconcileError::NotYet(error.to_string()))?;
        let used = self.count(&key.namespace, &object["spec"]).await?;
        let hard = amounts_of_json(&object["spec"]["hard"]);
        let status = &object["status"];
        if hard != amounts_of_json(&status["hard"]) || used != amounts_of_json(&status["used"]) {
            let status = json!({"hard": object["spec"]["hard"], "used": quota::to_value(&used)});
            let write = Write::to(&self.client, &quota, "update ResourceQuota status");
            let written = write.status(|quota| quota.status = serde_json::from_value(status).ok());
            written.await?;
        }
        Ok(Some(RESYNC))
    }
}

impl ResourceQuotaController {
    /// What is used of everything that a quota limits.
    async fn count(&self, namespace: &str, spec: &Value) -> Result<Amounts, ReconcileError> {
        let names: Vec<&str> = spec["hard"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        let mut used = Amounts::new();
        for (group, plural, kind) in MEASURED {
            let own = quota::names_of(group, plural, names.iter().copied());
            if !own.is_empty() {
                self.measure(&mut used, namespace, spec, (group, plural, kind), &own)
                    .await?;
            }
        }
        let rest: Vec<&str> = names
            .into_iter()
            .filter(|name| !used.contains_key(*name))
            .collect();
        for name in rest {
            let amount = match countable(name) {
                Some((plural, group)) if !is_scoped(spec) => {
                    self.number(namespace, group, plural).await?
                }
                Some(_) => Some(0),
                None => None,
            };
            if let Some(amount) = amount {
                used.insert(
                    name.to_owned(),
                    Quantity::from_units(amount, Format::DecimalSi),
                );
            }
        }
        Ok(used)
    }

    /// Adds what the objects of one kind use of `names`.
    async fn measure(
        &self,
        used: &mut Amounts,
        namespace: &str,
        spec: &Value,
        (group, plural, kind): (&str, &str, &str),
        names: &[&str],
    ) -> Result<(), ReconcileError> {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let objects = api
            .list(&ListParams::default())
            .await
            .during("list what a quota limits")?;
        let mut total: Amounts = names
            .iter()
            .map(|name| ((*name).to_owned(), Quantity::ZERO))
            .collect();
        let now = jiff::Timestamp::now();
        for object in objects.items {
            let Ok(object) = serde_json::to_value(&object) else {
                continue;
            };
            if quota::in_scope(spec, group, plural, &object) {
                let mut uses: BTreeMap<_, _> = quota::usage(group, plural, &object, now);
                uses.retain(|name, _| total.contains_key(name));
                resource_list::add(&mut total, &uses);
            }
        }
        used.append(&mut total);
        Ok(())
    }

    /// How many objects there are; `None` for a kind that is not served.
    async fn number(
        &self,
        namespace: &str,
        group: &str,
        plural: &str,
    ) -> Result<Option<i64>, ReconcileError> {
        if self.kinds.all().is_empty() {
            self.kinds.refresh().await.during("discover kinds")?;
        }
        let all = self.kinds.all();
        let served = all
            .iter()
            .find(|kind| kind.resource.group == group && kind.resource.plural == plural);
        let Some(served) = served.filter(|kind| kind.namespaced) else {
            return Ok(None);
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &served.resource);
        let first = api
            .list_metadata(&ListParams::default().limit(1))
            .await
            .during("count objects")?;
        let shown = i64::try_from(first.items.len()).unwrap_or(i64::MAX);
        Ok(Some(
            shown + first.metadata.remaining_item_count.unwrap_or(0),
        ))
    }
}

fn is_scoped(spec: &Value) -> bool {
    !quota::in_scope(spec, "", "", &Value::Null)
}

/// Plural and group of what a name counts: `count/jobs.batch`, `secrets`.
fn countable(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(counted.split_once('.').unwrap_or((counted, "")));
    }
    matches!(
        name,
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas"
    )
    .then_some((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_counted() {
        for (name, expect) in [
            ("count/jobs.batch", Some(("jobs", "batch"))),
            (
                "count/roles.rbac.authorization.k8s.io",
                Some(("roles", "rbac.authorization.k8s.io")),
            ),
            ("count/configmaps", Some(("configmaps", ""))),
            ("secrets", Some(("secrets", ""))),
            ("limits.cpu", None),
        ] {
            assert_eq!(countable(name), expect, "{name}");
        }
        assert!(is_scoped(&json!({"scopes": ["BestEffort"]})) && !is_scoped(&json!({"hard": {}})));
    }
}
