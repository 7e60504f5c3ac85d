//! A ReplicaSet as the Deployment plan works on it: read, changed in memory, and turned into an
//! action at the end.
//!
//! Also the annotations that link the two kinds. Pure.
//!
//! Source: `pkg/controller/deployment/util/deployment_util.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    jiff::Timestamp,
};
use kube::api::ObjectMeta;

use super::{
    hash::{HASH_LABEL, without_hash},
    strategy::{max_surge, replicas_of},
};
use crate::{owner::controller_reference, template_hash::template_hash};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The most characters of that.
const HISTORY_CHARS: usize = 2000;
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that its ReplicaSets do not inherit.
const NOT_INHERITED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// A ReplicaSet under work.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) rs: ReplicaSet,
    /// Wanted replicas before the plan.
    pub(super) from: i32,
    pub(super) changed: bool,
    /// Does not exist yet.
    pub(super) fresh: bool,
    /// To be deleted as history.
    pub(super) outdated: bool,
}

impl Draft {
    pub(super) fn existing(rs: &Arc<ReplicaSet>) -> Self {
        let rs = rs.as_ref().clone();
        let from = rs.spec.replicas.unwrap_or(0);
        Self {
            rs,
            from,
            changed: false,
            fresh: false,
            outdated: false,
        }
    }

    /// The ReplicaSet that the present template of `deployment` asks for, at zero replicas.
    pub(super) fn fresh(deployment: &Deployment) -> Self {
        let collisions = deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count);
        let template = template_of(deployment);
        let hash = template_hash(&without_hash(&template), collisions);
        let with_hash = |labels: Option<BTreeMap<String, String>>| {
            let mut labels = labels.unwrap_or_default();
            labels.insert(HASH_LABEL.into(), hash.clone());
            Some(labels)
        };
        let selector = deployment.spec.selector.clone();
        let mut metadata = template.metadata.clone().unwrap_or_default();
        metadata.labels = with_hash(metadata.labels);
        let rs = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}-{hash}",
                    deployment.metadata.name.as_deref().unwrap_or_default()
                )),
                namespace: deployment.metadata.namespace.clone(),
                labels: metadata.labels.clone(),
                owner_references: Some(vec![controller_reference(deployment)]),
                ..ObjectMeta::default()
            },
            spec: ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: deployment.spec.min_ready_seconds,
                selector: LabelSelector {
                    match_labels: with_hash(selector.match_labels),
                    ..selector
                },
                template: Some(PodTemplateSpec {
                    metadata: Some(metadata),
                    spec: template.spec,
                }),
            },
            status: None,
        };
        Self {
            rs,
            from: 0,
            changed: false,
            fresh: true,
            outdated: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.rs.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        self.rs
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// `spec.replicas`.
    pub(super) fn replicas(&self) -> i32 {
        self.rs.spec.replicas.unwrap_or(0)
    }

    /// `status.replicas`.
    pub(super) fn actual(&self) -> i32 {
        self.rs.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn available(&self) -> i32 {
        self.rs
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0)
    }

    pub(super) fn ready(&self) -> i32 {
        self.rs
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or(0)
    }

    pub(super) fn terminating(&self) -> i32 {
        self.rs
            .status
            .as_ref()
            .and_then(|status| status.terminating_replicas)
            .unwrap_or(0)
    }

    pub(super) fn template(&self) -> PodTemplateSpec {
        self.rs.spec.template.clone().unwrap_or_default()
    }

    /// Sets `spec.replicas` and, as the size was decided under it, the Deployment's present size.
    pub(super) fn scale(&mut self, replicas: i32, deployment: &Deployment) {
        if self.replicas() != replicas {
            self.rs.spec.replicas = Some(replicas);
            self.changed = true;
        }
        self.note_size(deployment);
    }

    /// Writes the annotations by which a later scaling is recognised.
    pub(super) fn note_size(&mut self, deployment: &Deployment) {
        let desired = replicas_of(deployment);
        self.annotate(DESIRED_REPLICAS, desired.to_string());
        let most = desired.saturating_add(max_surge(deployment));
        self.annotate(MAX_REPLICAS, most.to_string());
    }

    /// The Deployment's size when this ReplicaSet was scaled last.
    pub(super) fn desired_before(&self) -> Option<i32> {
        self.annotation(DESIRED_REPLICAS)?.parse().ok()
    }

    /// The most pods that the Deployment allowed when this ReplicaSet was scaled last.
    pub(super) fn max_before(&self) -> Option<i32> {
        self.annotation(MAX_REPLICAS)?.parse().ok()
    }

    /// The revision, 0 without one.
    pub(super) fn revision(&self) -> i64 {
        self.annotation(REVISION)
            .and_then(|revision| revision.parse().ok())
            .unwrap_or(0)
    }

    /// Copies the Deployment's annotations and raises the revision to `revision`, keeping the
    /// former in the history.
    pub(super) fn inherit(&mut self, deployment: &Deployment, revision: i64) {
        for (key, value) in deployment.metadata.annotations.iter().flatten() {
            if !NOT_INHERITED.contains(&key.as_str()) {
                self.annotate(key, value.clone());
            }
        }
        let former = self.revision();
        if former >= revision {
            return;
        }
        if former > 0 {
            let history = self.annotation(REVISION_HISTORY).unwrap_or_default();
            let history = longer_history(history, &former.to_string());
            self.annotate(REVISION_HISTORY, history);
        }
        self.annotate(REVISION, revision.to_string());
    }

    /// Follows the Deployment's `minReadySeconds`.
    pub(super) fn follow_min_ready(&mut self, deployment: &Deployment) {
        let wanted = deployment.spec.min_ready_seconds;
        if self.rs.spec.min_ready_seconds.unwrap_or(0) != wanted.unwrap_or(0) {
            self.rs.spec.min_ready_seconds = wanted;
            self.changed = true;
        }
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.rs
            .metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    fn annotate(&mut self, key: &str, value: String) {
        let annotations = self.rs.metadata.annotations.get_or_insert_default();
        if annotations.get(key) != Some(&value) {
            annotations.insert(key.to_owned(), value);
            self.changed = true;
        }
    }
}

/// The revisions of `history` and then `former`; the oldest go where they are too many.
fn longer_history(history: &str, former: &str) -> String {
    let mut kept = history;
    while kept.len() + 1 + former.len() > HISTORY_CHARS {
        kept = kept.split_once(',').map_or("", |(_, younger)| younger);
        if kept.is_empty() {
            break;
        }
    }
    match kept {
        "" => former.to_owned(),
        kept => format!("{kept},{former}"),
    }
}

pub(super) fn template_of(deployment: &Deployment) -> PodTemplateSpec {
    deployment.spec.template.clone()
}

/// Sum of the wanted replicas.
pub(super) fn total_replicas<'a>(drafts: impl IntoIterator<Item = &'a Draft>) -> i32 {
    let sizes = drafts.into_iter().map(Draft::replicas);
    sizes.fold(0, i32::saturating_add)
}

/// Sum of the available replicas.
pub(super) fn total_available<'a>(drafts: impl IntoIterator<Item = &'a Draft>) -> i32 {
    let sizes = drafts.into_iter().map(Draft::available);
    sizes.fold(0, i32::saturating_add)
}
