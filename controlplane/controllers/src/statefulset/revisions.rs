//! Which of a StatefulSet's revisions are in use, and which may go. Pure.
//!
//! Source: `pkg/controller/statefulset/stateful_set_control.go` (getStatefulSetRevisions,
//! truncateHistory) at v1.37.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::PodTemplateSpec,
};

use super::{
    identity::revision_of,
    view::{Version, Versions},
};
use crate::{
    history::{Revisions, number_of, template_of},
    pod::Pod,
};

/// Revisions that are kept where nothing is said.
const HISTORY_LIMIT: i32 = 10;

/// The revisions by which a set's pods are made, by name, with the template of the current one.
pub(super) struct InUse<'a> {
    current: String,
    template: Cow<'a, PodTemplateSpec>,
    update: String,
    set: &'a StatefulSet,
}

impl<'a> InUse<'a> {
    /// Of those that there are. Without the one that the status names, the newest is current, too.
    pub(super) fn of(set: &'a StatefulSet, revisions: &Revisions) -> Self {
        let status = set.status.as_ref();
        let named = status.and_then(|status| status.current_revision.as_deref());
        let mut all = all(revisions);
        let current = all.find(|revision| Some(name_of(revision)) == named);
        let update = name_of(&revisions.current).to_owned();
        match current.map(|revision| (name_of(revision), template_of(revision))) {
            Some((name, Some(template))) if name != update => Self {
                current: name.to_owned(),
                template: Cow::Owned(template),
                update,
                set,
            },
            _ => Self::both(set, update),
        }
    }

    /// Of a set that makes no more pods: those that its status names.
    pub(super) fn of_status(set: &'a StatefulSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        let current = status.current_revision.unwrap_or_default();
        Self {
            current,
            ..Self::both(set, status.update_revision.unwrap_or_default())
        }
    }

    fn both(set: &'a StatefulSet, name: String) -> Self {
        Self {
            current: name.clone(),
            template: Cow::Borrowed(&set.spec.template),
            update: name,
            set,
        }
    }

    pub(super) fn versions(&self) -> Versions<'_> {
        Versions {
            current: Version {
                name: &self.current,
                template: &self.template,
            },
            update: Version {
                name: &self.update,
                template: &self.set.spec.template,
            },
        }
    }

    /// The oldest of those that no pod is of, above the limit; a negative one keeps all.
    pub(super) fn surplus(
        &self,
        revisions: &Revisions,
        pods: &[Arc<Pod>],
    ) -> Vec<Arc<ControllerRevision>> {
        let limit = self.set.spec.revision_history_limit;
        let Ok(limit) = usize::try_from(limit.unwrap_or(HISTORY_LIMIT)) else {
            return Vec::new();
        };
        let is_live = |name: &str| {
            name == self.current
                || name == self.update
                || pods.iter().any(|pod| revision_of(pod) == name)
        };
        let mut unused: Vec<_> = all(revisions)
            .filter(|revision| !is_live(name_of(revision)))
            .cloned()
            .collect();
        unused.sort_by_key(|revision| number_of(revision));
        unused.truncate(unused.len().saturating_sub(limit));
        unused
    }
}

fn all(revisions: &Revisions) -> impl Iterator<Item = &Arc<ControllerRevision>> {
    let others = revisions.old.iter().chain(&revisions.duplicates);
    others.chain([&revisions.current])
}

fn name_of(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}
