//! ValidatingAdmissionPolicy: policies that refuse, warn, or put on record.
//!
//! Source: `.../policy/validating/dispatcher.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_api::status::{Cause, Reason, Status};
use coracle_auth::authz::UnionAuthorizer;
use coracle_cel::admission::Budget;
use coracle_registry::api_resource::ApiResource;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    index::{Binding, Hook, Index},
    metrics::PolicyMetrics,
    params::{Param, Params},
    validation::{Decision, Recorded, Validated, Validator},
    view::View,
};
use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
    matching::{
        ConditionMetrics, Conditioned, Forms, Invocation, Namespaces, asked_of_policies,
        place::namespace_of,
    },
    parts::Parts,
    plugin::Plugin,
};

const KINDS: [&str; 2] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The longest value of an annotation, in bytes.
const LONGEST_VALUE: usize = 10 * 1024;

/// What a binding asks for, and how it is counted.
const ACTIONS: [(&str, &str); 3] = [("Deny", "deny"), ("Warn", "warn"), ("Audit", "audit")];

/// The policies of this kind.
#[derive(Clone)]
pub(crate) struct ValidatingAdmissionPolicy(Option<Arc<Inner>>);

struct Inner {
    index: Index<Validator>,
    params: Params,
    kinds: Arc<dyn Kinds>,
    namespaces: Namespaces,
    authorizer: Arc<UnionAuthorizer>,
    metrics: PolicyMetrics,
    conditions: ConditionMetrics,
}

/// Why a write is refused, and by whom.
struct Denial {
    message: String,
    reason: Reason,
}

/// What is put on record for a policy: values by key, each once.
#[derive(Default)]
struct Collected(BTreeMap<String, Vec<String>>);

impl ValidatingAdmissionPolicy {
    pub(crate) fn new(parts: &Parts) -> Self {
        let index = Index::new(
            &parts.registry,
            KINDS,
            Validator::compile,
            parts.config.validating_policies.as_ref(),
        );
        Self(index.map(|index| {
            Arc::new(Inner {
                index,
                params: Params::new(parts.store.clone(), Arc::clone(&parts.kinds)),
                kinds: Arc::clone(&parts.kinds),
                namespaces: Namespaces::new(parts),
                authorizer: Arc::clone(&parts.authorizer),
                metrics: parts.policy_metrics.clone(),
                conditions: parts.condition_metrics.clone(),
            })
        }))
    }

    /// Takes in what there is now.
    pub(crate) fn refresh(&self) {
        if let Some(inner) = &self.0 {
            inner.index.refresh();
        }
    }

    /// Takes in what changes until `stop`.
    pub(crate) async fn follow(&self, stop: &CancellationToken) {
        match &self.0 {
            Some(inner) => inner.index.follow(stop).await,
            None => stop.cancelled().await,
        }
    }
}

#[async_trait]
impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, _: Operation, resource: &ApiResource) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.index.has_some(|| asked_of_policies(resource)))
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let forms = Forms::of(attributes, &*inner.kinds);
        let mut denials = Vec::new();
        for hook in &*inner.index.hooks(asked_of_policies(attributes.resource)) {
            inner.policy(hook, attributes, &forms, &mut denials).await?;
        }
        match denials.into_iter().next() {
            Some(denial) => Err(refusal(attributes, denial)),
            None => Ok(()),
        }
    }
}

impl Inner {
    async fn policy(
        &self,
        hook: &Hook<Validator>,
        attributes: &Attributes<'_>,
        forms: &Forms,
        denials: &mut Vec<Denial>,
    ) -> Result<(), Status> {
        let found = hook
            .constraints
            .find(attributes, &*self.kinds, &self.namespaces)
            .await;
        let invocation = match found {
            Ok(Some(invocation)) => invocation,
            Ok(None) => return Ok(()),
            Err(status) => {
                denials.extend(hook.misconfigured(None, &status.message));
                return Ok(());
            }
        };
        let kind = match self.params.kind(hook) {
            Ok(kind) => kind,
            Err(why) => {
                denials.extend(hook.misconfigured(None, &why));
                return Ok(());
            }
        };
        let mut collected = Collected::default();
        let known = (&*self.kinds, &self.namespaces);
        for binding in &hook.bindings {
            let params = match binding.is_about(attributes, known).await {
                Ok(false) => continue,
                Ok(true) => {
                    let namespace = namespace_of(attributes);
                    self.params.collect(&kind, binding, &namespace).await
                }
                Err(why) => Err(why),
            };
            match params {
                Ok(params) if params.is_empty() => {}
                Ok(params) => {
                    let seen = (attributes, forms, &invocation);
                    match self.validated(hook, seen, &params).await? {
                        Ok(validated) => validated.into_iter().for_each(|one| {
                            let of = (&**binding, &self.metrics);
                            hook.follow_up(of, attributes, one, &mut collected, denials);
                        }),
                        Err(why) => denials.extend(hook.misconfigured(Some(binding), &why)),
                    }
                }
                Err(why) => denials.extend(hook.misconfigured(Some(binding), &why)),
            }
        }
        collected.publish(&hook.name, attributes);
        Ok(())
    }

