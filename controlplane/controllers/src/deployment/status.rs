//! The status of a Deployment: counts, and the conditions Available, Progressing and
//! ReplicaFailure. Pure.
//!
//! Source: `pkg/controller/deployment/{sync,progress}.go` and `util/deployment_util.go` at v1.37.

use std::time::Duration;

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    replica_set::Draft,
    rollout::Fleet,
    strategy::{max_unavailable, replicas_of},
};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const NEW_RS_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Conditions under work.
#[derive(Debug, Clone)]
pub(super) struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    pub(super) fn of(deployment: &Deployment, now: Timestamp) -> Self {
        let list = deployment
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        Self { list, now }
    }

    fn get(&self, kind: &str) -> Option<&DeploymentCondition> {
        self.list
            .iter()
            .find(|condition| condition.type_.as_deref() == Some(kind))
    }

    fn remove(&mut self, kind: &str) {
        self.list
            .retain(|condition| condition.type_.as_deref() != Some(kind));
    }

    /// Sets a condition, unless its status and reason are there already. The transition time moves
    /// with the status.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: String) {
        let since = match self.get(kind) {
            Some(old) if old.status.as_deref() == Some(status) => {
                if old.reason.as_deref() == Some(reason) {
                    return;
                }
                old.last_transition_time.clone()
            }
            _ => Some(Time(self.now)),
        };
        self.remove(kind);
        self.list.push(DeploymentCondition {
            type_: Some(kind.into()),
            status: Some(status.into()),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: since,
            last_update_time: Some(Time(self.now)),
        });
    }

    /// As [`Conditions::set`], and the update time moves in any case.
    fn renew(&mut self, kind: &str, status: &str, reason: &str, message: String) {
        let since = self
            .get(kind)
            .filter(|old| old.status.as_deref() == Some(status))
            .and_then(|old| old.last_transition_time.clone());
        self.remove(kind);
        self.set(kind, status, reason, message);
        if let (Some(since), Some(last)) = (since, self.list.last_mut()) {
            last.last_transition_time = Some(since);
        }
    }

    pub(super) fn found_new(&mut self, name: &str) {
        if self.get(PROGRESSING).is_none() {
            self.set(
                PROGRESSING,
                "True",
                "FoundNewReplicaSet",
                format!("Found new replica set {name:?}"),
            );
        }
    }

    pub(super) fn created_new(&mut self, name: &str) {
        self.set(
            PROGRESSING,
            "True",
            "NewReplicaSetCreated",
            format!("Created new replica set {name:?}"),
        );
    }

    pub(super) fn failed_create(&mut self, message: String) {
        self.set(PROGRESSING, "False", "ReplicaSetCreateError", message);
    }

    /// Keeps the deadline from running while the Deployment is paused.
    pub(super) fn check_paused(&mut self, deployment: &Deployment) {
        if deadline(deployment).is_none() {
            return;
        }
        let reason = self
            .get(PROGRESSING)
            .and_then(|condition| condition.reason.as_deref());
        let paused = deployment.spec.paused.unwrap_or(false);
        match (paused, reason) {
            (_, Some(TIMED_OUT)) | (true, Some(PAUSED)) => {}
            (true, _) => self.set(
                PROGRESSING,
                "Unknown",
                PAUSED,
                "Deployment is paused".into(),
            ),
            (false, Some(PAUSED)) => {
                self.set(
                    PROGRESSING,
                    "Unknown",
                    "DeploymentResumed",
                    "Deployment is resumed".into(),
                );
            }
            (false, _) => {}
        }
    }
}

/// `progressDeadlineSeconds`, unless it is the value that means none.
fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| Duration::from_secs(seconds.unsigned_abs().into()))
}

/// Counts and the Available condition; the other conditions as they are in `conditions`.
pub(super) fn plan_counts(
    deployment: &Deployment,
    fleet: &Fleet,
    conditions: &mut Conditions,
) -> DeploymentStatus {
    let sum = |of: fn(&Draft) -> i32| fleet.all().map(of).sum::<i32>();
    let (total, available) = (sum(Draft::actual), sum(Draft::available));
    if available >= replicas_of(deployment) - max_unavailable(deployment) {
        let message = "Deployment has minimum availability.".into();
        conditions.set(AVAILABLE, "True", "MinimumReplicasAvailable", message);
    } else {
        let message = "Deployment does not have minimum availability.".into();
        conditions.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
    }
    DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: Some(total),
        updated_replicas: Some(fleet.new.as_ref().map_or(0, Draft::actual)),
        ready_replicas: Some(sum(Draft::ready)),
        available_replicas: Some(available),
        unavailable_replicas: Some((sum(Draft::replicas) - available).max(0)),
        terminating_replicas: Some(sum(Draft::terminating)),
        collision_count: deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count),
        conditions: None,
    }
}

