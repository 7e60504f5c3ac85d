//! Gives Services of type LoadBalancer the addresses of nodes: those without a class, and those of
//! [`coracle_api::load_balancer::CLASS`]. Other classes are left alone, and so are those without
//! one where the server is told so.
//!
//! The nodes' proxy takes what comes to these addresses, so there are no pods for it. That a port
//! of a node is a daemon's or the API server's is the proxy's business as well: it alone sees that,
//! and leaves the port to who has it. What others' objects say is known here ([`occupied`]).
//!
//! What anybody gets depends on all others' claims ([`claims`]) and on the nodes ([`pool`]), so it
//! is worked out for all at once, when it is asked for after a change. The state is the objects'
//! alone: who starts anew writes what differs.
//!
//! Source: `staging/src/k8s.io/cloud-provider/controllers/service/controller.go` at v1.37;
//! `pkg/cloudprovider/servicelb.go` of k3s.

mod claims;
mod contests;
mod occupied;
mod plan;
mod pool;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use coracle_api::load_balancer::Served;
use coracle_client::own_writes::OwnWrites;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::Value;

use self::{
    claims::{Claim, Share},
    contests::Contests,
    occupied::Occupied,
    plan::Told,
    pool::{Part, Pool},
};
use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{By, Cache, Change, Key},
    context::Context,
    controller::{CallContext, Outcome, ReconcileError, Reconciler, ignore_missing, or_event},
    errors::{is_conflict, message_of},
    event_recorder::component::ComponentRecorder,
    pod::Pod,
    service_endpoints::service_of,
};

/// Services worked on at once.
const WORKERS: usize = 2;
const COMPONENT: &str = "service-controller";
const CONTESTED: &str = "Somebody else writes the load balancer status of this Service again and again; set \
    spec.loadBalancerClass to say who serves it, or start the servers with --load-balancer none";

/// The controller.
pub(crate) struct ServiceLbController {
    served: Served,
    client: Client,
    recorder: ComponentRecorder,
    services: Arc<Cache<Service>>,
    nodes: Arc<Cache<Node>>,
    slices: Arc<Cache<EndpointSlice>>,
    /// Those with host ports.
    pods: By<Pod>,
    writes: OwnWrites<Service>,
    /// Counts what changes anybody's share.
    changes: AtomicU64,
    shares: Mutex<Option<Arc<Shares>>>,
    contests: Contests,
    /// Why Services have no address, as was told last.
    pending: Mutex<HashMap<Key, Told>>,
}

/// Who gets what, after so many changes.
struct Shares {
    changes: u64,
    pool: Pool,
    by_key: BTreeMap<Key, Share>,
}

