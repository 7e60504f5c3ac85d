//! The namespace that a request is in, as the cache or else the store knows it.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go` at
//! v1.37.

use std::sync::Arc;

use coracle_api::{meta, resource::GroupResource, selector::LabelSelector, status::Status};
use coracle_registry::{
    resource::{Registry, Resource},
    store::Store,
};
use serde_json::Value;

use super::place::namespace_of;
use crate::{attributes::Attributes, parts::Parts};

/// Finds namespaces.
pub struct Namespaces {
    store: Store,
    registry: Arc<Registry>,
}

impl Namespaces {
    /// Of this server.
    #[must_use]
    pub fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// Whether the namespace of a request has labels like these. Of what is in none every
    /// selector says so.
    ///
    /// # Errors
    /// 404 if there is no such namespace.
    pub async fn selects(
        &self,
        selector: &LabelSelector,
        attributes: &Attributes<'_>,
    ) -> Result<bool, Status> {
        if selector.is_everything() {
            return Ok(true);
        }
        // A Namespace that is written has labels that nobody else has seen yet.
        if attributes.is_core("namespaces") && attributes.operation.writes() {
            return Ok(selector.matches_object(attributes.object()));
        }
        let name = &*namespace_of(attributes);
        if name.is_empty() {
            return Ok(true);
        }
        let namespaces = self.resource()?;
        let key = namespaces.key("", name);
        // Nothing is parsed for its labels alone.
        if !self.store.cache.is_behind(&key)
            && let Some(entry) = namespaces.cache.get(&key)
        {
            return Ok(selector.matches(|label| entry.label(label)));
        }
        let namespace = self.find(name).await?;
        Ok(selector.matches(|label| meta::label(&namespace, label)))
    }

    /// The namespace as expressions see it; `None` for what is in none.
    ///
    /// # Errors
    /// As [`Namespaces::selects`].
    pub async fn of(&self, attributes: &Attributes<'_>) -> Result<Option<Value>, Status> {
        if attributes.namespace.is_empty() {
            return Ok(None);
        }
        self.find(attributes.namespace).await.map(Some)
    }

    async fn find(&self, name: &str) -> Result<Value, Status> {
        let namespaces = self.resource()?;
        let key = namespaces.key("", name);
        let current = self.store.current(namespaces, &key).await?;
        let about = GroupResource::new("", "namespaces");
        let mut namespace = current
            .map(|current| current.object)
            .ok_or_else(|| Status::not_found(&about, name))?;
        for hidden in ["managedFields", "ownerReferences"] {
            meta::remove(&mut namespace, &["metadata", hidden]);
        }
        Ok(namespace)
    }

    fn resource(&self) -> Result<&Arc<Resource>, Status> {
        let namespaces = self.registry.core("namespaces");
        namespaces.ok_or_else(|| Status::internal("namespaces are not served"))
    }
}