    /// What the policy says with each of the parameters, or why it cannot be shown the write.
    async fn validated(
        &self,
        hook: &Hook<Validator>,
        (attributes, forms, invocation): (&Attributes<'_>, &Forms, &Invocation),
        params: &[Param],
    ) -> Result<Result<Vec<Validated>, String>, Status> {
        let namespace = self.namespaces.of(attributes).await?;
        let view = match View::new(attributes, (forms, invocation), namespace).await {
            Ok(view) => view,
            Err(status) => {
                let why = format!("failed to convert object version: {}", status.message);
                return Ok(Err(why));
            }
        };
        let mut all = Vec::with_capacity(params.len());
        for one in params {
            let one = one.read();
            let validated = match view.values(attributes, &self.authorizer, &one) {
                Ok(values) => {
                    let validator = &hook.evaluator;
                    let validate = || validator.validate(&values, Budget::POLICY);
                    validator.weight.place(validate)
                }
                Err(why) => hook.evaluator.unseen(why),
            };
            if let Some(judged) = validated.judged {
                let of = Conditioned::policy(&hook.name, attributes.operation);
                self.conditions.judged(&of, judged);
            }
            all.push(validated);
            // One evaluation may take long: others go on between two.
            tokio::task::yield_now().await;
        }
        Ok(Ok(all))
    }
}

impl Hook<Validator> {
    /// What cannot be done with it as it is.
    fn misconfigured(&self, binding: Option<&Binding>, why: &str) -> Option<Denial> {
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let message = format!("failed to configure {what}: {why}");
        self.is_strict.then(|| Denial {
            message: self.denied(binding, &message),
            reason: Reason::Invalid,
        })
    }

    fn denied(&self, binding: Option<&Binding>, message: &str) -> String {
        let policy = &self.name;
        match binding {
            Some(Binding { name, .. }) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{name}' denied request: {message}"
            ),
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        }
    }

    /// Does with what a policy says what the binding asks for.
    fn follow_up(
        &self,
        (binding, metrics): (&Binding, &PolicyMetrics),
        attributes: &Attributes<'_>,
        validated: Validated,
        collected: &mut Collected,
        denials: &mut Vec<Denial>,
    ) {
        let decided = validated.decisions.into_iter().zip(validated.times);
        for (index, (decision, took)) in decided.enumerate() {
            let count = |action, message: &str| {
                metrics.validated((&self.name, &binding.name), action, message, took);
            };
            let (message, reason) = match decision {
                Decision::Admit => continue,
                Decision::Ignore { message } => {
                    count("allow", &message);
                    continue;
                }
                Decision::Deny { message, reason } => (message, reason),
            };
            for action in &binding.actions {
                if let Some(counted) = ACTIONS.into_iter().find(|(name, _)| name == action) {
                    count(counted.1, &message);
                }
                match action.as_str() {
                    "Deny" => denials.push(Denial {
                        message: self.denied(Some(binding), &message),
                        reason,
                    }),
                    "Warn" => attributes.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        self.name, binding.name
                    )),
                    "Audit" => {
                        let failure = json!([{"message": message, "policy": self.name,
                            "binding": binding.name, "expressionIndex": index,
                            "validationActions": binding.actions}]);
                        attributes.annotate(FAILURE.to_owned(), failure.to_string());
                    }
                    _ => {}
                }
            }
        }
        for annotation in validated.annotations {
            match annotation {
                Recorded::Publish { key, value } => collected.add(key, value),
                Recorded::Refuse(why) => {
                    let of = (&*self.name, &*binding.name);
                    metrics.validated(of, "deny", &why, Duration::ZERO);
                    denials.push(Denial {
                        message: self.denied(Some(binding), &why),
                        reason: Reason::Invalid,
                    });
                }
            }
        }
    }
}

impl Collected {
    fn add(&mut self, key: String, mut value: String) {
        value.truncate(value.floor_char_boundary(LONGEST_VALUE));
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }

    fn publish(self, policy: &str, attributes: &Attributes<'_>) {
        for (key, values) in self.0 {
            attributes.annotate(format!("{policy}/{key}"), values.join(", "));
        }
    }
}

/// The first denial decides.
fn refusal(attributes: &Attributes<'_>, denial: Denial) -> Status {
    let Denial { message, reason } = denial;
    let mut status = attributes.forbidden(&message);
    status.reason = reason;
    status.code = match reason {
        Reason::Forbidden => 403,
        Reason::Unauthorized => 401,
        Reason::RequestEntityTooLarge => 413,
        _ => 422,
    };
    status.details.get_or_insert_default().causes.push(Cause {
        message,
        ..Cause::default()
    });
    status
}
