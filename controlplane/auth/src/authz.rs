//! Whether somebody may do something: `system:masters` everything, nodes what [`node`] says,
//! everybody what their roles say ([`rbac`]).
//!
//! Unlike upstream's default, somebody without credentials whom no role allows something is asked
//! for them: 401, not 403.
//!
//! Source: `k8s.io/apiserver/pkg/authorization`,
//! `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go` at v1.37.

pub mod bootstrap_policy;
pub mod escalation;
pub mod node;
pub mod rbac;
pub mod rule;

use coracle_api::{
    resource::GroupResource,
    status::{Reason, Status},
};
use coracle_registry::resource::Registry;

use self::{node::NodeAuthorizer, rbac::RbacAuthorizer};
use crate::user::{ANONYMOUS, GROUP_MASTERS, UserInfo};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// By whom.
    pub user: &'a UserInfo,
    /// Such as `list`, or the method in lower case for a path.
    pub verb: &'a str,
    /// Of what.
    pub target: Target<'a>,
}

/// What it is asked of.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// Of something that is no resource.
    Path(&'a str),
    /// Of a resource, or of what is below one.
    Resource(ResourceTarget<'a>),
}

/// A resource. Absent parts are empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceTarget<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Its plural.
    pub resource: &'a str,
    /// Such as `status`.
    pub subresource: &'a str,
    /// Empty for what is in none, and for all of them.
    pub namespace: &'a str,
    /// Of one object.
    pub name: &'a str,
    /// Of a list, as the query has it.
    pub field_selector: Option<&'a str>,
    /// As [`Self::field_selector`].
    pub label_selector: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn namespace(&self) -> &'a str {
        match self {
            Self::Path(_) => "",
            Self::Resource(resource) => resource.namespace,
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// With the reason; empty if it goes without saying.
    Allow(String),
    /// Not by these rules; perhaps with a reason.
    NoOpinion(String),
}

/// Every authorizer in turn; the first that allows decides.
pub struct UnionAuthorizer {
    node: NodeAuthorizer,
    /// Roles and bindings.
    pub rbac: RbacAuthorizer,
}

impl UnionAuthorizer {
    /// Reads roles and bindings; nodes are looked at when one asks.
    pub fn new(registry: &std::sync::Arc<Registry>) -> Self {
        Self {
            node: NodeAuthorizer::new(registry),
            rbac: RbacAuthorizer::new(registry),
        }
    }

    /// Whether it is allowed. Every request comes here: fast, and never blocks.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        attributes.user.is_in(GROUP_MASTERS)
            || matches!(self.node.authorize(attributes), Decision::Allow(_))
            || self.rbac.allows(attributes)
    }

    /// The answer with its reason.
    pub fn explain(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_in(GROUP_MASTERS) {
            return Decision::Allow(String::new());
        }
        let Decision::NoOpinion(of_node) = self.node.authorize(attributes) else {
            return Decision::Allow(String::new());
        };
        match self.rbac.explain(attributes) {
            Decision::NoOpinion(reason) if reason.is_empty() => Decision::NoOpinion(of_node),
            Decision::NoOpinion(reason) if !of_node.is_empty() => {
                Decision::NoOpinion(format!("{of_node}\n{reason}"))
            }
            decision => decision,
        }
    }

    /// Allows, or says why not.
    ///
    /// # Errors
    /// 401 for nobody, 403 for somebody.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if self.allows(attributes) {
            return Ok(());
        }
        match self.explain(attributes) {
            // A role has come in between.
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(_) if attributes.user.name == ANONYMOUS => {
                Err(Status::unauthorized())
            }
            Decision::NoOpinion(why) => Err(denied(attributes, &why)),
        }
    }
}

/// The 403 of a request.
pub(crate) fn denied(attributes: &Attributes<'_>, why: &str) -> Status {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    let why = if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    };
    match &attributes.target {
        Target::Path(path) => Status::new(
            403,
            Reason::Forbidden,
            format!("forbidden: User {user:?} cannot {verb} path {path:?}{why}"),
        ),
        Target::Resource(target) => {
            let slash = if target.subresource.is_empty() {
                ""
            } else {
                "/"
            };
            let resource = format!("{}{slash}{}", target.resource, target.subresource);
            let scope = match target.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let message = format!(
                "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}{why}",
                target.group
            );
            Status::forbidden(
                &GroupResource::new(target.group, target.resource),
                target.name,
                message,
            )
        }
    }
}
