//! The history of a workload's template: ControllerRevisions, to which `kubectl rollout` looks and
//! goes back.
//!
//! Source: `pkg/controller/history`, `pkg/controller/daemon/update.go` (constructHistory,
//! cleanupHistory), `pkg/controller/statefulset/stateful_set_control.go`
//! (getStatefulSetRevisions) at v1.37.

use std::{cmp::Reverse, collections::HashSet, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, runtime::RawExtension},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};

use crate::{
    builder::Builder,
    cache::{By, labels::SelectorOf},
    claim::claim_all,
    controller::{CallContext, ReconcileError},
    errors::is_already_exists,
    informers::Kind,
    owner::{controller_reference, is_controlled_by, selector_of},
    template_hash::template_hash,
    writes::Write,
};

/// The label that says of which revision a pod is.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// The label of the revisions of most kinds that tells one from another.
pub(crate) const HASH: &str = "controller.kubernetes.io/hash";

/// In a strategic merge patch: what is to be done with what is there.
const DIRECTIVE: &str = "$patch";

/// Of a revision, what a controller asks of its owner.
pub(crate) struct Template<'a> {
    pub(crate) selector: &'a LabelSelector,
    pub(crate) template: &'a PodTemplateSpec,
    pub(crate) collisions: Option<i32>,
}

/// The revisions of one owner.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// That of the template as it is.
    pub(crate) current: Arc<ControllerRevision>,
    /// Others of the same template, which somebody else has made.
    pub(crate) duplicates: Vec<Arc<ControllerRevision>>,
    /// From the oldest.
    pub(crate) old: Vec<Arc<ControllerRevision>>,
}

/// What came of looking for the current revision.
pub(crate) enum Found {
    Revisions(Revisions),
    /// Another template has the name that the current one would get: the owner counts one collision
    /// more.
    Collision,
}

/// The hand of one controller.
pub(crate) struct History {
    client: Client,
    revisions: By<ControllerRevision>,
    /// Under which label a revision has its hash.
    label: &'static str,
}

impl History {
    /// Each change of a revision queues its owner. A revision has its hash under `label`.
    pub(crate) fn new<O: Kind>(
        client: &Client,
        controller: &mut Builder<'_>,
        selector: SelectorOf<O>,
        label: &'static str,
    ) -> Self {
        Self {
            client: client.clone(),
            revisions: controller.owns(selector),
            label,
        }
    }

    /// The revisions of `owner`, after adopting and releasing; the current one is made if it is not
    /// there, and is the newest by its number.
    pub(crate) async fn find<O>(&self, owner: &O, of: Template<'_>) -> Result<Found, ReconcileError>
    where
        O: Kind + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let Some(selector) = selector_of(of.selector) else {
            return Err(ReconcileError::NotYet(
                "a selector of all has no revisions".into(),
            ));
        };
        let uid = owner.meta().uid.as_deref().unwrap_or_default();
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let candidates = self.revisions.controlled_or_orphaned(namespace, uid);
        let all = claim_all(&self.client, owner, &selector, candidates, None).await?;
        let patch = patch_of(of.template);
        let (mut same, old) = sorted(all, &patch);
        let next = old.last().map_or(0, |newest| number_of(newest)) + 1;
        let current = if same.is_empty() {
            match self.create(owner, &of, patch, next).await? {
                Some(created) => Arc::new(created),
                None => return Ok(Found::Collision),
            }
        } else {
            same.remove(0)
        };
        if number_of(&current) < next {
            let write = Write::to(&self.client, &*current, "renumber ControllerRevision");
            write.patch(json!({"revision": next})).await?;
        }
        Ok(Found::Revisions(Revisions {
            current,
            duplicates: same,
            old,
        }))
    }

    async fn create<O>(
        &self,
        owner: &O,
        of: &Template<'_>,
        patch: Value,
        number: i64,
    ) -> Result<Option<ControllerRevision>, ReconcileError>
    where
        O: Kind + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let revision = new_revision(owner, of, patch, (number, self.label));
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        match api.create(&PostParams::default(), &revision).await {
            Err(error) if is_already_exists(&error) => {
                let name = revision.metadata.name.as_deref().unwrap_or_default();
                let there = api.get(name).await.during("get ControllerRevision")?;
                let uid = owner.meta().uid.as_deref().unwrap_or_default();
                // The cache lags behind an earlier create.
                let is_ours = is_controlled_by(&there.metadata, uid) && there.data == revision.data;
                Ok(is_ours.then_some(there))
            }
            created => created.during("create ControllerRevision").map(Some),
        }
    }

    /// Deletes the oldest of `old` above `limit`, but those that a pod is of.
    pub(crate) async fn truncate(
        &self,
        old: &[Arc<ControllerRevision>],
        limit: usize,
        in_use: &HashSet<&str>,
    ) -> Result<(), ReconcileError> {
        for revision in surplus(old, limit, in_use) {
            self.delete(revision).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, revision: &ControllerRevision) -> Result<(), ReconcileError> {
        let write = Write::to(&self.client, revision, "delete ControllerRevision");
        write.delete(DeleteParams::background()).await
    }
}

