//! RoleEscalation: nobody grants by a role or a binding what they do not hold.
//!
//! Upstream has this in the storage of these kinds, after everything that changes an object.
//!
//! Source:
//! `pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased/storage.go` at
//! v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{meta, resource::GroupResource, status::Status};
use coracle_auth::{
    authz::{
        self, ResourceTarget, Target, escalation,
        rule::{Pool, Rule},
    },
    user::GROUP_MASTERS,
};
use coracle_registry::{
    api_resource::ApiResource,
    store::{Store, cache_status},
};
use serde_json::{Value, json};

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) struct RoleEscalation {
    store: Store,
    authorizer: Arc<authz::UnionAuthorizer>,
}

impl RoleEscalation {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            authorizer: Arc::clone(&parts.authorizer),
        }
    }

    fn check_grant(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (user, object) = (attributes.user, attributes.object());
        let rbac = &self.authorizer.rbac;
        let namespace = attributes.namespace;
        let wanted = if object.get("roleRef").is_some() {
            let is_cluster_role = meta::get_str(object, &["roleRef", "kind"]) == "ClusterRole";
            let role = meta::get_str(object, &["roleRef", "name"]);
            let plural = if is_cluster_role {
                "clusterroles"
            } else {
                "roles"
            };
            if self.may(attributes, "bind", plural, role) {
                return Ok(());
            }
            rbac.role(is_cluster_role, role, namespace)
                .map_err(|_| Status::not_found(&GroupResource::new(GROUP, plural), role))?
        } else {
            if self.may(
                attributes,
                "escalate",
                &attributes.resource.plural,
                attributes.name,
            ) {
                return Ok(());
            }
            Rule::parse_all(object, &mut Pool::default()).into_vec()
        };
        let (own, missing_roles) = rbac.rules_for(user, namespace);
        // Its rules come of roles that are yet to be written: nothing less than all rights covers
        // them.
        if object.get("aggregationRule").is_some_and(Value::is_object) {
            let mut pool = Pool::default();
            let everything = json!({"rules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]});
            if !escalation::uncovered(&own, &Rule::parse_all(&everything, &mut pool)).is_empty() {
                return Err(attributes
                    .forbidden("must have cluster-admin privileges to use the aggregationRule"));
            }
        }
        escalation::confirm(user, &own, &missing_roles, &wanted)
            .map_err(|why| attributes.forbidden(why))
    }

    fn may(&self, attributes: &Attributes<'_>, verb: &str, resource: &str, name: &str) -> bool {
        let namespace = attributes.namespace;
        let target = ResourceTarget {
            group: GROUP,
            resource,
            namespace,
            name,
            ..ResourceTarget::default()
        };
        self.authorizer.allows(&authz::Attributes {
            user: attributes.user,
            verb,
            target: Target::Resource(target),
        })
    }
}

#[async_trait]
impl Plugin for RoleEscalation {
    fn name(&self) -> &'static str {
        "RoleEscalation"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.group == GROUP
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        // May do anything without a role: there is nothing to compare with.
        if attributes.user.is_in(GROUP_MASTERS) {
            return Ok(());
        }
        if attributes
            .old()
            .is_some_and(|old| !grants_differ(attributes.object(), old))
        {
            return Ok(());
        }
        // Who writes a role and then a binding of it expects the one to be known to the other.
        self.store.cache.catch_up().await.map_err(cache_status)?;
        self.check_grant(attributes)
    }
}

/// Finalizers and owners may be changed by who holds nothing: the garbage collector does.
fn grants_differ(new: &Value, old: &Value) -> bool {
    let differ = |field: &str| new.get(field) != old.get(field);
    ["rules", "aggregationRule", "roleRef", "subjects"]
        .into_iter()
        .any(differ)
        || meta::labels(new) != meta::labels(old)
        || meta::annotations(new) != meta::annotations(old)
}
