//! Which ServiceCIDRs are ready, and which may go: one that is deleted stays until no address of a
//! Service is left without a range.
//!
//! Another range covers an address if it is not being deleted itself, and cannot go without being
//! seen here. Upstream counts any, and lets two go together that cover each other.
//!
//! Source: `pkg/controller/servicecidrs/servicecidrs_controller.go`, `pkg/api/servicecidr` at
//! v1.37.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{IPAddress, ServiceCIDR},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::Client;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    clock::Clock,
    context::Context,
    controller::{Outcome, ReconcileError, Reconciler, or_event},
    event_recorder::component::ComponentRecorder,
    finalizer,
    writes::Write,
};

const NAME: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long one that nobody needs stays: what servers give out of it before they see that it goes
/// is seen here by then.
const GRACE: Duration = Duration::from_secs(10);

/// The controller; its state is in caches.
pub(crate) struct ServiceCidrController {
    client: Client,
    clock: Clock,
    recorder: ComponentRecorder,
    ranges: Arc<Cache<ServiceCIDR>>,
    addresses: Arc<Cache<IPAddress>>,
}

impl ServiceCidrController {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller = Builder::managed_by(manager, NAME, "ipaddresses");
        let this = Arc::new(Self {
            client: context.client.clone(),
            clock: context.config.clock.clone(),
            recorder: context.recorder.of(NAME),
            ranges: controller.reads(),
            addresses: controller.reads(),
        });
        controller.on_change(&this, Self::range_changed);
        controller.on_change(&this, Self::address_changed);
        controller.complete(this);
    }

    /// Those that overlap may be needed no more, or again.
    fn range_changed(&self, change: &Change<'_, ServiceCIDR>, queue: &Queue) {
        let changed = change.latest();
        queue.add(Key::of(changed.as_ref()));
        let nets = nets(changed);
        let overlapping = self.ranges.filter(|range| overlap(&nets, range));
        for range in overlapping {
            queue.add(Key::of(range.as_ref()));
        }
    }

    /// What is not to go, no address changes.
    fn address_changed(&self, change: &Change<'_, IPAddress>, queue: &Queue) {
        let Some(ip) = ip_of(change.latest()) else {
            return;
        };
        let going = self
            .ranges
            .filter(|range| is_going(range) && contains(range, ip));
        for range in going {
            queue.add(Key::of(range.as_ref()));
        }
    }
}

impl Reconciler for ServiceCidrController {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(range) = self.ranges.get(&key) else {
            return Ok(None);
        };
        if let Some(deleted) = &range.metadata.deletion_timestamp {
            return self.let_go(&range, deleted.0).await;
        }
        if finalizer::is_missing(&range.metadata, FINALIZER) {
            let call = "protect a ServiceCIDR";
            let written = finalizer::write(&self.client, &*range, FINALIZER, true, call);
            // The rest is done when it shows.
            or_event(written.await)?;
            return Ok(None);
        }
        let ready = State {
            status: "True",
            reason: "",
            message: "Kubernetes Service CIDR is ready",
        };
        self.say(&range, ready).await.inspect_err(|_| {
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            self.recorder
                .warning(&*range, "KubernetesServiceCIDRError", message);
        })?;
        Ok(None)
    }
}

impl ServiceCidrController {
    async fn let_go(&self, range: &Arc<ServiceCIDR>, deleted: Timestamp) -> Outcome {
        if !finalizer::has(&range.metadata, FINALIZER) {
            return Ok(None);
        }
        let staying = self.ranges.filter(is_staying);
        let addresses = self.addresses.filter(|address| ip_of(address).is_some());
        if is_needed(range, &staying, &addresses) {
            let terminating = State {
                status: "False",
                reason: "Terminating",
                message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
            };
            self.say(range, terminating).await?;
            return Ok(None);
        }
        if let Some(left) = left(deleted, self.clock.now()) {
            return Ok(Some(left));
        }
        let call = "let a ServiceCIDR go that nobody needs";
        let written = finalizer::write(&self.client, &**range, FINALIZER, false, call);
        or_event(written.await)?;
        Ok(None)
    }

    /// Writes the state that it is in, unless it says so already.
    async fn say(&self, range: &ServiceCIDR, state: State) -> Result<(), ReconcileError> {
        let now = self.clock.now();
        let write = Write::to(&self.client, range, "write the state of a ServiceCIDR");
        or_event(write.status(|range| state.set(range, now)).await)?;
        Ok(())
    }
}

/// What the condition `Ready` says.
#[derive(Clone, Copy)]
struct State {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

impl State {
    fn set(self, range: &mut ServiceCIDR, now: Timestamp) {
        let status = range.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        let is_said = |one: &Condition| {
            let said = (&*one.status, &*one.reason, &*one.message);
            one.type_ == "Ready" && said == (self.status, self.reason, self.message)
        };
        if conditions.iter().any(is_said) {
            return;
        }
        conditions.retain(|one| one.type_ != "Ready");
        conditions.push(Condition {
            type_: "Ready".to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.to_owned(),
            last_transition_time: Time(now),
            observed_generation: None,
        });
    }
}

/// Whether an address would be in no range without `going`.
fn is_needed(
    going: &ServiceCIDR,
    staying: &[Arc<ServiceCIDR>],
    addresses: &[Arc<IPAddress>],
) -> bool {
    let addresses = addresses.iter().filter_map(|address| ip_of(address));
    let mut own = addresses.filter(|ip| contains(going, *ip));
    own.any(|ip| !staying.iter().any(|range| contains(range, ip)))
}

fn is_going(range: &ServiceCIDR) -> bool {
    range.metadata.deletion_timestamp.is_some()
}

/// Whether it covers what others leave: one without the finalizer may be gone by now.
fn is_staying(range: &ServiceCIDR) -> bool {
    !is_going(range) && finalizer::has(&range.metadata, FINALIZER)
}

/// The address, if servers have given it to a Service.
fn ip_of(address: &IPAddress) -> Option<IpAddr> {
    let labels = address.metadata.labels.as_ref()?;
    let is_managed = labels.get(MANAGED_BY).is_some_and(|by| by == ALLOCATOR);
    let name = address.metadata.name.as_ref().filter(|_| is_managed)?;
    name.parse().ok()
}

fn nets(range: &ServiceCIDR) -> Vec<IpNet> {
    let cidrs = range
        .spec
        .iter()
        .flat_map(|spec| spec.cidrs.iter().flatten());
    cidrs.filter_map(|cidr| cidr.parse().ok()).collect()
}

fn overlap(nets: &[IpNet], range: &ServiceCIDR) -> bool {
    let others = self::nets(range);
    let mut all = nets.iter();
    all.any(|net| {
        let is_either = |other: &IpNet| other.contains(net) || net.contains(other);
        others.iter().any(is_either)
    })
}

/// Whether it can give out this address: a network's own and its broadcast address it cannot.
fn contains(range: &ServiceCIDR, ip: IpAddr) -> bool {
    let is_own = |net: &IpNet| match net {
        IpNet::V4(net) => net.network() == ip || net.broadcast() == ip,
        IpNet::V6(net) => net.network() == ip,
    };
    nets(range)
        .iter()
        .any(|net| net.contains(&ip) && !is_own(net))
}

/// What is left of [`GRACE`].
fn left(deleted: Timestamp, now: Timestamp) -> Option<Duration> {
    let since = Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    GRACE.checked_sub(since).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests;