/// The template that a revision keeps; `None` if it keeps something else.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove(DIRECTIVE);
    serde_json::from_value(template).ok()
}

/// The label by which the pods of a DaemonSet's revision are known.
pub(crate) fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(REVISION_HASH));
    // One that is adopted may have none.
    labelled
        .or(revision.metadata.name.as_ref())
        .map_or("", String::as_str)
}

pub(crate) fn number_of(revision: &ControllerRevision) -> i64 {
    revision.revision.unwrap_or(0)
}

/// The strategic merge patch that brings a workload back to `template`.
fn patch_of(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template[DIRECTIVE] = "replace".into();
    json!({"spec": {"template": template}})
}

/// Those of this patch, the newest first, and all others, the oldest first.
fn sorted(
    all: Vec<Arc<ControllerRevision>>,
    patch: &Value,
) -> (Vec<Arc<ControllerRevision>>, Vec<Arc<ControllerRevision>>) {
    let is_same = |one: &Arc<ControllerRevision>| one.data.0 == *patch;
    let (mut same, mut old): (Vec<_>, Vec<_>) = all.into_iter().partition(is_same);
    same.sort_by_key(|one| (Reverse(number_of(one)), one.metadata.name.clone()));
    old.sort_by_key(|one| (number_of(one), one.metadata.name.clone()));
    (same, old)
}

fn surplus<'a>(
    old: &'a [Arc<ControllerRevision>],
    limit: usize,
    in_use: &HashSet<&str>,
) -> impl Iterator<Item = &'a ControllerRevision> {
    let unused = old.iter().filter(|one| !in_use.contains(hash_of(one)));
    unused
        .take(old.len().saturating_sub(limit))
        .map(AsRef::as_ref)
}

fn new_revision<O: Resource<DynamicType = ()>>(
    owner: &O,
    of: &Template<'_>,
    patch: Value,
    (number, label): (i64, &str),
) -> ControllerRevision {
    let hash = template_hash(of.template, of.collisions);
    let name = owner.meta().name.as_deref().unwrap_or_default();
    let template = of.template.metadata.as_ref();
    let mut labels = template
        .and_then(|meta| meta.labels.clone())
        .unwrap_or_default();
    labels.insert(label.into(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: RawExtension(patch),
        revision: Some(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": image}]}}))
            .unwrap()
    }

    fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some([(REVISION_HASH.into(), name.into())].into()),
                ..ObjectMeta::default()
            },
            data: RawExtension(patch_of(&template(image))),
            revision: Some(number),
        })
    }

    fn names<'a>(all: impl IntoIterator<Item = &'a ControllerRevision>) -> Vec<&'a str> {
        all.into_iter()
            .map(|one| one.metadata.name.as_deref().unwrap())
            .collect()
    }

    #[test]
    fn a_revision_is_the_patch_that_kubectl_applies() {
        assert_eq!(
            patch_of(&template("i")).to_string(),
            r#"{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"image":"i","name":"c"}]}}}}"#
        );
        assert_eq!(template_of(&revision("a", 1, "i")), Some(template("i")));
    }

    #[test]
    fn the_newest_of_this_template_is_current_and_others_are_old() {
        let all = vec![
            revision("b", 3, "old"),
            revision("c", 2, "now"),
            revision("a", 1, "older"),
            revision("d", 4, "now"),
        ];
        let (same, old) = sorted(all, &patch_of(&template("now")));
        assert_eq!(names(same.iter().map(AsRef::as_ref)), ["d", "c"]);
        assert_eq!(names(old.iter().map(AsRef::as_ref)), ["a", "b"]);
    }

    #[test]
    fn the_oldest_that_no_pod_is_of_go_first() {
        let old: Vec<_> = (1..=5)
            .map(|number| revision(&number.to_string(), number, "i"))
            .collect();
        assert_eq!(names(surplus(&old, 3, &HashSet::from(["1"]))), ["2", "3"]);
        assert_eq!(names(surplus(&old, 5, &HashSet::new())).len(), 0);
        let all = HashSet::from(["1", "2", "3", "4", "5"]);
        assert_eq!(names(surplus(&old, 0, &all)).len(), 0);
    }
}
