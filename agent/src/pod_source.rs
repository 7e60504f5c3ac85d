//! Where pods come from: the API server.

pub(crate) mod apiserver;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::runtime::types::PodUid;

/// What a source tells.
pub(crate) enum SourceEvent {
    /// All pods there are; whatever else is known is gone.
    Replace(Vec<Arc<Pod>>),
    /// One is new or has changed.
    Apply(Arc<Pod>),
    /// One is gone.
    Delete(PodUid),
}
