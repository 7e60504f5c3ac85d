//! What differs between kinds that keep a number of pods: ReplicaSets, and the older
//! ReplicationControllers, whose status tells less.

use std::borrow::Cow;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{
            PodTemplateSpec, ReplicationController, ReplicationControllerCondition,
            ReplicationControllerStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    serde::Serialize,
};
use kube::Resource;

use crate::informers::Kind;

/// A kind that keeps a number of pods. Status is that of a ReplicaSet, which says all that any
/// says.
pub(crate) trait Replicas:
    Kind + Resource<Scope = NamespaceResourceScope> + PartialEq + Serialize
{
    /// The controller's name, and the source of its events.
    const COMPONENT: &'static str;
    /// The work queue's.
    const QUEUE: &'static str;
    /// What writing its status is called in errors.
    const UPDATE_STATUS: &'static str;

    fn selector(&self) -> Option<Cow<'_, LabelSelector>>;
    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> Option<ReplicaSetStatus>;
    fn set_status(&mut self, status: ReplicaSetStatus);
    /// What of a status the kind can say.
    fn tells(status: ReplicaSetStatus) -> ReplicaSetStatus;
}

impl Replicas for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const QUEUE: &'static str = "replicaset";
    const UPDATE_STATUS: &'static str = "update ReplicaSet status";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        Some(Cow::Borrowed(&self.spec.selector))
    }

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }

    fn tells(status: ReplicaSetStatus) -> ReplicaSetStatus {
        status
    }
}

impl Replicas for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const QUEUE: &'static str = "replicationmanager";
    const UPDATE_STATUS: &'static str = "update ReplicationController status";

    fn selector(&self) -> Option<Cow<'_, LabelSelector>> {
        let pairs = self.spec.as_ref()?.selector.clone()?;
        Some(Cow::Owned(LabelSelector {
            match_labels: Some(pairs),
            match_expressions: None,
        }))
    }

    fn replicas(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone().map(|status| ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status
                .conditions
                .map(|all| all.into_iter().map(of_replica_set).collect()),
        })
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status
                .conditions
                .map(|all| all.into_iter().map(of_replication_controller).collect()),
        });
    }

    fn tells(status: ReplicaSetStatus) -> ReplicaSetStatus {
        ReplicaSetStatus {
            terminating_replicas: None,
            ..status
        }
    }
}

fn of_replica_set(condition: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: Some(condition.type_),
        status: Some(condition.status),
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}

fn of_replication_controller(condition: ReplicaSetCondition) -> ReplicationControllerCondition {
    ReplicationControllerCondition {
        type_: condition.type_.unwrap_or_default(),
        status: condition.status.unwrap_or_default(),
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}
