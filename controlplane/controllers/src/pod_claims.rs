//! The claims that a pod uses: those that it names, and those that are made for it.
//!
//! Source: `pkg/controller/volume/common/common.go` and
//! `k8s.io/component-helpers/storage/ephemeral` at v1.37.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::{Deserialize, Deserializer};

use crate::{
    cache::{Index, Key},
    owner::is_controlled_by,
    pod::Pod,
};

/// A volume of a pod that is a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimVolume {
    /// The claim of this name.
    Named {
        claim: Box<str>,
        /// The volume's own name.
        volume: Box<str>,
    },
    /// One that is made for the pod, and goes with it; the name of the volume.
    Ephemeral(Box<str>),
}

/// As it is in a pod; of other volumes nothing is kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: Option<Box<str>>,
    persistent_volume_claim: Option<Named>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    claim_name: Option<Box<str>>,
}

/// Reads `spec.volumes`.
pub(crate) fn to_claims<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<[ClaimVolume]>, D::Error> {
    let volumes = Option::<Vec<Volume>>::deserialize(deserializer)?;
    let claims = volumes.into_iter().flatten().filter_map(|volume| {
        let named = volume.persistent_volume_claim.and_then(|it| it.claim_name);
        let is_ephemeral = volume.ephemeral.is_some();
        let volume = volume.name?;
        match named {
            Some(claim) => Some(ClaimVolume::Named { claim, volume }),
            None => is_ephemeral.then_some(ClaimVolume::Ephemeral(volume)),
        }
    });
    Ok(claims.collect())
}

/// The name of the claim that is made for a volume of a pod.
pub(crate) fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

fn volumes(pod: &Pod) -> &[ClaimVolume] {
    pod.spec.as_ref().map_or(&[], |spec| &spec.claims)
}

/// The names of the volumes that claims are made for.
pub(crate) fn ephemeral_volumes(pod: &Pod) -> impl Iterator<Item = &str> {
    volumes(pod).iter().filter_map(|volume| match volume {
        ClaimVolume::Ephemeral(name) => Some(&**name),
        ClaimVolume::Named { .. } => None,
    })
}

/// The claims that a pod names or has made for it.
pub(crate) fn claims_of(pod: &Pod) -> impl Iterator<Item = Key> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    volumes(pod)
        .iter()
        .map(move |volume| Key::new(namespace, name_of(pod, volume)))
}

fn name_of(pod: &Pod, volume: &ClaimVolume) -> String {
    match volume {
        ClaimVolume::Named { claim, .. } => claim.to_string(),
        ClaimVolume::Ephemeral(name) => {
            ephemeral_claim(pod.metadata.name.as_deref().unwrap_or_default(), name)
        }
    }
}

/// The claim that a volume of a pod is.
pub(crate) fn claim_of_volume<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    // Of two with a name the last one counts, as in a map.
    volumes(pod).iter().rev().find_map(|known| match known {
        ClaimVolume::Named { claim, volume } if **volume == *name => Some(&**claim),
        _ => None,
    })
}

/// Pods by the claims that they use.
pub(crate) fn by_claim() -> Index<Pod> {
    Index::new("claim", |pod: &Pod, put| {
        claims_of(pod).for_each(|claim| put(&claim.to_string()));
    })
}

/// Whether a pod uses a claim by one of its volumes. `is_shut_down` says that its node has let go
/// of those that are made for it.
pub(crate) fn uses(pod: &Pod, claim: &PersistentVolumeClaim, is_shut_down: bool) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    volumes(pod).iter().any(|volume| {
        name_of(pod, volume) == name
            && match volume {
                ClaimVolume::Named { .. } => true,
                ClaimVolume::Ephemeral(_) => !is_shut_down && is_for(claim, pod),
            }
    })
}

/// Whether a claim was made for a pod, not by somebody for something else.
pub(crate) fn is_for(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    claim.metadata.namespace == pod.metadata.namespace
        && pod
            .metadata
            .uid
            .as_deref()
            .is_some_and(|uid| is_controlled_by(&claim.metadata, uid))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        let volumes = json!([
            {"name": "a", "emptyDir": {}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]);
        let metadata = json!({"namespace": "ns", "name": "p", "uid": "u"});
        let pod = json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}});
        serde_json::from_value(pod).unwrap()
    }

    fn claim(name: &str, owner: Value) -> PersistentVolumeClaim {
        let metadata = json!({"namespace": "ns", "name": name, "ownerReferences": owner});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn a_pod_uses_what_it_names_and_what_is_made_for_it() {
        let pod = pod();
        let claims: Vec<_> = claims_of(&pod).map(|key| key.to_string()).collect();
        assert_eq!(claims, ["ns/data", "ns/p-c"]);
        assert_eq!(ephemeral_volumes(&pod).collect::<Vec<_>>(), ["c"]);
        let named = ["a", "b", "c"].map(|volume| claim_of_volume(&pod, volume));
        assert_eq!(named, [None, Some("data"), None]);
        let own = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
        for (claim, is_shut_down, expect) in [
            (claim("data", json!(null)), false, true),
            (claim("data", json!(null)), true, true),
            (claim("other", json!(null)), false, false),
            (claim("p-c", own.clone()), false, true),
            (claim("p-c", own), true, false),
            (claim("p-c", json!(null)), false, false),
        ] {
            let name = claim.metadata.name.as_deref();
            assert_eq!(uses(&pod, &claim, is_shut_down), expect, "{name:?}");
        }
    }
}
