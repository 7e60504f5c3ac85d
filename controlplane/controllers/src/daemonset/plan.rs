//! Which pods of a DaemonSet come and go in one round. Pure.
//!
//! Source: `pkg/controller/daemon/daemon_controller.go` (manage, podsShouldBeOnNode), `update.go`
//! (rollingUpdate, findUpdatedPodsOnNode) at v1.37.

use std::{sync::Arc, time::Duration};

use super::{
    failed::Failures,
    node::Place,
    view::{OnNode, View},
};
use crate::{pod::Pod, pod_state};

/// Most creates, and most deletes, of one round.
const BURST_REPLICAS: usize = 250;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    pub(super) told: Vec<Ended>,
    /// When to look again though nothing changes.
    pub(super) again: Option<Duration>,
}

/// A pod that has ended, which none of a DaemonSet's should.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) has_failed: bool,
    pub(super) message: String,
}

impl Plan {
    fn look_again(&mut self, after: Option<Duration>) {
        self.again = [self.again, after].into_iter().flatten().min();
    }

    fn delete(&mut self, pod: &Arc<Pod>) {
        self.delete.push(Arc::clone(pod));
    }
}

/// First every node has one pod, then they are replaced by newer ones, a few at a time.
pub(super) fn plan(view: &View<'_>, failures: &mut Failures) -> Plan {
    let mut plan = Plan::default();
    for (name, node) in &view.nodes {
        on_node(view, name, node, failures, &mut plan);
    }
    let unbound = |pod: &&&Arc<Pod>| pod_state::node_name(pod).is_empty();
    for pod in view.lost.iter().filter(unbound) {
        if !pod_state::is_terminating(pod) {
            plan.delete(pod);
        }
    }
    if view.rolls() && plan.create.is_empty() && plan.delete.is_empty() {
        roll(view, &mut plan);
    }
    plan.create.truncate(BURST_REPLICAS);
    plan.delete.truncate(BURST_REPLICAS);
    plan
}

fn on_node(
    view: &View<'_>,
    name: &str,
    node: &OnNode<'_>,
    failures: &mut Failures,
    plan: &mut Plan,
) {
    let present = node
        .pods
        .iter()
        .filter(|pod| !pod_state::is_terminating(pod));
    match node.place {
        Place::Leave => present.for_each(|pod| plan.delete(pod)),
        Place::Run if node.pods.is_empty() => plan.create.push(name.to_owned()),
        Place::Run | Place::Keep => {
            let (mut running, mut waits) = (Vec::new(), false);
            for pod in present {
                if pod_state::is_finished(pod) {
                    waits |= !ended(view, name, pod, failures, plan);
                } else {
                    running.push(*pod);
                }
            }
            if !view.surges() {
                running.iter().skip(1).for_each(|pod| plan.delete(pod));
            } else if running.len() > 1 {
                one_of_each(view, &running, plan);
            } else if running.is_empty() && !waits && node.place == Place::Run {
                plan.create.push(name.to_owned());
            }
        }
    }
}