/// As [`plan_counts`], with progress judged. Also says when the deadline has to be looked at again.
pub(super) fn plan_progress(
    deployment: &Deployment,
    fleet: &Fleet,
    conditions: &mut Conditions,
) -> (DeploymentStatus, Option<Duration>) {
    let status = plan_counts(deployment, fleet, conditions);
    let old = deployment.status.clone().unwrap_or_default();
    let name = fleet.new.as_ref().map(Draft::name);
    let subject = name.map_or_else(
        || {
            format!(
                "Deployment {:?}",
                deployment.metadata.name.as_deref().unwrap_or_default()
            )
        },
        |name| format!("ReplicaSet {name:?}"),
    );
    match deadline(deployment) {
        None => conditions.remove(PROGRESSING),
        Some(deadline) => {
            let reason = conditions
                .get(PROGRESSING)
                .and_then(|condition| condition.reason.clone());
            // As upstream: once a rollout is through, nothing is said of progress until the next,
            // whatever becomes of its pods.
            let settled = status.replicas == status.updated_replicas
                && reason.as_deref() == Some(NEW_RS_AVAILABLE);
            if !settled {
                if is_complete(deployment, &status) {
                    conditions.set(
                        PROGRESSING,
                        "True",
                        NEW_RS_AVAILABLE,
                        format!("{subject} has successfully progressed."),
                    );
                } else if is_progressing(&old, &status) {
                    // Also if nothing else changes: the deadline runs from here.
                    conditions.renew(
                        PROGRESSING,
                        "True",
                        "ReplicaSetUpdated",
                        format!("{subject} is progressing."),
                    );
                } else if is_timed_out(conditions, deadline) {
                    conditions.set(
                        PROGRESSING,
                        "False",
                        TIMED_OUT,
                        format!("{subject} has timed out progressing."),
                    );
                }
            }
        }
    }
    carry_failures(fleet, conditions);
    let again = until_deadline(deployment, &status, conditions);
    (status, again)
}

/// Every replica is of the present template and available, and the spec was seen.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Some(replicas_of(deployment));
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let zero = |number: Option<i32>| number.unwrap_or(0);
    let outdated =
        |status: &DeploymentStatus| zero(status.replicas) - zero(status.updated_replicas);
    zero(new.updated_replicas) > zero(old.updated_replicas)
        || outdated(new) < outdated(old)
        || zero(new.ready_replicas) > zero(old.ready_replicas)
        || zero(new.available_replicas) > zero(old.available_replicas)
}

fn is_timed_out(conditions: &Conditions, deadline: Duration) -> bool {
    let Some(condition) = conditions.get(PROGRESSING) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(NEW_RS_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => condition
            .last_update_time
            .as_ref()
            .is_some_and(|at| left_until(at.0, deadline, conditions.now).is_zero()),
    }
}

fn left_until(since: Timestamp, wait: Duration, now: Timestamp) -> Duration {
    since
        .checked_add(wait)
        .ok()
        .and_then(|at| Duration::try_from(at.duration_since(now)).ok())
        .unwrap_or(Duration::ZERO)
}

fn until_deadline(
    deployment: &Deployment,
    status: &DeploymentStatus,
    conditions: &Conditions,
) -> Option<Duration> {
    let deadline = deadline(deployment)?;
    let condition = conditions.get(PROGRESSING)?;
    if is_complete(deployment, status)
        || condition.reason.as_deref() == Some(TIMED_OUT)
        || condition.reason.as_deref() == Some(PAUSED)
    {
        return None;
    }
    // A second more, for times in objects are whole seconds.
    Some(
        left_until(
            condition.last_update_time.as_ref()?.0,
            deadline,
            conditions.now,
        ) + Duration::from_secs(1),
    )
}

/// Shows the trouble of a ReplicaSet that cannot make its pods; the new one's first.
fn carry_failures(fleet: &Fleet, conditions: &mut Conditions) {
    let failure = fleet.all().find_map(|draft| {
        let all = draft.rs.status.as_ref()?.conditions.as_ref()?;
        all.iter()
            .find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))
            .cloned()
    });
    match failure {
        None => conditions.remove(REPLICA_FAILURE),
        Some(failure) => conditions.set(
            REPLICA_FAILURE,
            failure.status.as_deref().unwrap_or("True"),
            failure.reason.as_deref().unwrap_or_default(),
            failure.message.unwrap_or_default(),
        ),
    }
}

/// The finished status.
pub(super) fn with_conditions(
    mut status: DeploymentStatus,
    conditions: Conditions,
) -> DeploymentStatus {
    status.conditions = (!conditions.list.is_empty()).then_some(conditions.list);
    status
}

/// Whether `new` says anything that `old` does not.
pub(super) fn differs(old: Option<&DeploymentStatus>, new: &DeploymentStatus) -> bool {
    let Some(old) = old else { return true };
    let zero = |number: Option<i32>| number.unwrap_or(0);
    let counts = |status: &DeploymentStatus| {
        [
            zero(status.replicas),
            zero(status.updated_replicas),
            zero(status.ready_replicas),
            zero(status.available_replicas),
            zero(status.unavailable_replicas),
            zero(status.terminating_replicas),
            status.collision_count.unwrap_or(-1),
        ]
    };
    counts(old) != counts(new)
        || old.observed_generation != new.observed_generation
        || old.conditions.clone().unwrap_or_default() != new.conditions.clone().unwrap_or_default()
}
