//! Whether somebody may do something.
//!
//! Until roles are served: `system:masters` everything, nodes what [`node`] says, who joins its certificate request,
//! everybody authenticated discovery and reviews of themselves, and everybody else health and version.
//!
//! Source: `k8s.io/apiserver/pkg/authorization`, `plugin/pkg/auth/authorizer/node` at v1.37.

pub(crate) mod node;

use coracle_api::{
    resource::GroupResource,
    status::{Reason, Status},
};

use crate::{
    query::Query,
    registry::resource::Registry,
    request_info::{RequestInfo, ResourceRequest, Verb},
    user::{ANONYMOUS, GROUP_AUTHENTICATED, GROUP_BOOTSTRAPPERS, GROUP_MASTERS, UserInfo},
};

/// What is asked.
pub(crate) struct Attributes<'a> {
    pub(crate) user: &'a UserInfo,
    pub(crate) request: &'a RequestInfo<'a>,
    pub(crate) query: &'a Query<'a>,
}

/// The answer of one authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    /// Not by this one; perhaps with a reason.
    NoOpinion(Option<String>),
}

/// Something that may allow a request. The first that does decides.
pub(crate) trait Authorizer: Send + Sync {
    /// Fast, and never blocks: every request comes here.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}

/// The fixed rules of the built-in groups.
pub(crate) struct BuiltIn;

impl Authorizer for BuiltIn {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let user = attributes.user;
        let is_authenticated = user.is_in(GROUP_AUTHENTICATED);
        let allowed = user.is_in(GROUP_MASTERS)
            || match attributes.request {
                RequestInfo::NonResource { path } => is_public(path) || (is_authenticated && is_discovery(path)),
                RequestInfo::Resource(request) => {
                    (is_authenticated && is_self_review(request))
                        || (user.is_in(GROUP_BOOTSTRAPPERS) && is_certificate_request(request))
                }
            };
        if allowed { Decision::Allow } else { Decision::NoOpinion(None) }
    }
}

fn under(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_public(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz", "/version"].iter().any(|root| under(path, root))
}

fn is_discovery(path: &str) -> bool {
    ["/api", "/apis", "/openapi"].iter().any(|root| under(path, root))
}

fn is_self_review(request: &ResourceRequest<'_>) -> bool {
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];
    request.verb == Verb::Create && reviews.contains(&request.resource)
}

fn is_certificate_request(request: &ResourceRequest<'_>) -> bool {
    request.group == "certificates.k8s.io"
        && request.resource == "certificatesigningrequests"
        && request.subresource.is_empty()
        && matches!(request.verb, Verb::Create | Verb::Get)
}

/// Every authorizer in turn.
pub(crate) struct Chain(Vec<Box<dyn Authorizer>>);

impl Chain {
    pub(crate) fn new(registry: std::sync::Arc<Registry>) -> Self {
        Self(vec![Box::new(BuiltIn), Box::new(node::NodeAuthorizer::new(registry))])
    }

    /// Allows, or says why not.
    ///
    /// # Errors
    /// 401 for nobody, 403 for somebody.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let mut why = None;
        for authorizer in &self.0 {
            match authorizer.authorize(attributes) {
                Decision::Allow => return Ok(()),
                Decision::NoOpinion(reason) => why = why.or(reason),
            }
        }
        if attributes.user.name == ANONYMOUS {
            return Err(Status::unauthorized());
        }
        Err(denied(attributes, why.as_deref()))
    }
}

fn denied(attributes: &Attributes<'_>, why: Option<&str>) -> Status {
    let user = &attributes.user.name;
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    match attributes.request {
        RequestInfo::NonResource { path } => {
            Status::new(403, Reason::Forbidden, format!("forbidden: User {user:?} cannot get path {path:?}{why}"))
        }
        RequestInfo::Resource(request) => {
            let scope = if request.namespace.is_empty() || request.resource == "namespaces" {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {:?}", request.namespace)
            };
            let message = format!(
                "User {user:?} cannot {} resource {:?} in API group {:?} {scope}{why}",
                request.verb.as_str(),
                request.resource_path(),
                request.group
            );
            Status::forbidden(&GroupResource::new(request.group, request.resource), &request.name, message)
        }
    }
}
