//! NamespaceLifecycle: new content needs a namespace that lives, and some namespaces stay for ever.
//!
//! What the cache shows is looked at first, for upstream's answers. Whether the namespace still
//! takes anything is then a comparison in the transaction ([`open_namespaces`]).
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    meta,
    status::{Cause, Status},
};
use coracle_registry::{
    api_resource::ApiResource,
    open_namespaces,
    resource::{Registry, Resource},
    store::{
        Current, Store,
        companions::{Companion, Companions, Write},
    },
};

use crate::{
    attributes::{Attributes, Operation, Request},
    parts::Parts,
    plugin::Plugin,
};

pub(crate) const NAME: &str = "NamespaceLifecycle";
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

    /// What the transaction of a new object has to see; `None` for a write that makes none in a
    /// namespace.
    pub(crate) fn of_new(&self, request: &Request<'_>) -> Option<OpenNamespace<'_>> {
        let is_new = request.operation == Operation::Create && request.subresource.is_empty();
        (is_new && request.resource.is_namespaced()).then_some(OpenNamespace { of: self })
    }

    /// Whether the namespace is there, and whether it goes.
    async fn is_terminating(&self, namespace: &str) -> Result<bool, Status> {
        let Some(namespaces) = self.registry.core("namespaces") else {
            return Ok(false);
        };
        let cached = namespaces.cache.get(&namespaces.key("", namespace));
        if cached.is_some_and(|entry| !entry.is_terminating()) {
            return Ok(false);
        }
        // Perhaps just made, or made anew: the cache may be behind the store.
        let current = self.fresh(namespaces, namespace).await?;
        Ok(meta::is_terminating(&current.object))
    }

    async fn fresh(&self, namespaces: &Resource, namespace: &str) -> Result<Current, Status> {
        let found = self.store.fresh(&namespaces.key("", namespace)).await?;
        found.ok_or_else(|| Status::not_found(&namespaces.group_resource, namespace))
    }
}

/// Holds a new object to the namespace that admission saw: it may have gone meanwhile, also through
/// another server.
pub(crate) struct OpenNamespace<'a> {
    of: &'a NamespaceLifecycle,
}

#[async_trait]
impl Companion for OpenNamespace<'_> {
    async fn companions(&self, write: Write<'_>) -> Result<Companions, Status> {
        let namespace = meta::namespace(write.new);
        if write.tries > 0
            && let Some(namespaces) = self.of.registry.core("namespaces")
        {
            // Perhaps because of this: it goes, or it is one that an older release has made.
            let current = self.of.fresh(namespaces, namespace).await?;
            if meta::is_terminating(&current.object) {
                let (of, name) = (&write.resource.group_resource, meta::name(write.new));
                return Err(terminating(namespace, |why| {
                    Status::forbidden(of, name, why)
                }));
            }
            open_namespaces::repair::open(&self.of.store, &current).await?;
        }
        Ok(Companions {
            compare: vec![open_namespaces::is_open(namespace)],
            ..Companions::default()
        })
    }

    fn exhausted(&self) -> Status {
        Status::internal("the namespace did not stay as it was during any try")
    }
}

/// What a client is told of a namespace that goes.
fn terminating(namespace: &str, forbidden: impl FnOnce(String) -> Status) -> Status {
    let mut status = forbidden(format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    ));
    status.details.get_or_insert_default().causes.push(Cause {
        kind: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    status
}

/// Whether it asks who may do something in a namespace, which need not be there for that.
fn is_access_review(resource: &ApiResource) -> bool {
    resource.is("authorization.k8s.io", "localsubjectaccessreviews")
}

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        NAME
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
        Err(terminating(namespace, |why| attributes.forbidden(why)))
    }
}
