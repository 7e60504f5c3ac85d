//! Who a pod of a StatefulSet is: its name, its ordinal, its labels and its claims. Pure.
//!
//! Source: `pkg/controller/statefulset/stateful_set_utils.go` (getParentNameAndOrdinal,
//! identityMatches, storageMatches, initIdentity, updateIdentity, updateStorage,
//! getPersistentVolumeClaims, newStatefulSetPod) at v1.37.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{
        self, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume,
    },
};
use kube::api::ObjectMeta;

use crate::{
    history::REVISION_HASH, owner::controller_reference, pod::Pod, pod_claims::claim_of_volume,
};

/// The label with a pod's own name, so that a Service can select one pod.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with a pod's ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The parts of the name of a StatefulSet's pod: the set's, and the ordinal.
pub(super) fn parent_and_ordinal(pod: &str) -> Option<(&str, i32)> {
    let (parent, digits) = pod.rsplit_once('-')?;
    let ordinal = digits.parse().ok()?;
    // `web-01` and `web-+1` are no names of `web-1`: one ordinal has one pod.
    let is_its_own = |ordinal: &i32| *ordinal >= 0 && ordinal.to_string() == digits;
    Some((parent, ordinal)).filter(|(_, ordinal)| is_its_own(ordinal))
}

/// The ordinal of `pod`, if its name is one that `set` gives.
pub(super) fn ordinal_in(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    let (parent, ordinal) = parent_and_ordinal(name)?;
    (set.metadata.name.as_deref() == Some(parent)).then_some(ordinal)
}

/// The name of the revision that a pod is of, or empty.
pub(super) fn revision_of(pod: &Pod) -> &str {
    label(pod, REVISION_HASH).unwrap_or_default()
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

fn name_of(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", name_of(&set.metadata))
}

/// The templates of claims that each pod has its own of.
pub(super) fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    let templates = set.spec.volume_claim_templates.as_deref();
    templates.unwrap_or_default()
}

/// `data-web-0`.
pub(super) fn claim_name(
    set: &StatefulSet,
    template: &PersistentVolumeClaim,
    ordinal: i32,
) -> String {
    let (template, set) = (name_of(&template.metadata), name_of(&set.metadata));
    format!("{template}-{set}-{ordinal}")
}

/// The names of sets that a claim of this name may be of: a template's name may have dashes, too.
pub(super) fn parents_of_claim(claim: &str) -> impl Iterator<Item = &str> {
    let parent = parent_and_ordinal(claim).map_or("", |(parent, _)| parent);
    parent
        .match_indices('-')
        .map(|(dash, _)| &parent[dash + 1..])
}

/// Whether a pod has the label by which it is known as itself.
pub(super) fn identity_matches(pod: &Pod) -> bool {
    let name = name_of(&pod.metadata);
    label(pod, POD_NAME) == Some(name)
}

/// Whether a pod has all claims of its ordinal as volumes.
pub(super) fn storage_matches(set: &StatefulSet, pod: &Pod, ordinal: i32) -> bool {
    claim_templates(set).iter().all(|template| {
        let claim = claim_name(set, template, ordinal);
        claim_of_volume(pod, name_of(&template.metadata)) == Some(&claim)
    })
}

/// The claim of an ordinal by its template.
pub(super) fn claim_for(
    set: &StatefulSet,
    template: &PersistentVolumeClaim,
    ordinal: i32,
) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    claim.metadata.name = Some(claim_name(set, template, ordinal));
    claim.metadata.namespace = set.metadata.namespace.clone();
    let selected = set.spec.selector.match_labels.iter().flatten();
    let selected = selected.map(|(key, value)| (key.clone(), value.clone()));
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.extend(selected);
    claim
}

/// The pod of an ordinal by `template`, which is that of the revision with this name.
pub(super) fn pod_for(
    set: &StatefulSet,
    (revision, template): (&str, &PodTemplateSpec),
    ordinal: i32,
) -> v1::Pod {
    let of_template = template.metadata.clone().unwrap_or_default();
    let name = pod_name(set, ordinal);
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.service_name.clone();
    let mut pod = v1::Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            generate_name: set.metadata.name.as_ref().map(|name| format!("{name}-")),
            labels: of_template.labels,
            annotations: of_template.annotations,
            finalizers: of_template.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    };
    conform(set, &mut pod, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), revision.into());
    pod
}

/// Gives a pod what tells it from the others: its labels, and its claims as volumes, in the place
/// of volumes with their names.
pub(super) fn conform(set: &StatefulSet, pod: &mut v1::Pod, ordinal: i32) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.into(), pod_name(set, ordinal));
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    let claims = claim_templates(set).iter().map(|template| Volume {
        name: name_of(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    });
    let mut volumes: Vec<_> = claims.collect();
    let spec = pod.spec.get_or_insert_default();
    let is_ours = |volume: &Volume| {
        let mut templates = claim_templates(set).iter();
        templates.any(|template| name_of(&template.metadata) == volume.name)
    };
    let others = spec.volumes.take().into_iter().flatten();
    volumes.extend(others.filter(|volume| !is_ours(volume)));
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
}
