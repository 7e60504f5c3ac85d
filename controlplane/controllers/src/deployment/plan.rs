//! One look at a Deployment and its ReplicaSets: what to create, change and delete, and what the
//! status becomes.
//!
//! Pure: the same input gives the same plan, and a plan that was carried out gives an empty one.
//!
//! Source: `pkg/controller/deployment/{deployment_controller,sync,rolling,recreate,progress}.go` at
//! v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    jiff::Timestamp,
};

use super::{
    hash::same_template,
    replica_set::{Draft, REVISION, template_of},
    rollout::{self, Fleet},
    status::{self, Conditions},
    strategy::is_rolling,
};
use crate::{owner::controller_of, pod::Pod, pod_state};

/// What the plan is made from.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) deployment: &'a Deployment,
    /// All ReplicaSets that the Deployment owns.
    pub(super) replica_sets: &'a [Arc<ReplicaSet>],
    /// The pods of those ReplicaSets; looked at for Recreate only.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) now: Timestamp,
}

/// What to do, in this order: `create`, `update`, `delete`, then the revision, then the status.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Option<Draft>,
    pub(super) update: Vec<Draft>,
    pub(super) delete: Vec<Draft>,
    /// The revision annotation that the Deployment lacks.
    pub(super) revision: Option<String>,
    pub(super) status: DeploymentStatus,
    /// When to look again although nothing happens.
    pub(super) again: Option<Duration>,
}

/// Decides on the next step.
pub(super) fn plan(input: &Input<'_>) -> Plan {
    let deployment = input.deployment;
    let mut conditions = Conditions::of(deployment, input.now);
    let mut fleet = sort_out(input);
    // Its ReplicaSets are the garbage collector's by now.
    if deployment.metadata.deletion_timestamp.is_some() {
        let counts = status::plan_counts(deployment, &fleet, &mut conditions);
        return Plan {
            status: status::with_conditions(counts, conditions),
            ..Plan::default()
        };
    }
    conditions.check_paused(deployment);
    let mut revision = adopt_revision(deployment, &mut fleet, &mut conditions);

    let paused = deployment.spec.paused.unwrap_or(false);
    // As upstream, a rollout waits until all have the new size.
    if paused || rollout::is_scaling(deployment, &fleet) {
        rollout::scale(deployment, &mut fleet);
        let counts = status::plan_counts(deployment, &fleet, &mut conditions);
        if paused {
            mark_outdated(deployment, &mut fleet);
        }
        return finish(
            fleet,
            revision,
            status::with_conditions(counts, conditions),
            None,
        );
    }
    if is_rolling(deployment) {
        if !ensure_new(deployment, &mut fleet, &mut conditions, &mut revision) {
            rollout::roll(deployment, &mut fleet);
        }
    } else {
        // What is scaled down only now may have pods that nobody has told of yet.
        if !rollout::recreate(deployment, &mut fleet)
            && !old_pods_remain(input, &fleet)
            && !ensure_new(deployment, &mut fleet, &mut conditions, &mut revision)
        {
            rollout::scale_new(deployment, &mut fleet);
        }
    }
    let (counts, again) = status::plan_progress(deployment, &fleet, &mut conditions);
    if status::is_complete(deployment, &counts) {
        mark_outdated(deployment, &mut fleet);
    }
    finish(
        fleet,
        revision,
        status::with_conditions(counts, conditions),
        again,
    )
}

/// Status after the new ReplicaSet could not be made.
pub(super) fn status_after_failed_create(
    deployment: &Deployment,
    now: Timestamp,
    message: String,
) -> DeploymentStatus {
    let mut conditions = Conditions::of(deployment, now);
    conditions.failed_create(message);
    status::with_conditions(deployment.status.clone().unwrap_or_default(), conditions)
}

