//! NamespaceLifecycle: new content needs a namespace that lives, and some namespaces stay for ever.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    status::{Cause, Status},
};
use coracle_registry::{api_resource::ApiResource, resource::Registry, store::Store};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

pub(crate) struct NamespaceLifecycle {
    store: Store,
    registry: Arc<Registry>,
}

impl NamespaceLifecycle {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// Whether the namespace is there, and whether it goes.
    async fn is_terminating(&self, namespace: &str) -> Result<bool, Status> {
        let Some(namespaces) = self.registry.core("namespaces") else {
            return Ok(false);
        };
        let key = namespaces.key("", namespace);
        if let Some(entry) = namespaces.cache.get(&key) {
            return Ok(entry.is_terminating());
        }
        // Perhaps just made: the cache may be behind the store.
        match self.store.fresh(&key).await? {
            Some(current) => Ok(meta::is_terminating(&current.object)),
            None => Err(Status::not_found(&namespaces.group_resource, namespace)),
        }
    }
}

/// Whether it asks who may do something in a namespace, which need not be there for that.
fn is_access_review(resource: &ApiResource) -> bool {
    resource.is("authorization.k8s.io", "localsubjectaccessreviews")
}

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        match operation {
            Operation::Create | Operation::Update => {
                resource.is_namespaced() && !is_access_review(resource)
            }
            Operation::Delete => resource.is_core("namespaces"),
            Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.operation == Operation::Delete {
            if IMMORTAL.contains(&attributes.name) {
                return Err(attributes.forbidden("this namespace may not be deleted"));
            }
            return Ok(());
        }
        // As upstream, also what is made below an object that is there: its eviction, its Binding,
        // a token. `kubectl drain` knows this answer and waits for the namespace instead.
        let namespace = attributes.namespace;
        let is_terminating = self.is_terminating(namespace).await?;
        if !is_terminating || attributes.operation == Operation::Update {
            return Ok(());
        }
        let mut status = attributes.forbidden(format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ));
        status.details.get_or_insert_default().causes.push(Cause {
            kind: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        Err(status)
    }
}
