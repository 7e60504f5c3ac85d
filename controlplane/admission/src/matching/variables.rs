//! What expressions about a request see.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel/activation.go` at v1.37.

use std::sync::Arc;

use coracle_api::selector::LabelSelector;
use coracle_auth::{
    authz::{Attributes as Question, Decision as Answer, ResourceTarget, Target, UnionAuthorizer},
    user::UserInfo,
};
use coracle_cel::{
    Authorizer, Check, Decision,
    admission::{Inputs, namespace_type, request_type},
    authorizer, resource_check,
    schema::DeclType,
    value::{EvalError, Value as CelValue},
};
use serde_json::Value;

use super::place::{name_of, namespace_of};
use crate::attributes::Attributes;

/// What a request looks like to who is invoked.
#[derive(Clone, Copy)]
pub struct Seen<'v> {
    /// `object`; null for a deletion.
    pub object: &'v Value,
    /// `oldObject`; null for what is new.
    pub old: &'v Value,
    /// `namespaceObject`
    pub namespace: Option<&'v Value>,
    /// `request`
    pub request: &'v Value,
    /// `params`; null if there are none.
    pub params: &'v Value,
}

impl<'v> Seen<'v> {
    /// The values of names.
    ///
    /// # Errors
    /// What is seen is not of its type.
    pub fn inputs(
        self,
        attributes: &Attributes<'_>,
        authorizer_of: &Arc<UnionAuthorizer>,
    ) -> Result<Inputs<'v>, EvalError> {
        let any = DeclType::any();
        let asking: Arc<dyn Authorizer> = Arc::new(Asking {
            authorizer: Arc::clone(authorizer_of),
            user: attributes.user.clone(),
        });
        let about = Check {
            group: attributes.resource.group.to_string(),
            resource: attributes.resource.plural.to_string(),
            subresource: attributes.subresource.to_owned(),
            namespace: namespace_of(attributes).into_owned(),
            name: name_of(attributes).into_owned(),
            ..Check::default()
        };
        let namespace_object = match self.namespace {
            Some(namespace) => namespace_type().value(namespace)?,
            None => CelValue::Null,
        };
        Ok(Inputs {
            object: any.value(self.object)?,
            old_object: any.value(self.old)?,
            namespace_object,
            request: request_type().value(self.request)?,
            params: any.value(self.params)?,
            authorizer: Some([
                authorizer(Arc::clone(&asking)),
                resource_check(asking, about),
            ]),
        })
    }
}

/// Asks what somebody may do.
struct Asking {
    authorizer: Arc<UnionAuthorizer>,
    user: UserInfo,
}

impl Authorizer for Asking {
    fn authorize(&self, check: &Check) -> Decision {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| UserInfo::service_account(namespace, name));
        let said = |text: &'_ str| (!text.is_empty()).then_some(());
        let labels = said(&check.label_selector).map(|()| &*check.label_selector);
        if let Some(Err(error)) = labels.map(LabelSelector::parse) {
            return Decision {
                error: Some(error.to_string()),
                ..Decision::default()
            };
        }
        let target = if check.path.is_empty() {
            Target::Resource(ResourceTarget {
                group: &check.group,
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                field_selector: said(&check.field_selector).map(|()| &*check.field_selector),
                label_selector: labels,
            })
        } else {
            Target::Path(&check.path)
        };
        let answer = self.authorizer.explain(&Question {
            user: account.as_ref().unwrap_or(&self.user),
            verb: &check.verb,
            target,
        });
        let (allowed, reason) = match answer {
            Answer::Allow(reason) => (true, reason),
            Answer::NoOpinion(reason) => (false, reason),
        };
        Decision {
            allowed,
            reason,
            error: None,
        }
    }
}