/// Splits the ReplicaSets into the one of the present template (the oldest, if there are several)
/// and the others.
fn sort_out(input: &Input<'_>) -> Fleet {
    let template = template_of(input.deployment);
    let mut drafts: Vec<Draft> = input.replica_sets.iter().map(Draft::existing).collect();
    drafts.sort_by(|a, b| (a.created(), a.name()).cmp(&(b.created(), b.name())));
    let new = drafts
        .iter()
        .position(|draft| same_template(&draft.template(), &template))
        .map(|at| drafts.remove(at));
    Fleet { new, old: drafts }
}

/// Gives an existing new ReplicaSet its revision and annotations, and says which revision the
/// Deployment lacks.
fn adopt_revision(
    deployment: &Deployment,
    fleet: &mut Fleet,
    conditions: &mut Conditions,
) -> Option<String> {
    let revision = next_revision(fleet);
    let new = fleet.new.as_mut()?;
    new.inherit(deployment, revision);
    new.follow_min_ready(deployment);
    conditions.found_new(new.name());
    lacking_revision(deployment, new)
}

fn next_revision(fleet: &Fleet) -> i64 {
    fleet.old.iter().map(Draft::revision).max().unwrap_or(0) + 1
}

fn lacking_revision(deployment: &Deployment, new: &Draft) -> Option<String> {
    let revision = new.revision().to_string();
    let known = deployment
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(REVISION));
    (known != Some(&revision)).then_some(revision)
}

/// Drafts the new ReplicaSet if there is none; whether it did.
fn ensure_new(
    deployment: &Deployment,
    fleet: &mut Fleet,
    conditions: &mut Conditions,
    lacking: &mut Option<String>,
) -> bool {
    if fleet.new.is_some() {
        return false;
    }
    let mut draft = Draft::fresh(deployment);
    draft.inherit(deployment, next_revision(fleet));
    let size = rollout::new_replicas(deployment, fleet);
    draft.scale(size, deployment);
    conditions.created_new(draft.name());
    *lacking = lacking_revision(deployment, &draft);
    fleet.new = Some(draft);
    true
}

/// Whether pods of former templates still exist, running or going.
fn old_pods_remain(input: &Input<'_>, fleet: &Fleet) -> bool {
    if fleet.old.iter().any(|draft| draft.actual() > 0) {
        return true;
    }
    let new_uid = fleet
        .new
        .as_ref()
        .and_then(|new| new.rs.metadata.uid.as_deref());
    input.pods.iter().any(|pod| {
        let of_new =
            controller_of(&pod.metadata).is_some_and(|owner| Some(owner.uid.as_str()) == new_uid);
        !of_new && !pod_state::is_finished(pod)
    })
}

/// Marks the oldest of the empty ReplicaSets beyond the history limit for deletion.
fn mark_outdated(deployment: &Deployment, fleet: &mut Fleet) {
    let Some(limit) = deployment.spec.revision_history_limit else {
        return;
    };
    if limit == i32::MAX {
        return;
    }
    fleet
        .old
        .sort_by_key(|draft| (draft.revision(), draft.created()));
    let alive: Vec<usize> = (0..fleet.old.len())
        .filter(|at| fleet.old[*at].rs.metadata.deletion_timestamp.is_none())
        .collect();
    let surplus = alive
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    for at in alive.into_iter().take(surplus) {
        let draft = &mut fleet.old[at];
        let observed = draft
            .rs
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        let settled = draft.rs.metadata.generation <= observed;
        draft.outdated = settled && draft.actual() == 0 && draft.replicas() == 0 && !draft.changed;
    }
}

fn finish(
    fleet: Fleet,
    revision: Option<String>,
    status: DeploymentStatus,
    again: Option<Duration>,
) -> Plan {
    let mut plan = Plan {
        revision,
        status,
        again,
        ..Plan::default()
    };
    for draft in fleet.new.into_iter().chain(fleet.old) {
        if draft.fresh {
            plan.create = Some(draft);
        } else if draft.outdated {
            plan.delete.push(draft);
        } else if draft.changed {
            plan.update.push(draft);
        }
    }
    plan
}
