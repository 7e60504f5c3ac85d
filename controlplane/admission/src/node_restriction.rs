//! NodeRestriction: what a node may write, where the URL does not show it.
//!
//! Source: `plugin/pkg/admission/noderestriction/admission.go` at v1.37; which addresses a node may
//! call its own is ours, and so are directories of nodes as volumes.

mod local_volumes;
mod mirror_pods;
mod pod_certificates;
mod rules;
mod tokens;

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use coracle_api::{address, meta, status::Status};
use coracle_auth::authz::{self, ResourceTarget, Target, UnionAuthorizer};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    service_allocator,
    store::{Store, cache_status},
};
use ipnet::IpNet;
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

/// Kinds that the rules have a word on.
const RESTRICTED: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "pods"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("coordination.k8s.io", "leases"),
    ("storage.k8s.io", "csinodes"),
    ("resource.k8s.io", "resourceslices"),
    ("certificates.k8s.io", "podcertificaterequests"),
];
/// Those that they have one on when an object is made, and no more.
const RESTRICTED_AS_MADE: &[(&str, &str)] = &[
    ("", "serviceaccounts"),
    ("certificates.k8s.io", "certificatesigningrequests"),
];

pub(crate) struct NodeRestriction {
    store: Store,
    registry: Arc<Registry>,
    authorizer: Arc<UnionAuthorizer>,
    service_cidr: IpNet,
    advertise: IpAddr,
}

impl NodeRestriction {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            authorizer: Arc::clone(&parts.authorizer),
            service_cidr: parts.service_cidr,
            advertise: parts.advertise,
        }
    }

    /// Whether the node may do what no volume of its pod asks for: by a role, in the namespace of
    /// its request.
    fn is_authorized(
        &self,
        attributes: &Attributes<'_>,
        verb: &str,
        target: ResourceTarget<'_>,
    ) -> bool {
        let target = ResourceTarget {
            namespace: attributes.namespace,
            ..target
        };
        self.authorizer.allows(&authz::Attributes {
            user: attributes.user,
            verb,
            target: Target::Resource(target),
        })
    }

    async fn create(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Status> {
        let resource = attributes.resource;
        match attributes.subresource {
            "" => {}
            "eviction" => return self.evict(node, attributes).await,
            "token" if resource.is_core("serviceaccounts") => {
                return self.token(node, attributes).await;
            }
            other if resource.is_core("pods") => {
                return Err(attributes.forbidden(rules::unexpected_subresource(other)));
            }
            _ => return Ok(()),
        }
        if resource.is("certificates.k8s.io", "podcertificaterequests") {
            return self.pod_certificate(node, attributes).await;
        }
        if resource.is_core("pods") {
            // A mirror pod names its Node, which may have come a moment ago.
            self.store.cache.catch_up().await.map_err(cache_status)?;
        }
        let entry = self
            .registry
            .core("nodes")
            .and_then(|nodes| nodes.cache.get(&nodes.key("", node)));
        let uid = entry.as_ref().map(|entry| entry.uid());
        let object = attributes.object();
        rules::check_create((node, uid), &resource.group, &resource.plural, object)
            .and_then(|()| self.check_addresses(node, attributes, &Value::Null))
            .map_err(|why| attributes.forbidden(why))
    }

    /// A pod that is gone is for the eviction to miss.
    async fn evict(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some(pods) = self.registry.core("pods") else {
            return Ok(());
        };
        let key = pods.key(attributes.namespace, attributes.name);
        let Some(pod) = self.store.current(pods, &key).await? else {
            return Ok(());
        };
        if runs_on(node, &pod.object) {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        )))
    }

    /// A node says of itself where it is; what is nobody's or somebody else's it may not say. Other
    /// nodes route to it.
    fn check_addresses(
        &self,
        node: &str,
        attributes: &Attributes<'_>,
        old: &Value,
    ) -> Result<(), String> {
        if !attributes.resource.is_core("nodes") {
            return Ok(());
        }
        let added = rules::added_addresses(node, attributes.object(), old)?;
        if added.is_empty() {
            return Ok(());
        }
        let mut services = service_allocator::of_services(&self.registry);
        services.push(self.service_cidr);
        let is_services = |address: IpAddr| services.iter().any(|range| range.contains(&address));
        let foreign = added.iter().find(|address| {
            !address::may_be_nodes(**address, self.advertise) || is_services(address.to_canonical())
        });
        match foreign {
            Some(address) => Err(format!(
                "node {node:?} is not allowed to report the address {address} as its own"
            )),
            None => Ok(()),
        }
    }
}

fn runs_on(node: &str, pod: &Value) -> bool {
    meta::get_str(pod, &["spec", "nodeName"]) == node
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        let kind = (&*resource.group, &*resource.plural);
        match operation {
            Operation::Create => RESTRICTED.contains(&kind) || RESTRICTED_AS_MADE.contains(&kind),
            Operation::Update | Operation::Delete => RESTRICTED.contains(&kind),
            Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let Some(node) = attributes.user.node_name() else {
            return Ok(());
        };
        let old = attributes.old().unwrap_or(&Value::Null);
        let allowed = match attributes.operation {
            Operation::Create => return self.create(node, attributes).await,
            Operation::Update => {
                let what = (&*attributes.resource.plural, attributes.subresource);
                rules::check_update(node, what, attributes.object(), old)
                    .and_then(|()| self.check_addresses(node, attributes, old))
            }
            Operation::Delete => rules::check_delete(node, &attributes.resource.plural, old),
            Operation::Connect => Ok(()),
        };
        allowed.map_err(|why| attributes.forbidden(why))
    }
}
