//! What every controller gets: the way to the API, the settings and the event recorder.

use std::{hash::Hash, sync::Arc};

use kube::Client;

use crate::{clients::Clients, config::ControllersConfig, event_recorder::EventRecorder, work_queue::WorkQueue};

/// Handed to each controller's constructor.
#[derive(Clone)]
pub(crate) struct Context {
    /// With the identity of the controller that this is for.
    pub(crate) client: Client,
    pub(crate) clients: Clients,
    pub(crate) config: Arc<ControllersConfig>,
    pub(crate) recorder: EventRecorder,
}

impl Context {
    /// The same with the identity of a controller: its service account in `kube-system`.
    pub(crate) fn of(&self, account: &str) -> Self {
        Self { client: self.clients.of(account), ..self.clone() }
    }

    /// A queue that `/metrics` shows under upstream's name for it.
    pub(crate) fn queue<K: Clone + Eq + Hash>(&self, name: &str) -> Arc<WorkQueue<K>> {
        Arc::new(WorkQueue::named(&self.config.metrics, name))
    }
}

/// Whether a failed call says that the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether a failed create says that the name is taken.
pub(crate) fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether a failed write says that another was quicker.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
}

/// Whether a failed create says that its namespace is going away.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 403
        && (status
            .details
            .iter()
            .flat_map(|details| &details.causes)
            .any(|cause| cause.reason == "NamespaceTerminating")
            || status.message.contains("because it is being terminated"))
}

/// The server's words, without the client's wrapping.
pub(crate) fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