/// Deletes a pod that has ended, unless its node has to wait for the next one; whether it did.
fn ended(
    view: &View<'_>,
    node: &str,
    pod: &Arc<Pod>,
    failures: &mut Failures,
    plan: &mut Plan,
) -> bool {
    let has_failed = pod_state::phase(pod) == "Failed";
    let meta = &view.ds.metadata;
    let observed = view
        .ds
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    let owner = (
        meta.uid.as_deref().unwrap_or_default(),
        observed.unwrap_or(0),
    );
    if has_failed && let Some(pause) = failures.seen(owner, node, view.now) {
        plan.look_again(Some(pause));
        return false;
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let (how, end) = if has_failed {
        ("failed", "kill")
    } else {
        ("succeeded", "delete")
    };
    plan.told.push(Ended {
        has_failed,
        message: format!(
            "Found {how} daemon pod {namespace}/{name} on node {node}, will try to {end} it"
        ),
    });
    plan.delete(pod);
    true
}

/// Where pods may be two, they are one of the new template and one of an older one, until the new
/// one is available or the older one is not ready.
fn one_of_each(view: &View<'_>, running: &[&Arc<Pod>], plan: &mut Plan) {
    let (mut new, mut old) = (None, None);
    for pod in running {
        let kept = if view.is_updated(pod) {
            &mut new
        } else {
            &mut old
        };
        match kept {
            None => *kept = Some(*pod),
            Some(_) => plan.delete(pod),
        }
    }
    let (Some(new), Some(old)) = (new, old) else {
        return;
    };
    if !pod_state::is_ready(old) || view.is_available(new) {
        plan.delete(old);
    } else {
        plan.look_again(view.until_available(new));
    }
}

/// The pods of one node by their template.
#[derive(Default)]
struct Versions<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// `None` if there are several of either: the surplus goes first.
fn versions<'a>(view: &View<'_>, node: &OnNode<'a>) -> Option<Versions<'a>> {
    let mut found = Versions::default();
    for pod in node
        .pods
        .iter()
        .filter(|pod| !pod_state::is_terminating(pod))
    {
        let kept = if view.is_updated(pod) {
            &mut found.new
        } else {
            &mut found.old
        };
        if kept.replace(pod).is_some() {
            return None;
        }
    }
    Some(found)
}

fn roll(view: &View<'_>, plan: &mut Plan) {
    let desired = view.desired();
    let (surge, mut unavailable) = (view.max_surge(desired), view.max_unavailable(desired));
    if surge == 0 && unavailable == 0 {
        // What a percentage of few nodes may come to. Nothing would ever change.
        unavailable = 1;
    }
    let nodes = view
        .nodes
        .iter()
        .filter(|(_, node)| node.place == Place::Run || !node.pods.is_empty());
    if surge == 0 {
        let nodes = nodes.map(|(_, node)| versions(view, node).unwrap_or_default());
        delete_then_create(view, nodes, unavailable, plan);
    } else {
        let nodes = nodes.map(|(name, node)| (*name, node));
        create_then_delete(view, nodes, surge, plan);
    }
}

/// Old pods that are not available go, and of the others as many as may be missing beside them.
fn delete_then_create<'a>(
    view: &View<'_>,
    nodes: impl Iterator<Item = Versions<'a>>,
    max_unavailable: i32,
    plan: &mut Plan,
) {
    let (mut unavailable, mut candidates) = (0, Vec::new());
    for found in nodes {
        match (found.new, found.old) {
            (None, None) | (Some(_), Some(_)) => unavailable += 1,
            (Some(new), None) => unavailable += i32::from(!view.is_available(new)),
            (None, Some(old)) if view.is_available(old) => candidates.push(old),
            (None, Some(old)) => {
                plan.delete(old);
                unavailable += 1;
            }
        }
    }
    let left = usize::try_from(max_unavailable.saturating_sub(unavailable)).unwrap_or(0);
    candidates
        .iter()
        .take(left)
        .for_each(|pod| plan.delete(pod));
}

/// New pods come beside old ones, as many as may be there twice; an old one goes when its new one
/// is available. Where no new one may come, an old one goes when it is of no use, or when as many
/// are available elsewhere as should be.
fn create_then_delete<'a>(
    view: &View<'_>,
    nodes: impl Iterator<Item = (&'a str, &'a OnNode<'a>)>,
    max_surge: i32,
    plan: &mut Plan,
) {
    let (mut surging, mut candidates) = (0, Vec::new());
    let (mut available, mut unwanted) = (0, Vec::new());
    for (name, node) in nodes {
        let Some(found) = versions(view, node) else {
            surging += 1;
            continue;
        };
        let counts = found.old.or(found.new);
        available += i32::from(counts.is_some_and(|pod| view.is_available(pod)));
        let runs = node.place == Place::Run;
        match (found.new, found.old) {
            // A failed one whose time to go has not come.
            (None, Some(old)) if pod_state::is_finished(old) => {}
            (None, Some(old)) => match (runs, view.is_available(old)) {
                (true, true) => candidates.push(name),
                (true, false) => plan.create.push(name.to_owned()),
                (false, true) => unwanted.push(old),
                (false, false) => plan.delete(old),
            },
            (Some(new), Some(old)) if view.is_available(new) => plan.delete(old),
            (Some(_), Some(_)) => surging += 1,
            (_, None) => {}
        }
    }
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    let beyond = count(available.saturating_sub(view.desired()));
    let going = unwanted.into_iter().take(beyond);
    going.for_each(|pod| plan.delete(pod));
    let left = count(max_surge.saturating_sub(surging));
    let chosen = candidates.into_iter().take(left);
    plan.create.extend(chosen.map(str::to_owned));
}
