//! Whether somebody may do something: `system:masters` everything, nodes what [`node`] says, everybody what their
//! roles say ([`rbac`]).
//!
//! Unlike upstream's default, somebody without credentials whom no role allows something is asked for them: 401, not
//! 403.
//!
//! Source: `k8s.io/apiserver/pkg/authorization`, `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go` at
//! v1.37.

pub(crate) mod admission;
pub(crate) mod escalation;
pub(crate) mod node;
pub(crate) mod rbac;
pub(crate) mod rule;

use coracle_api::{
    resource::GroupResource,
    status::{Reason, Status},
};
use coracle_registry::resource::Registry;
use http::Method;

use self::{node::NodeAuthorizer, rbac::RbacAuthorizer};
use crate::{
    query::Query,
    request_info::RequestInfo,
    user::{ANONYMOUS, GROUP_MASTERS, UserInfo},
};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) user: &'a UserInfo,
    /// Such as `list`, or the method in lower case for a path.
    pub(crate) verb: &'a str,
    pub(crate) target: Target<'a>,
}

/// What it is asked of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// Of something that is no resource.
    Path(&'a str),
    Resource(ResourceTarget<'a>),
}

/// A resource. Absent parts are empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceTarget<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) field_selector: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn namespace(&self) -> &'a str {
        match self {
            Self::Path(_) => "",
            Self::Resource(resource) => resource.namespace,
        }
    }
}

impl<'a> Attributes<'a> {
    /// What a request asks.
    pub(crate) fn of_request(
        user: &'a UserInfo,
        method: &Method,
        request: &'a RequestInfo<'a>,
        query: &'a Query<'a>,
    ) -> Self {
        match request {
            RequestInfo::NonResource { path } => Self { user, verb: path_verb(method), target: Target::Path(path) },
            RequestInfo::Resource(request) => Self {
                user,
                verb: request.verb.as_str(),
                target: Target::Resource(ResourceTarget {
                    group: request.group,
                    resource: request.resource,
                    subresource: request.subresource,
                    namespace: &request.namespace,
                    name: &request.name,
                    field_selector: query.text("fieldSelector"),
                }),
            },
        }
    }
}

fn path_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// With the reason; empty if it goes without saying.
    Allow(String),
    /// Not by these rules; perhaps with a reason.
    NoOpinion(String),
}

/// Every authorizer in turn; the first that allows decides.
pub(crate) struct Chain {
    node: NodeAuthorizer,
    pub(crate) rbac: RbacAuthorizer,
}

impl Chain {
    pub(crate) fn new(registry: &std::sync::Arc<Registry>) -> Self {
        Self { node: NodeAuthorizer::new(registry), rbac: RbacAuthorizer::new(registry) }
    }

    /// Whether it is allowed. Every request comes here: fast, and never blocks.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        attributes.user.is_in(GROUP_MASTERS)
            || self.node.authorize(attributes).is_ok_and(|allowed| allowed)
            || self.rbac.allows(attributes)
    }

    /// The answer with its reason.
    pub(crate) fn explain(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_in(GROUP_MASTERS) {
            return Decision::Allow(String::new());
        }
        let node = self.node.authorize(attributes);
        if node == Ok(true) {
            return Decision::Allow(String::new());
        }
        match (self.rbac.explain(attributes), node) {
            (Decision::NoOpinion(reason), Err(why)) if reason.is_empty() => Decision::NoOpinion(why),
            (Decision::NoOpinion(reason), Err(why)) => Decision::NoOpinion(format!("{why}\n{reason}")),
            (decision, _) => decision,
        }
    }

    /// Allows, or says why not.
    ///
    /// # Errors
    /// 401 for nobody, 403 for somebody.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if self.allows(attributes) {
            return Ok(());
        }
        match self.explain(attributes) {
            // A role has come in between.
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(_) if attributes.user.name == ANONYMOUS => Err(Status::unauthorized()),
            Decision::NoOpinion(why) => Err(denied(attributes, &why)),
        }
    }
}

/// The 403 of a request.
pub(crate) fn denied(attributes: &Attributes<'_>, why: &str) -> Status {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    match &attributes.target {
        Target::Path(path) => {
            Status::new(403, Reason::Forbidden, format!("forbidden: User {user:?} cannot {verb} path {path:?}{why}"))
        }
        Target::Resource(target) => {
            let slash = if target.subresource.is_empty() { "" } else { "/" };
            let resource = format!("{}{slash}{}", target.resource, target.subresource);
            let scope = match target.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let message = format!(
                "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}{why}",
                target.group
            );
            Status::forbidden(&GroupResource::new(target.group, target.resource), target.name, message)
        }
    }
}

#[cfg(test)]
mod tests;
