//! A short name for a pod template: what tells the ReplicaSets of a Deployment, and the revisions
//! of a DaemonSet, apart. Pure.
//!
//! Stable over time and versions of this program, though not equal to the number that Kubernetes
//! computes: its hash is of a Go memory dump. Nothing outside compares the two.
//!
//! Source: `pkg/controller/controller_utils.go` (ComputeHash), `k8s.io/apimachinery/pkg/util/rand`
//! (SafeEncodeString).

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Letters that form no words.
const SAFE_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// Ten or so safe characters that stand for `template` and the number of collisions so far.
pub(crate) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    // Field order is that of the Kubernetes types and maps are sorted, so the text is canonical.
    let text = serde_json::to_vec(template).expect("a template has string keys only");
    let mut hash = text.iter().fold(FNV_OFFSET, fnv);
    if let Some(collisions) = collisions {
        hash = collisions.to_le_bytes().iter().fold(hash, fnv);
    }
    hash.to_string()
        .bytes()
        .map(|byte| char::from(SAFE_ALPHABET[usize::from(byte) % SAFE_ALPHABET.len()]))
        .collect()
}

fn fnv(hash: u32, byte: &u8) -> u32 {
    (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec};

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        PodTemplateSpec {
            metadata: None,
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "c".into(),
                    image: Some(image.into()),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
        }
    }

    #[test]
    fn hash_never_changes_between_versions() {
        assert_eq!(template_hash(&template("nginx:1"), None), "757bfbc46");
    }

    #[test]
    fn collision_count_and_template_change_the_hash() {
        let base = template_hash(&template("nginx:1"), None);
        assert_ne!(base, template_hash(&template("nginx:1"), Some(1)));
        assert_ne!(base, template_hash(&template("nginx:2"), None));
    }
}
