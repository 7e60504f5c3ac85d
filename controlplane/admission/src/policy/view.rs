//! A write as the expressions of a policy see it.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_auth::authz::UnionAuthorizer;
use coracle_cel::{admission::Inputs, value::Value as CelValue};
use serde_json::Value;

use crate::{
    attributes::Attributes,
    matching::{Forms, Invocation, Seen, review},
};

/// The parts that are given to expressions.
pub(super) struct View {
    /// In the version that the policy asks for.
    pub(super) object: Value,
    old: Value,
    request: Value,
    namespace: Option<Value>,
}

/// The values of names.
pub(super) struct Values<'v> {
    /// For those who may ask the authorizer.
    pub(super) all: Vec<CelValue<'v>>,
    /// For those who may not.
    pub(super) plain: Vec<CelValue<'v>>,
}

impl View {
    /// # Errors
    /// The objects cannot be had in that version.
    pub(super) async fn new(
        attributes: &Attributes<'_>,
        (forms, invocation): (&Forms, &Invocation),
        namespace: Option<Value>,
    ) -> Result<Self, Status> {
        let old = attributes.old().unwrap_or(&Value::Null);
        let old = forms.shown(invocation, old).await?;
        let object = forms.shown(invocation, attributes.object()).await?;
        Ok(Self {
            object: object.into_owned(),
            old: old.into_owned(),
            request: review::request(attributes, invocation),
            namespace,
        })
    }

    /// What names stand for, with these parameters.
    ///
    /// # Errors
    /// Something is not of its type.
    pub(super) fn values<'v>(
        &'v self,
        attributes: &Attributes<'_>,
        authorizer: &Arc<UnionAuthorizer>,
        params: &'v Value,
    ) -> Result<Values<'v>, String> {
        let seen = Seen {
            object: &self.object,
            old: &self.old,
            namespace: self.namespace.as_ref(),
            request: &self.request,
            params,
        };
        let inputs = seen.inputs(attributes, authorizer);
        let inputs = inputs.map_err(|error| error.to_string())?;
        let plain = Inputs {
            authorizer: None,
            ..inputs.clone()
        };
        Ok(Values {
            all: inputs.values(),
            plain: plain.values(),
        })
    }
}
