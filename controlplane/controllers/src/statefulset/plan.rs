//! Which pods of a StatefulSet come, go and change in one round. Pure.
//!
//! ```text
//! replicas, from the first > claims of those too many > those too many, from the last > pods of an older template
//! ```
//! In order, a pod waits until those before it are available, and nothing is taken away before. In
//! parallel, each step does all it can.
//!
//! Source: `pkg/controller/statefulset/stateful_set_control.go` (updateStatefulSet, processReplica,
//! processCondemned, updateStatefulSetAfterInvariantEstablished) at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{self, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::{
    identity::{self, claim_for, claim_templates, pod_name, revision_of},
    retention::Owners,
    view::{Place, View},
};
use crate::{pod::Pod, pod_state};

/// Most pods that one round makes.
const BURST: usize = 500;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// If one step fails, those behind it wait for another round.
    pub(super) steps: Vec<Vec<Action>>,
    /// Whether the actions of one step wait for each other.
    pub(super) is_ordered: bool,
    /// When to look again though nothing changes.
    pub(super) again: Option<Duration>,
}

/// What is done to one pod.
#[derive(Debug)]
pub(super) enum Action {
    Create {
        pod: Box<v1::Pod>,
        claims: Claims,
    },
    Delete(Arc<Pod>),
    /// The pod stays as it is, its claims do not.
    Claims {
        pod: Arc<Pod>,
        claims: Claims,
    },
    /// The pod is to be itself again.
    Update {
        pod: Arc<Pod>,
        ordinal: i32,
        /// Whether its labels or volumes are wrong, not its claims alone.
        is_changed: bool,
        claims: Claims,
    },
}

/// What is to be done about the claims of one pod.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) create: Vec<PersistentVolumeClaim>,
    /// Names of those that go: the pod waits for others with these names.
    pub(super) going: Vec<String>,
    /// Names of those that somebody else controls.
    pub(super) contested: Vec<String>,
    pub(super) give: Vec<NewOwners>,
}

/// A claim, and who shall own it.
#[derive(Debug)]
pub(super) struct NewOwners {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) owners: Vec<OwnerReference>,
}

impl Claims {
    fn is_empty(&self) -> bool {
        let Self {
            create,
            going,
            contested,
            give,
        } = self;
        create.is_empty() && going.is_empty() && contested.is_empty() && give.is_empty()
    }

    /// Without what only a pod that is to run needs.
    fn owners_alone(self) -> Self {
        Self {
            contested: self.contested,
            give: self.give,
            ..Self::default()
        }
    }
}

/// Plans one round. A set that is being deleted is left to its dependents' collection.
pub(super) fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan {
        is_ordered: view.is_ordered(),
        ..Plan::default()
    };
    let waits = view.pods().filter_map(|pod| view.until_available(pod));
    plan.again = waits.filter(|wait| !wait.is_zero()).min();
    if view.set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let (replicas, is_waited_for) = replicas(view);
    plan.steps.push(replicas);
    if is_waited_for {
        return plan;
    }
    let condemned = view.condemned();
    plan.steps.push(claims_of_condemned(view, &condemned));
    plan.steps.push(scale_down(view, &condemned));
    // Scaling comes first.
    if view.rolls() && (condemned.is_empty() || !plan.is_ordered) {
        plan.steps.push(roll(view));
    }
    plan
}

/// Every place has a pod that is as it shall be. Whether all else waits for one of them.
fn replicas(view: &View<'_>) -> (Vec<Action>, bool) {
    let (mut actions, mut missing) = (Vec::new(), 0);
    for place in view.places() {
        missing += usize::from(place.1.is_none());
        let holds_up = replica(view, place, &mut actions);
        if holds_up && view.is_ordered() || missing >= BURST {
            return (actions, true);
        }
    }
    (actions, false)
}

/// Whether the places behind this one wait for it, if there is an order.
fn replica(view: &View<'_>, (ordinal, pod): Place<'_>, actions: &mut Vec<Action>) -> bool {
    let Ok(number) = i32::try_from(ordinal) else {
        return true;
    };
    let Some(pod) = pod else {
        if !waits_for_claims(view, number) {
            let version = view.version_for(ordinal);
            let pod = identity::pod_for(view.set, (version.name, version.template), number);
            let (pod, claims) = (Box::new(pod), claims(view, number, None, false));
            actions.push(Action::Create { pod, claims });
        }
        return true;
    };
    if pod_state::is_finished(pod) {
        if !pod_state::is_terminating(pod) {
            actions.push(Action::Delete(Arc::clone(pod)));
        }
        return true;
    }
    if pod_state::phase(pod) == "Pending" {
        let claims = claims(view, number, Some(pod), false);
        if !claims.is_empty() {
            let pod = Arc::clone(pod);
            actions.push(Action::Claims { pod, claims });
        }
    }
    let is_running = pod_state::phase(pod) == "Running" && view.is_well(pod);
    if view.is_ordered() && !is_running {
        return true;
    }
    actions.extend(correction(view, number, pod));
    false
}

