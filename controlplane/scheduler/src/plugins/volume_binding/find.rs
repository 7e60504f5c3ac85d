//! Whether a node will do for the claims of a pod, and which volumes they get there. Pure.
//!
//! Source: `FindPodVolumes` and what it calls in
//! `pkg/scheduler/framework/plugins/volumebinding/binder.go` at v1.37.

use std::collections::HashSet;

use coracle_api::{
    scheduling::NodeView,
    selector::{LabelSelector, ParseSelectorError},
    volume::{
        NO_PROVISIONER, Search, class_of_claim, find_matching, node_affinity_matches, requested,
    },
};
use coracle_client::cache::Key;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm},
    storage::v1::StorageClass,
};

use super::wanted::{Room, Unbound, Wanted};

/// What the claims of a pod get on a node.
#[derive(Debug, Default)]
pub(super) struct Plan<'w> {
    /// Volumes that are there, each for a claim.
    pub(super) matches: Vec<(&'w PersistentVolume, &'w PersistentVolumeClaim)>,
    /// Claims for which a volume is to be made.
    pub(super) provisions: Vec<&'w PersistentVolumeClaim>,
}

/// Why a node will not do; the texts are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Conflict {
    /// It does not reach the volume of a bound claim.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    Affinity,
    /// It reaches no volume for a claim, and none can be made for it.
    #[error("node(s) didn't find available persistent volumes to bind")]
    NoVolume,
    /// A volume cannot be made for want of room.
    #[error("node(s) did not have enough free storage")]
    NoRoom,
    /// The volume of a bound claim is not there.
    #[error("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")]
    VolumeGone,
}

/// Why nothing can be said about a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum FindError {
    /// The selector of a claim cannot be meant.
    #[error("error creating internal label selector for claim {0}")]
    Selector(Key, #[source] ParseSelectorError),
    /// A volume is to be made for a claim that is of no class.
    #[error("no class for claim {:?}", .0.to_string())]
    NoClass(Key),
    /// The class of a claim is gone.
    #[error("failed to find storage class {0:?}")]
    ClassGone(String),
}

/// What the claims get on this node.
///
/// # Errors
/// Inside, why the node will not do.
pub(super) fn find<'w>(
    wanted: &'w Wanted,
    node: NodeView<'_>,
) -> Result<Result<Plan<'w>, Vec<Conflict>>, FindError> {
    let of_bound = check_bound(wanted, node);
    let (plan, of_unbound) = match plan(&wanted.unbound, node)? {
        Ok(plan) => (plan, None),
        Err(conflict) => (Plan::default(), Some(conflict)),
    };
    let conflicts: Vec<Conflict> = match (of_bound, of_unbound) {
        // In upstream's order.
        (Some(Conflict::VolumeGone), Some(other)) => vec![other, Conflict::VolumeGone],
        (one, other) => one.into_iter().chain(other).collect(),
    };
    Ok(if conflicts.is_empty() {
        Ok(plan)
    } else {
        Err(conflicts)
    })
}

/// By the first of the bound claims that stands against the node.
fn check_bound(wanted: &Wanted, node: NodeView<'_>) -> Option<Conflict> {
    wanted.bound.iter().find_map(|volume| match volume {
        None => Some(Conflict::VolumeGone),
        Some(volume) => (!node_affinity_matches(volume, node)).then_some(Conflict::Affinity),
    })
}

fn plan<'w>(
    unbound: &'w [Unbound],
    node: NodeView<'_>,
) -> Result<Result<Plan<'w>, Conflict>, FindError> {
    let mut plan = Plan::default();
    let is_elsewhere = |one: &Unbound| one.selected_node().is_some_and(|it| it != node.name);
    if unbound.iter().any(is_elsewhere) {
        return Ok(Err(Conflict::NoVolume));
    }
    let is_selected = |one: &&Unbound| one.selected_node().is_some();
    let mut unmatched: Vec<&Unbound> = unbound.iter().filter(is_selected).collect();
    let mut chosen = HashSet::new();
    for one in unbound.iter().filter(|one| !is_selected(one)) {
        let volumes = one.volumes.iter().map(|volume| &**volume);
        let found = find_matching(&one.claim, volumes, Search::OnNode(node), &chosen)
            .map_err(|error| FindError::Selector(Key::of(&*one.claim), error))?;
        match found {
            Some(volume) => {
                chosen.extend(volume.metadata.name.clone());
                plan.matches.push((volume, &one.claim));
            }
            None => unmatched.push(one),
        }
    }
    for one in unmatched {
        if let Some(conflict) = check_provision(one, node)? {
            return Ok(Err(conflict));
        }
        plan.provisions.push(&one.claim);
    }
    Ok(Ok(plan))
}

/// What stands against making a volume for a claim.
fn check_provision(one: &Unbound, node: NodeView<'_>) -> Result<Option<Conflict>, FindError> {
    let name = class_of_claim(&one.claim);
    if name.is_empty() {
        return Err(FindError::NoClass(Key::of(&*one.claim)));
    }
    let class = one.class.as_ref();
    let class = class.ok_or_else(|| FindError::ClassGone(name.to_owned()))?;
    let conflict = if !is_provisioned(class) || !allows(class, node) {
        Some(Conflict::NoVolume)
    } else if has_room(one, node) {
        None
    } else {
        Some(Conflict::NoRoom)
    };
    Ok(conflict)
}

fn is_provisioned(class: &StorageClass) -> bool {
    !matches!(&*class.provisioner, "" | NO_PROVISIONER)
}

/// Whether volumes of the class can be made for the node. Terms are alternatives, and one that asks
/// for nothing is none.
///
/// Source: `MatchTopologySelectorTerms` in `pkg/apis/core/v1/helper/helpers.go` at v1.37.
fn allows(class: &StorageClass, node: NodeView<'_>) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let meets = |term: &TopologySelectorTerm| {
        let mut labels = term.match_label_expressions.iter().flatten();
        let has_any = term
            .match_label_expressions
            .as_ref()
            .is_some_and(|it| !it.is_empty());
        has_any
            && labels.all(|label| {
                let has = node.labels.get(&label.key);
                has.is_some_and(|has| label.values.contains(has))
            })
    };
    terms.is_empty() || terms.iter().any(meets)
}

fn has_room(one: &Unbound, node: NodeView<'_>) -> bool {
    let Some(rooms) = &one.room else { return true };
    let size = requested(&one.claim);
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let has = |room: &Room| {
        let reaches = |nodes: &LabelSelector| nodes.matches(label);
        room.limit.value() >= size.value() && room.nodes.as_ref().is_some_and(reaches)
    };
    // Whoever asks for no size asks for no room.
    size.is_zero() || rooms.iter().any(has)
}
