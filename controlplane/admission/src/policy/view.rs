//! A write as the expressions of a policy see it.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_auth::authz::UnionAuthorizer;
use coracle_cel::{admission::Inputs, schema::DeclType, value::Value as CelValue};
use serde_json::Value;

use crate::{
    attributes::Attributes,
    matching::{Forms, Invocation, Variables, review, variables::Seen},
};

/// The parts that are given to expressions.
pub(super) struct View {
    /// In the version that the policy asks for.
    pub(super) object: Value,
    old: Value,
    request: Value,
    namespace: Option<Value>,
}

/// Values by name, with parameters and without.
pub(super) struct Values<'v> {
    /// For match conditions.
    pub(super) variables: Variables<'v>,
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
        };
        let variables = Variables::new(seen, attributes, authorizer);
        let variables = variables.map_err(|error| error.to_string())?;
        let params = DeclType::any().value(params);
        let params = params.map_err(|error| error.to_string())?;
        let inputs = inputs(variables.values(), params.clone());
        let plain = Inputs {
            authorizer: None,
            ..inputs.clone()
        };
        Ok(Values {
            variables: variables.and(params),
            all: inputs.values(),
            plain: plain.values(),
        })
    }
}

fn inputs<'v>(values: &[CelValue<'v>], params: CelValue<'v>) -> Inputs<'v> {
    let at = |place: usize| values.get(place).cloned().unwrap_or(CelValue::Null);
    Inputs {
        object: at(0),
        old_object: at(1),
        namespace_object: at(2),
        request: at(3),
        params,
        authorizer: Some([at(4), at(5)]),
    }
}
