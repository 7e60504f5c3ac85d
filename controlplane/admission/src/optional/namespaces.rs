//! NamespaceAutoProvision: a namespace that is not there is made for what comes into it.
//!
//! NamespaceExists: nothing is written in a namespace that is not there. NamespaceLifecycle, which
//! is on anyway, says the same and more.
//!
//! Source: `plugin/pkg/admission/namespace/{autoprovision,exists}/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    resource::GroupResource,
    status::{Reason, Status},
};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::{Store, WriteOptions},
};
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

/// The namespace as it is now.
///
/// # Errors
/// 404 if it is not there.
pub(super) async fn namespace(
    store: &Store,
    registry: &Registry,
    name: &str,
) -> Result<Value, Status> {
    let lost = || Status::not_found(&GroupResource::new("", "namespaces"), name);
    let namespaces = registry.core("namespaces").ok_or_else(lost)?;
    let found = store.current(namespaces, &namespaces.key("", name)).await?;
    found.map(|found| found.object).ok_or_else(lost)
}

fn is_in_one(attributes: &Attributes<'_>) -> bool {
    !attributes.namespace.is_empty() && !attributes.resource.is_core("namespaces")
}

pub(crate) struct NamespaceExists {
    store: Store,
    registry: Arc<Registry>,
}

impl NamespaceExists {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }
}

#[async_trait]
impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation != Operation::Connect && resource.is_namespaced()
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if is_in_one(attributes) {
            namespace(&self.store, &self.registry, attributes.namespace).await?;
        }
        Ok(())
    }
}

pub(crate) struct NamespaceAutoProvision {
    store: Store,
    registry: Arc<Registry>,
}

impl NamespaceAutoProvision {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }
}

#[async_trait]
impl Plugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation == Operation::Create && resource.is_namespaced()
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let name = attributes.namespace;
        if attributes.options.dry_run || !is_in_one(attributes) {
            return Ok(());
        }
        let Some(namespaces) = self.registry.core("namespaces") else {
            return Ok(());
        };
        let found = namespace(&self.store, &self.registry, name).await;
        if !found.is_err_and(|status| status.code == 404) {
            return Ok(());
        }
        let new = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let options = WriteOptions::default();
        match self.store.create(namespaces, "", new, options).await {
            Err(status) if status.reason != Reason::AlreadyExists => Err(status),
            _ => Ok(()),
        }
    }
}
