//! ParamAccess: nobody reads by the parameters of a policy what they may not read themselves.
//!
//! A policy's messages tell what its parameters hold. So who names a kind of parameters has to be
//! allowed to get all objects of it, and who names an object that one. Upstream has this in the
//! validation of these kinds, after everything that changes an object.
//!
//! Source: `pkg/registry/admissionregistration/{validatingadmissionpolicy,
//! validatingadmissionpolicybinding,mutatingadmissionpolicy,mutatingadmissionpolicybinding}/authz.go`
//! at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::{
    resource::Gvk,
    status::{FieldErrors, Status},
};
use coracle_auth::{
    authz::{Attributes as Question, ResourceTarget, Target, UnionAuthorizer},
    user::{GROUP_MASTERS, UserInfo},
};
use coracle_registry::{
    api_resource::ApiResource,
    resource::Registry,
    store::{Store, cache_status},
    value::string,
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
    parts::Parts,
    plugin::Plugin,
};

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: [&str; 2] = ["mutatingadmissionpolicies", "validatingadmissionpolicies"];
/// Each beside the policies that it binds.
const BINDINGS: [(&str, &str); 2] = [
    ("mutatingadmissionpolicybindings", POLICIES[0]),
    ("validatingadmissionpolicybindings", POLICIES[1]),
];
/// What is not known may be anything.
const ALL: &str = "*";

pub(crate) struct ParamAccess {
    store: Store,
    registry: Arc<Registry>,
    kinds: Arc<dyn Kinds>,
    authorizer: Arc<UnionAuthorizer>,
}

impl ParamAccess {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            kinds: Arc::clone(&parts.kinds),
            authorizer: Arc::clone(&parts.authorizer),
        }
    }

    /// Whether somebody may get an object of a kind of parameters, or all of it.
    async fn may_get(
        &self,
        user: &UserInfo,
        kind: &Value,
        (namespace, name): (&str, &str),
    ) -> Result<bool, Status> {
        let gvk = gvk(kind);
        let served = gvk.as_ref().and_then(|gvk| self.kinds.of_kind(gvk));
        let question = Question {
            user,
            verb: "get",
            target: Target::Resource(ResourceTarget {
                group: gvk.as_ref().map_or(ALL, |gvk| &gvk.group),
                resource: served.as_ref().map_or(ALL, |served| &served.info.plural),
                namespace,
                name,
                ..ResourceTarget::default()
            }),
        };
        if self.authorizer.allows(&question) {
            return Ok(true);
        }
        // Perhaps by a role that was written a moment ago.
        self.store.cache.catch_up().await.map_err(cache_status)?;
        Ok(self.authorizer.allows(&question))
    }

    async fn policy(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let is_same = |old: &Value| param_kind(old) == param_kind(attributes.object());
        let kind = param_kind(attributes.object());
        if !kind.is_object() || attributes.old().is_some_and(is_same) {
            return Ok(());
        }
        if self.may_get(attributes.user, kind, (ALL, ALL)).await? {
            return Ok(());
        }
        let (user, kind, version) = (
            &attributes.user.name,
            string(&kind["kind"]),
            string(&kind["apiVersion"]),
        );
        let why = format!(
            "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={version})"
        );
        Err(refusal(attributes, "spec.paramKind", why))
    }

    async fn binding(&self, policies: &str, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (spec, before) = (&attributes.object()["spec"], attributes.old());
        let is_same = |old: &Value| {
            let mut fields = ["paramRef", "policyName"].into_iter();
            fields.all(|field| old["spec"][field] == spec[field])
        };
        let reference = &spec["paramRef"];
        if !reference.is_object() || before.is_some_and(is_same) {
            return Ok(());
        }
        let policy = self.bound(policies, string(&spec["policyName"])).await?;
        let kind = policy.as_ref().map_or(&Value::Null, param_kind);
        let object = (string(&reference["namespace"]), string(&reference["name"]));
        if self.may_get(attributes.user, kind, object).await? {
            return Ok(());
        }
        let user = &attributes.user.name;
        let why = format!(
            "user {user} does not have \"get\" permission on the object referenced by paramRef"
        );
        Err(refusal(attributes, "spec.paramRef", why))
    }

    async fn bound(&self, policies: &str, name: &str) -> Result<Option<Value>, Status> {
        let Some(policies) = self.registry.get(GROUP, "v1", policies) else {
            return Ok(None);
        };
        let current = self.store.current(policies, &policies.key("", name)).await;
        Ok(current?.map(|current| current.object))
    }
}

fn param_kind(policy: &Value) -> &Value {
    &policy["spec"]["paramKind"]
}

fn gvk(kind: &Value) -> Option<Gvk> {
    if !kind.is_object() {
        return None;
    }
    let api_version = string(&kind["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(Gvk::new(group, version, string(&kind["kind"])))
}

fn refusal(attributes: &Attributes<'_>, field: &str, why: String) -> Status {
    let mut errors = FieldErrors::default();
    errors.forbidden(field, why);
    Status::invalid(&attributes.resource.gvk(), attributes.shown_name(), errors)
}

#[async_trait]
impl Plugin for ParamAccess {
    fn name(&self) -> &'static str {
        "ParamAccess"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        let plural = &*resource.plural;
        operation.writes()
            && resource.group == GROUP
            && (POLICIES.contains(&plural) || BINDINGS.iter().any(|(one, _)| *one == plural))
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.user.is_in(GROUP_MASTERS) {
            return Ok(());
        }
        let mut bindings = BINDINGS.into_iter();
        match bindings.find(|(binding, _)| *binding == &*attributes.resource.plural) {
            Some((_, policies)) => self.binding(policies, attributes).await,
            None => self.policy(attributes).await,
        }
    }
}