impl ServiceLbController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, "service-lb-controller", "service");
        controller = controller.workers(WORKERS);
        let this = Arc::new(Self {
            served: context.config.load_balancers,
            client: context.client.clone(),
            recorder: context.recorder.of(COMPONENT),
            services: controller.reads(),
            nodes: controller.reads(),
            slices: controller.reads(),
            pods: controller.index(occupied::with_host_ports()),
            writes: controller.own_writes(),
            changes: AtomicU64::new(0),
            shares: Mutex::default(),
            contests: Contests::default(),
            pending: Mutex::default(),
        });
        controller.on_change(&this, Self::service_changed);
        controller.on_change(&this, Self::node_changed);
        controller.on_change(&this, Self::slice_changed);
        controller.on_change(&this, Self::pod_changed);
        controller.complete(this);
    }

    fn service_changed(&self, change: &Change<'_, Service>, queue: &Queue) {
        let (old, new) = both(change);
        let versions = || old.into_iter().chain(new);
        if versions().any(|service| plan::is_concerned(service, self.served)) {
            queue.add(Key::of(change.latest().as_ref()));
        }
        let claim =
            |service: Option<&Arc<Service>>| service.and_then(|one| Claim::of(one, self.served));
        let is_news = match (claim(old), claim(new)) {
            (Some(before), Some(now)) => now.is_news_after(&before),
            (before, now) => before.is_some() || now.is_some(),
        };
        let node_ports = |service: Option<&Arc<Service>>| {
            service
                .map(|one| occupied::node_ports(one))
                .unwrap_or_default()
        };
        if is_news || node_ports(old) != node_ports(new) {
            self.shares_changed(queue);
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>, queue: &Queue) {
        let (old, new) = both(change);
        let part = |node: Option<&Arc<Node>>| node.map(|node| Part::of(node)).unwrap_or_default();
        if part(old) != part(new) {
            self.shares_changed(queue);
        }
    }

    /// Few pods have host ports.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Queue) {
        let (old, new) = both(change);
        let [before, now] = [old, new].map(|pod| pod.and_then(|pod| occupied::taken_by(pod)));
        if before != now {
            self.shares_changed(queue);
        }
    }

    /// Endpoints matter to a Service alone whose traffic stays on their nodes.
    fn slice_changed(&self, change: &Change<'_, EndpointSlice>, queue: &Queue) {
        let (old, new) = both(change);
        let of = |slice: Option<&Arc<EndpointSlice>>| {
            let slice = slice?;
            Some((service_of(slice)?, ready_nodes(slice)))
        };
        let (old, new) = (of(old), of(new));
        if old == new {
            return;
        }
        for (key, _) in old.into_iter().chain(new) {
            let service = self.services.get(&key);
            if service.is_some_and(|service| {
                is_local(&service) && Claim::of(&service, self.served).is_some()
            }) {
                queue.add(key);
            }
        }
    }

    /// One that gives way lets a third one in: everybody looks again.
    fn shares_changed(&self, queue: &Queue) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let served = self
            .services
            .filter(|service| Claim::of(service, self.served).is_some());
        served
            .iter()
            .for_each(|service| queue.add(Key::of(service.as_ref())));
    }

    /// Who gets what now.
    fn shares(&self) -> Arc<Shares> {
        let mut known = self.shares.lock();
        // Counted before it is looked: what changes meanwhile is looked at again.
        let changes = self.changes.load(Ordering::SeqCst);
        if let Some(shares) = known.as_ref().filter(|shares| shares.changes == changes) {
            return Arc::clone(shares);
        }
        let nodes = self.nodes.all();
        let pool = Pool::of(nodes.iter().map(Arc::as_ref));
        let services = self.services.all();
        let claims = services
            .iter()
            .filter_map(|service| Claim::of(service, self.served));
        let pods = self.pods.get(occupied::ANY);
        let (all, takers) = (services.iter(), pods.iter());
        let occupied = Occupied::by(all.map(Arc::as_ref), takers.map(Arc::as_ref));
        let shares = Arc::new(Shares {
            changes,
            by_key: claims::assign(claims.collect(), &pool, &occupied),
            pool,
        });
        *known = Some(Arc::clone(&shares));
        shares
    }

    /// What `service` gets; `None`: it asks for nothing.
    fn share(&self, key: &Key, service: &Service) -> Option<Share> {
        // As it is, not as it was when all were looked at.
        Claim::of(service, self.served)?;
        let mut shares = self.shares();
        if !shares.by_key.contains_key(key) {
            // It is there, and its change is not counted yet.
            *self.shares.lock() = None;
            shares = self.shares();
        }
        let share = shares.by_key.get(key)?.clone();
        if !is_local(service) {
            return Some(share);
        }
        let of_it = |slice: &EndpointSlice| service_of(slice).as_ref() == Some(key);
        let slices = self.slices.in_namespace(&key.namespace, of_it);
        let nodes = slices.iter().flat_map(|slice| ready_nodes(slice)).collect();
        Some(claims::only_on(share, &shares.pool, &nodes))
    }

    /// Says why a Service has no address: once, unless it changes.
    fn tell_pending(&self, key: &Key, service: &Service, told: Option<Told>) {
        let mut pending = self.pending.lock();
        let Some(told) = told else {
            pending.remove(key);
            return;
        };
        if pending.get(key) != Some(&told) {
            self.tell(service, &told);
            pending.insert(key.clone(), told);
        }
    }

    fn tell(&self, service: &Service, told: &Told) {
        let message = told.message.clone();
        if told.is_warning {
            self.recorder.warning(service, told.reason, message);
        } else {
            self.recorder.normal(service, told.reason, message);
        }
    }

    /// Returns whether it is written: not, if somebody else was quicker, for that is news.
    async fn write(
        &self,
        key: &Key,
        service: &Service,
        mut patch: Value,
    ) -> Result<bool, ReconcileError> {
        patch["metadata"]["uid"] = service.metadata.uid.as_deref().into();
        patch["metadata"]["resourceVersion"] = service.metadata.resource_version.as_deref().into();
        let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        let call = api.patch_status(&key.name, &params, &patch);
        let written = ignore_missing(self.writes.write(key, call).await);
        let written = or_event(written.during("write load balancer status"))?;
        Ok(written.flatten().is_some())
    }
}

impl Reconciler for ServiceLbController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(service) = self.services.get(&key) else {
            self.pending.lock().remove(&key);
            self.contests.forget(&key);
            return Ok(None);
        };
        let share = self.share(&key, &service);
        let plan = plan::plan(&service, share.as_ref(), self.served);
        if let Some(patch) = plan.patch {
            let status = patch["status"].clone();
            if let Some(wait) = self.contests.wait(&key, &status) {
                return Ok(Some(wait));
            }
            if let Some(told) = &plan.before {
                self.tell(&service, told);
            }
            let written = self.write(&key, &service, patch).await;
            if let Err(ReconcileError::Api { source, .. }) = &written
                && !is_conflict(source)
            {
                let why = message_of(source);
                let message = format!("Error syncing load balancer: {why}");
                self.recorder
                    .warning(service.as_ref(), "SyncLoadBalancerFailed", message);
            }
            if !written? {
                return Ok(None);
            }
            if let Some(told) = &plan.after {
                self.tell(&service, told);
            }
            if self.contests.written(&key, status) {
                self.recorder
                    .warning(service.as_ref(), "SyncLoadBalancerFailed", CONTESTED);
            }
        }
        self.tell_pending(&key, &service, plan.pending);
        Ok(None)
    }
}

/// As it was, and as it is.
fn both<'a, K>(change: &Change<'a, K>) -> (Option<&'a Arc<K>>, Option<&'a Arc<K>>) {
    match change {
        Change::Added(new) => (None, Some(new)),
        Change::Updated { old, new } => (Some(old), Some(new)),
        Change::Deleted(old) => (Some(old), None),
    }
}

/// Whether what comes from outside stays on the node that it comes to.
fn is_local(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

/// Where its endpoints are ready.
fn ready_nodes(slice: &EndpointSlice) -> BTreeSet<String> {
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        // Unknown counts as ready, as the API has it.
        conditions.and_then(|all| all.ready).unwrap_or(true)
    });
    ready.filter_map(|one| one.node_name.clone()).collect()
}
