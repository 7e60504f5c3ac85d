//! What every controller gets: the way to the API, the settings and the event recorder.

use std::{hash::Hash, sync::Arc};

use coracle_client::{event_recorder::EventRecorder, work_queue::WorkQueue};
use kube::Client;

use crate::{
    clients::Clients, config::ControllersConfig, removals::Removals, served_kinds::ServedKinds,
};

/// Handed to each controller's constructor.
#[derive(Clone)]
pub(crate) struct Context {
    /// With the identity of the controller that this is for.
    pub(crate) client: Client,
    pub(crate) clients: Clients,
    pub(crate) config: Arc<ControllersConfig>,
    pub(crate) recorder: EventRecorder,
    /// Asked for once for all who look at every kind.
    pub(crate) kinds: Arc<ServedKinds>,
    pub(crate) removals: Removals,
}

impl Context {
    /// The same with the identity of a controller: its service account in `kube-system`.
    pub(crate) fn of(&self, account: &str) -> Self {
        Self {
            client: self.clients.of(account),
            ..self.clone()
        }
    }

    /// A queue that `/metrics` shows under upstream's name for it.
    pub(crate) fn queue<K: Clone + Eq + Hash>(&self, name: &str) -> Arc<WorkQueue<K>> {
        Arc::new(WorkQueue::named(&self.config.metrics, name))
    }
}
