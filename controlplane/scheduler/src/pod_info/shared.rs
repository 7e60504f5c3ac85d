//! What pods of one template have in common, held once: most pods of a large cluster are alike.

use std::collections::BTreeMap;

use coracle_api::interner::Interner;

use super::{AffinityTerms, PodInfo, Tolerations};

/// What has been seen of pods that are still there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    labels: Interner<BTreeMap<String, String>>,
    tolerations: Interner<Tolerations>,
    terms: Interner<AffinityTerms>,
    /// Of nodes and schedulers.
    names: Interner<String>,
}

impl Shared {
    /// Lets `pod` have what others have already.
    pub(crate) fn with(&mut self, pod: &mut PodInfo) {
        pod.labels = self.labels.share(pod.labels.clone());
        pod.tolerations = self.tolerations.share(pod.tolerations.clone());
        pod.terms = self.terms.share(pod.terms.clone());
        let node = pod.node_name.iter_mut();
        for name in node.chain([&mut pod.scheduler_name]) {
            *name = self.names.share(name.clone());
        }
    }
}
