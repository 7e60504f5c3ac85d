//! Which kinds the API server serves, as discovery says.

use std::{collections::HashMap, sync::Arc};

use kube::{
    Client,
    core::discovery::{ApiResource, Scope, verbs},
    discovery::Discovery,
};
use parking_lot::RwLock;

/// A kind that can be listed, in the version that its group prefers.
#[derive(Debug)]
pub(crate) struct ServedKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    pub(crate) deletable: bool,
    pub(crate) delete_collection: bool,
    pub(crate) watchable: bool,
}

/// Group and kind, as owner references name them (without the version).
pub(crate) type GroupKind = (String, String);

/// The result of the last discovery.
pub(crate) struct ServedKinds {
    client: Client,
    kinds: RwLock<HashMap<GroupKind, Arc<ServedKind>>>,
}

impl ServedKinds {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            kinds: RwLock::default(),
        }
    }

    pub(crate) fn get(&self, group: &str, kind: &str) -> Option<Arc<ServedKind>> {
        self.kinds
            .read()
            .get(&(group.to_owned(), kind.to_owned()))
            .cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ServedKind>> {
        self.kinds.read().values().cloned().collect()
    }

    /// Asks the server again. What was known stays if it does not answer.
    pub(crate) async fn refresh(&self) -> Result<(), kube::Error> {
        let found = match Discovery::new(self.client.clone()).run_aggregated().await {
            Ok(found) => found,
            Err(_) => Discovery::new(self.client.clone()).run().await?,
        };
        let mut kinds = HashMap::new();
        for group in found.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                if !capabilities.supports_operation(verbs::LIST) {
                    continue;
                }
                let key = (resource.group.clone(), resource.kind.clone());
                let kind = ServedKind {
                    resource,
                    namespaced: capabilities.scope == Scope::Namespaced,
                    deletable: capabilities.supports_operation(verbs::DELETE),
                    delete_collection: capabilities.supports_operation(verbs::DELETE_COLLECTION),
                    watchable: capabilities.supports_operation(verbs::WATCH),
                };
                kinds.insert(key, Arc::new(kind));
            }
        }
        *self.kinds.write() = kinds;
        Ok(())
    }
}