/// A pod whose identity, storage or claims' owners are not as they shall be.
fn correction(view: &View<'_>, ordinal: i32, pod: &Arc<Pod>) -> Option<Action> {
    let has_storage = identity::storage_matches(view.set, pod, ordinal);
    let mut claims = match pod_state::phase(pod) {
        // Looked at already.
        "Pending" => Claims::default(),
        _ => claims(view, ordinal, Some(pod), false),
    };
    if has_storage {
        claims = claims.owners_alone();
    }
    let is_changed = !has_storage || !identity::identity_matches(pod);
    if !is_changed && claims.give.is_empty() {
        return None;
    }
    let pod = Arc::clone(pod);
    Some(Action::Update {
        pod,
        ordinal,
        is_changed,
        claims,
    })
}

/// Whether a claim of this ordinal goes with the pod that had it before.
///
/// Source: `stateful_pod_control.go` (PodClaimIsStale).
fn waits_for_claims(view: &View<'_>, ordinal: i32) -> bool {
    let name = pod_name(view.set, ordinal);
    let owners = Owners::new(view.set, (&name, None), false);
    let names = claim_templates(view.set)
        .iter()
        .map(|template| identity::claim_name(view.set, template, ordinal));
    let mut claims = names.filter_map(|name| (view.claim)(&name));
    claims.any(|claim| {
        let known = claim.metadata.owner_references.as_deref();
        owners.goes_with_a_former_pod(known.unwrap_or_default())
    })
}

/// Source: `stateful_pod_control.go` (createPersistentVolumeClaims,
/// UpdatePodClaimForRetentionPolicy).
fn claims(view: &View<'_>, ordinal: i32, pod: Option<&Pod>, is_condemned: bool) -> Claims {
    let name = pod_name(view.set, ordinal);
    let owners = Owners::new(view.set, (&name, pod), is_condemned);
    let mut found = Claims::default();
    for template in claim_templates(view.set) {
        let name = identity::claim_name(view.set, template, ordinal);
        let Some(claim) = (view.claim)(&name) else {
            let mut claim = claim_for(view.set, template, ordinal);
            claim.metadata.owner_references = owners.of_new();
            found.create.push(claim);
            continue;
        };
        if claim.metadata.deletion_timestamp.is_some() {
            found.going.push(name.clone());
        }
        let known = claim.metadata.owner_references.as_deref();
        let known = known.unwrap_or_default();
        if owners.is_contested(known) {
            found.contested.push(name);
        }
        if let Some(owners) = owners.correction(known) {
            found.give.push(NewOwners { claim, owners });
        }
    }
    found
}

/// The claims of a pod that is one too many may go with it.
fn claims_of_condemned(view: &View<'_>, condemned: &[(i64, &Arc<Pod>)]) -> Vec<Action> {
    let of_one = |(ordinal, pod): &(i64, &Arc<Pod>)| {
        let ordinal = i32::try_from(*ordinal).ok()?;
        let claims = claims(view, ordinal, Some(pod), true).owners_alone();
        let pod = Arc::clone(pod);
        (!claims.give.is_empty()).then_some(Action::Claims { pod, claims })
    };
    condemned.iter().filter_map(of_one).collect()
}

/// Pods of places that nobody asks for go: in order the last one, once all others are available.
fn scale_down(view: &View<'_>, condemned: &[(i64, &Arc<Pod>)]) -> Vec<Action> {
    let delete = |pod: &Arc<Pod>| Action::Delete(Arc::clone(pod));
    let present = |pod: &Arc<Pod>| !pod_state::is_terminating(pod);
    if !view.is_ordered() {
        let pods = condemned.iter().map(|(_, pod)| *pod);
        return pods.filter(|pod| present(pod)).map(delete).collect();
    }
    let Some((last, pod)) = condemned.first() else {
        return Vec::new();
    };
    let first_unwell = condemned.iter().rev().find(|(_, pod)| !view.is_well(pod));
    let is_running = pod_state::phase(pod) == "Running" && view.is_available(pod);
    let goes = is_running || first_unwell.is_some_and(|(first, _)| first == last);
    let goes = goes && present(pod);
    goes.then(|| delete(pod)).into_iter().collect()
}

/// Pods of an older template go, from the last, as many as may be missing. In parallel, those that
/// do not serve go first, and all at once: it makes nothing worse, and a template that does not
/// work is left behind.
fn roll(view: &View<'_>) -> Vec<Action> {
    let well = view.replicas().filter(|(_, pod)| view.is_well(pod)).count();
    let wanted = usize::try_from(view.wanted()).unwrap_or(0);
    let unavailable = wanted.saturating_sub(well);
    let left = view.max_unavailable().saturating_sub(unavailable);
    let partition = view.partition();
    let is_old = |(ordinal, pod): &(i64, &Arc<Pod>)| {
        *ordinal >= partition
            && !pod_state::is_terminating(pod)
            && !pod_state::is_finished(pod)
            && revision_of(pod) != view.versions.update.name
    };
    let old = || view.replicas().rev().filter(is_old).map(|(_, pod)| pod);
    let delete = |pod: &Arc<Pod>| Action::Delete(Arc::clone(pod));
    if view.is_ordered() {
        return old().take(left).map(delete).collect();
    }
    let unavailable = old().filter(|pod| !view.is_available(pod));
    let available = old().filter(|pod| view.is_available(pod)).take(left);
    unavailable.chain(available).map(delete).collect()
}
