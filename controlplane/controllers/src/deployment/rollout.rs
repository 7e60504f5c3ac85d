//! How many replicas each ReplicaSet of a Deployment should have now: scaling, rolling update,
//! recreate. Pure.
//!
//! Source: `pkg/controller/deployment/{rolling,recreate,sync}.go` at v1.37.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::Deployment;

use super::{
    replica_set::{Draft, total_available, total_replicas},
    strategy::{is_rolling, max_surge, max_unavailable, replicas_of},
};

/// The ReplicaSets of one Deployment.
#[derive(Debug, Clone)]
pub(super) struct Fleet {
    /// Of the present template.
    pub(super) new: Option<Draft>,
    /// Of all former templates.
    pub(super) old: Vec<Draft>,
}

impl Fleet {
    pub(super) fn all(&self) -> impl Iterator<Item = &Draft> {
        self.new.iter().chain(&self.old)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Draft> {
        self.new.iter_mut().chain(&mut self.old)
    }
}

/// The size of the new ReplicaSet: as much as the surge leaves room for, at most what is wanted.
pub(super) fn new_replicas(deployment: &Deployment, fleet: &Fleet) -> i32 {
    let wanted = replicas_of(deployment);
    let present = fleet.new.as_ref().map_or(0, Draft::replicas);
    if !is_rolling(deployment) {
        return wanted;
    }
    let most = wanted.saturating_add(max_surge(deployment));
    let room = most.saturating_sub(total_replicas(fleet.all()));
    if room <= 0 {
        present
    } else {
        present + room.min(wanted - present)
    }
}

/// Whether somebody changed the Deployment's size since its ReplicaSets were scaled.
pub(super) fn is_scaling(deployment: &Deployment, fleet: &Fleet) -> bool {
    let wanted = replicas_of(deployment);
    fleet.all().any(|draft| {
        draft.replicas() > 0
            && draft
                .desired_before()
                .is_some_and(|before| before != wanted)
    })
}

/// One step of a rolling update. First up, and only if there is nothing to add, down.
pub(super) fn roll(deployment: &Deployment, fleet: &mut Fleet) {
    if !scale_new(deployment, fleet) {
        scale_down_old(deployment, fleet);
    }
}

/// One step of a recreate: all the old go before any new comes. Says whether any had to.
pub(super) fn recreate(deployment: &Deployment, fleet: &mut Fleet) -> bool {
    let mut went = false;
    for draft in fleet.old.iter_mut().filter(|draft| draft.replicas() > 0) {
        draft.scale(0, deployment);
        went = true;
    }
    went
}

/// Brings the new ReplicaSet to its size of this moment; whether that changed anything.
pub(super) fn scale_new(deployment: &Deployment, fleet: &mut Fleet) -> bool {
    let wanted = replicas_of(deployment);
    let Some(present) = fleet.new.as_ref().map(Draft::replicas) else {
        return false;
    };
    let target = if present > wanted {
        wanted
    } else {
        new_replicas(deployment, fleet)
    };
    let Some(new) = &mut fleet.new else {
        return false;
    };
    if present == wanted || target == present {
        return false;
    }
    new.scale(target, deployment);
    true
}

/// Takes replicas from the old ReplicaSets as far as availability allows, unhealthy ones first.
fn scale_down_old(deployment: &Deployment, fleet: &mut Fleet) {
    if total_replicas(&fleet.old) == 0 {
        return;
    }
    let min_available = replicas_of(deployment) - max_unavailable(deployment);
    let new_unavailable = fleet
        .new
        .as_ref()
        .map_or(0, |new| new.replicas() - new.available());
    let beyond = total_replicas(fleet.all()).saturating_sub(min_available);
    let may_go = beyond.saturating_sub(new_unavailable);
    if may_go <= 0 {
        return;
    }
    fleet.old.sort_by_key(Draft::created);
    let removed = remove_unhealthy(deployment, &mut fleet.old, may_go);

    // The status may lag behind a scaling of a moment ago, the sizes do not: what they allow is the
    // limit.
    let mut surplus = total_available(fleet.all())
        .saturating_sub(min_available)
        .min(may_go - removed);
    for draft in fleet.old.iter_mut().filter(|draft| draft.replicas() > 0) {
        if surplus <= 0 {
            break;
        }
        let step = draft.replicas().min(surplus);
        draft.scale(draft.replicas() - step, deployment);
        surplus -= step;
    }
}

/// Replicas that serve nobody go first, for removing them costs no availability. Says how many
/// went.
fn remove_unhealthy(deployment: &Deployment, old: &mut [Draft], may_go: i32) -> i32 {
    let mut removed = 0;
    for draft in old {
        let unhealthy = draft.replicas() - draft.available();
        if removed >= may_go || unhealthy <= 0 {
            continue;
        }
        let step = unhealthy.min(may_go - removed);
        draft.scale(draft.replicas() - step, deployment);
        removed += step;
    }
    removed
}

/// Follows a change of the Deployment's size without rolling anything out.
pub(super) fn scale(deployment: &Deployment, fleet: &mut Fleet) {
    let wanted = replicas_of(deployment);
    if let Some(only) = active_or_latest(fleet) {
        only.scale(wanted, deployment);
        return;
    }
    let saturated = fleet.new.as_ref().is_some_and(|new| {
        new.replicas() == wanted
            && new.desired_before() == Some(wanted)
            && new.available() == wanted
    });
    if saturated {
        for draft in fleet.old.iter_mut().filter(|draft| draft.replicas() > 0) {
            draft.scale(0, deployment);
        }
        return;
    }
    if is_rolling(deployment) {
        return scale_proportionally(deployment, fleet);
    }
    // A Recreate amid has nothing to spread: the new size is noted, and the rollout goes on with
    // it.
    fleet
        .all_mut()
        .filter(|draft| draft.replicas() > 0)
        .for_each(|draft| draft.note_size(deployment));
}

/// The single ReplicaSet with replicas; without any, the newest. `None` if there are several with
/// replicas.
fn active_or_latest(fleet: &mut Fleet) -> Option<&mut Draft> {
    let active = fleet.all().filter(|draft| draft.replicas() > 0).count();
    match active {
        0 if fleet.new.is_some() => fleet.new.as_mut(),
        0 => fleet.old.iter_mut().max_by_key(|draft| draft.created()),
        1 => fleet.all_mut().find(|draft| draft.replicas() > 0),
        _ => None,
    }
}

/// Spreads a change of size over ReplicaSets by their share, so that a rollout amid keeps its
/// proportions.
fn scale_proportionally(deployment: &Deployment, fleet: &mut Fleet) {
    let wanted = replicas_of(deployment);
    let allowed = if wanted > 0 {
        wanted.saturating_add(max_surge(deployment))
    } else {
        0
    };
    let to_add = allowed.saturating_sub(total_replicas(fleet.all()));
    let before = deployment
        .status
        .as_ref()
        .and_then(|status| status.replicas)
        .unwrap_or(0);
    let mut active: Vec<&mut Draft> = fleet
        .all_mut()
        .filter(|draft| draft.replicas() > 0)
        .collect();
    // Growing favours the newest of equal size, shrinking the oldest.
    if to_add > 0 {
        active.sort_by_key(|draft| (Reverse(draft.replicas()), Reverse(draft.created())));
    } else {
        active.sort_by_key(|draft| (Reverse(draft.replicas()), draft.created()));
    }
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
    for draft in &active {
        let share = share_of(draft, wanted, max_surge(deployment), before, to_add, added);
        sizes.push(draft.replicas().saturating_add(share));
        added = share.saturating_add(added);
    }
    // What rounding leaves over goes to the first.
    if let Some(first) = sizes.first_mut() {
        *first = first.saturating_add(to_add.saturating_sub(added)).max(0);
    }
    for (draft, size) in active.into_iter().zip(sizes) {
        draft.scale(size, deployment);
    }
}

fn share_of(
    draft: &Draft,
    wanted: i32,
    surge: i32,
    status_replicas: i32,
    to_add: i32,
    added: i32,
) -> i32 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = if wanted == 0 {
        -draft.replicas()
    } else {
        let max_before = draft
            .max_before()
            .filter(|max| *max != 0)
            .unwrap_or(status_replicas);
        if max_before == 0 {
            return 0;
        }
        let most = f64::from(wanted.saturating_add(surge));
        let scaled = f64::from(draft.replicas()) * most / f64::from(max_before);
        round(scaled).saturating_sub(draft.replicas())
    };
    let left = to_add.saturating_sub(added);
    if to_add > 0 {
        fraction.min(left)
    } else {
        fraction.max(left)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float beyond the limits of i32 becomes the nearest of them"
)]
fn round(number: f64) -> i32 {
    number.round() as i32
}
