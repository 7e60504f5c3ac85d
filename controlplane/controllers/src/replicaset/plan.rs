//! What a ReplicaSet or ReplicationController should do next, as pure functions of its
//! spec and its pods.
//!
//! Source: `pkg/controller/replicaset/replica_set.go`, `replica_set_utils.go` and
//! `pkg/controller/controller_utils.go` (ActivePodsWithRanks) at v1.37.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSetCondition, ReplicaSetStatus},
        core::v1,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::api::ObjectMeta;

use super::Replicas;
use crate::{
    owner::controller_reference,
    pod::Pod,
    pod_state::{self, until_available},
};

/// Most creates or deletes of one round.
pub(super) const BURST_REPLICAS: usize = 500;
/// Lower is deleted first; 0 by default.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The condition that tells of failing creates or deletes.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The pods that are missing or too many.
#[derive(Debug)]
pub(super) enum ScalePlan {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// Compares the wanted number with the `active` pods. `related` are the active pods of all
/// ReplicaSets with the same controller: among equals, those go first that share their node with
/// most of them.
pub(super) fn plan_scale(
    replicas: i32,
    active: &[Arc<Pod>],
    related: &[Arc<Pod>],
    now: Timestamp,
) -> ScalePlan {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    match active.len().cmp(&wanted) {
        Ordering::Equal => ScalePlan::Nothing,
        Ordering::Less => ScalePlan::Create((wanted - active.len()).min(BURST_REPLICAS)),
        Ordering::Greater => {
            let surplus = (active.len() - wanted).min(BURST_REPLICAS);
            ScalePlan::Delete(
                rank_for_deletion(active, related, now)
                    .into_iter()
                    .take(surplus)
                    .collect(),
            )
        }
    }
}

/// Sorts pods so that those that are missed least come first.
fn rank_for_deletion(active: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related {
        *on_node.entry(pod_state::node_name(pod)).or_default() += 1;
    }
    let mut ranked: Vec<Arc<Pod>> = active.to_vec();
    ranked.sort_by_cached_key(|pod| {
        let neighbours = on_node.get(pod_state::node_name(pod)).copied().unwrap_or(0);
        deletion_rank(pod, neighbours, now)
    });
    ranked
}

/// Smaller goes first.
type DeletionRank = (
    bool,
    u8,
    bool,
    i32,
    Reverse<usize>,
    u32,
    Reverse<i32>,
    u32,
    String,
);

fn deletion_rank(pod: &Pod, neighbours: usize, now: Timestamp) -> DeletionRank {
    let assigned = !pod_state::node_name(pod).is_empty();
    let phase = match pod_state::phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let cost = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(DELETION_COST)?.parse().ok())
        .unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        assigned,
        phase,
        pod_state::is_ready(pod),
        cost,
        Reverse(neighbours),
        age_bucket(pod_state::ready_since(pod), now),
        Reverse(restarts(pod)),
        age_bucket(created, now),
        // A uid is as good as random: ties within a bucket do not depend on age.
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

/// Logarithm of the age in seconds: pods of about the same age are equal, the younger bucket comes
/// first.
fn age_bucket(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let Some(since) = since else { return 0 };
    let seconds = u64::try_from(now.duration_since(since).as_secs()).unwrap_or(0);
    seconds.checked_ilog2().map_or(0, |bucket| bucket + 1)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .iter()
        .filter_map(|status| status.container_statuses.as_ref())
        .flatten();
    statuses
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}

/// What a failed round did not manage.
#[derive(Debug)]
pub(super) struct ManageFailure {
    /// `FailedCreate` or `FailedDelete`.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The status that the pods add up to, and when it may change by the mere passing of time.
pub(super) fn plan_status(
    rs: &impl Replicas,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&ManageFailure>,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<Duration>) {
    let min_ready = rs.min_ready_seconds();
    let template = rs
        .template()
        .and_then(|template| template.metadata.as_ref());
    let template_labels = template
        .and_then(|metadata| metadata.labels.clone())
        .unwrap_or_default();
    let (mut fully_labelled, mut ready, mut available) = (0, 0, 0);
    let mut check_again: Option<Duration> = None;
    for pod in active {
        fully_labelled += i32::from(carries_all(pod, &template_labels));
        match until_available(pod, min_ready, now) {
            None => {}
            Some(Duration::ZERO) => {
                ready += 1;
                available += 1;
            }
            Some(wait) => {
                ready += 1;
                check_again = Some(check_again.map_or(wait, |sooner| sooner.min(wait)));
            }
        }
    }
    let old = rs.status().unwrap_or_default();
    let status = ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: Some(fully_labelled),
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        terminating_replicas: Some(count(terminating)),
        observed_generation: rs.meta().generation,
        conditions: conditions(old.conditions, failure, now),
    };
    (status, check_again)
}

fn carries_all(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    let own = pod.metadata.labels.as_ref();
    labels
        .iter()
        .all(|(key, value)| own.and_then(|own| own.get(key)) == Some(value))
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<&ManageFailure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_.as_deref() != Some(REPLICA_FAILURE)),
        Some(_)
            if conditions
                .iter()
                .any(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE)) => {}
        Some(failure) => conditions.push(ReplicaSetCondition {
            type_: Some(REPLICA_FAILURE.into()),
            status: Some("True".into()),
            reason: Some(failure.reason.into()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Whether `new` says anything that `old` does not.
pub(super) fn status_differs(old: Option<&ReplicaSetStatus>, new: &ReplicaSetStatus) -> bool {
    let Some(old) = old else { return true };
    let zero = |number: Option<i32>| number.unwrap_or(0);
    old.replicas != new.replicas
        || zero(old.fully_labeled_replicas) != zero(new.fully_labeled_replicas)
        || zero(old.ready_replicas) != zero(new.ready_replicas)
        || zero(old.available_replicas) != zero(new.available_replicas)
        || zero(old.terminating_replicas) != zero(new.terminating_replicas)
        || old.observed_generation != new.observed_generation
        || old.conditions.clone().unwrap_or_default() != new.conditions.clone().unwrap_or_default()
}

/// The pod that its template describes, owned by `rs`.
pub(super) fn pod_from_template(rs: &impl Replicas) -> v1::Pod {
    let template = rs.template().cloned().unwrap_or_default();
    let of_template = template.metadata.unwrap_or_default();
    v1::Pod {
        metadata: ObjectMeta {
            namespace: rs.meta().namespace.clone(),
            generate_name: Some(format!(
                "{}-",
                rs.meta().name.as_deref().unwrap_or_default()
            )),
            labels: of_template.labels,
            annotations: of_template.annotations,
            finalizers: of_template.finalizers,
            owner_references: Some(vec![controller_reference(rs)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
