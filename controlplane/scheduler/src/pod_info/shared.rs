//! What pods of one template have in common, held once: most pods of a large cluster are alike.

use std::collections::BTreeMap;

use coracle_api::interner::Interner;

use super::{PodInfo, Tolerations};

/// What has been seen of pods that are still there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    labels: Interner<BTreeMap<String, String>>,
    tolerations: Interner<Tolerations>,
}

impl Shared {
    /// Lets `pod` have what others have already.
    pub(crate) fn with(&mut self, pod: &mut PodInfo) {
        pod.labels = self.labels.share(pod.labels.clone());
        pod.tolerations = self.tolerations.share(pod.tolerations.clone());
    }
}
