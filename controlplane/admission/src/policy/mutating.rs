//! MutatingAdmissionPolicy: policies that change what is written.
//!
//! Source: `.../policy/mutating/dispatcher.go`, `.../policy/generic/policy_dispatcher.go` at v1.37.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use coracle_api::{
    resource::Gvk,
    schema::{self, Schema},
    status::Status,
};
use coracle_auth::authz::UnionAuthorizer;
use coracle_registry::api_resource::ApiResource;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, refusal},
    index::{Binding, Hook, Index},
    metrics::PolicyMetrics,
    mutation::{Mutator, Target},
    params::{Param, Params},
    reinvocation::Key,
    view::View,
};
use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
    matching::{
        ConditionMetrics, Conditioned, Forms, Invocation, Namespaces, Verdict, asked_of_policies,
        forms::{hide_identity, keep_managers},
        place::namespace_of,
    },
    parts::Parts,
    plugin::Plugin,
};

const KINDS: [&str; 2] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// The policies of this kind.
#[derive(Clone)]
pub(crate) struct MutatingAdmissionPolicy(Option<Arc<Inner>>);

struct Inner {
    index: Index<Mutator>,
    params: Params,
    kinds: Arc<dyn Kinds>,
    namespaces: Namespaces,
    authorizer: Arc<UnionAuthorizer>,
    metrics: PolicyMetrics,
    conditions: ConditionMetrics,
}

/// One policy with one binding and one parameter.
struct Call<'a> {
    hook: &'a Hook<Mutator>,
    binding: &'a Binding,
    invocation: Invocation,
    params: Param,
}

impl MutatingAdmissionPolicy {
    pub(crate) fn new(parts: &Parts) -> Self {
        let index = Index::new(
            &parts.registry,
            KINDS,
            Mutator::compile,
            parts.config.mutating_policies.as_ref(),
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
impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        let inner = self.0.as_ref();
        let has_policies =
            inner.is_some_and(|inner| inner.index.has_some(|| asked_of_policies(resource)));
        has_policies && operation != Operation::Delete
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let hooks = inner.index.hooks(asked_of_policies(attributes.resource));
        let mut failures = Vec::new();
        let forms = Forms::of(attributes, &*inner.kinds);
        let mut calls = Vec::new();
        for hook in &*hooks {
            let about = (&*attributes, &forms);
            inner.calls(hook, about, &mut calls, &mut failures).await;
        }
        if attributes.reinvocation.is_again() {
            attributes.enter_policies();
        }
        for call in &calls {
            inner.call(call, attributes, &forms, &mut failures).await?;
            // One evaluation may take long: others go on between two.
            tokio::task::yield_now().await;
        }
        attributes.leave_policies();
        match failures.is_empty() {
            true => Ok(()),
            false => Err(refusal(attributes, failures)),
        }
    }
}

impl Inner {
    /// The parts of a policy that a write is about.
    async fn calls<'a>(
        &self,
        hook: &'a Hook<Mutator>,
        (attributes, forms): (&Attributes<'_>, &Forms),
        calls: &mut Vec<Call<'a>>,
        failures: &mut Vec<Failure>,
    ) {
        let found = hook
            .constraints
            .find(attributes, &*self.kinds, &self.namespaces)
            .await;
        let invocation = match found {
            Ok(Some(invocation)) => invocation,
            Ok(None) => return,
            Err(status) => {
                return failures.extend(hook.misconfigured(None, &status.message));
            }
        };
        let kind = match self.params.kind(hook) {
            Ok(kind) => kind,
            Err(why) => return failures.extend(hook.misconfigured(None, &why)),
        };
        let known = (&*self.kinds, &self.namespaces);
        for binding in &hook.bindings {
            let params = match binding.is_about(attributes, known).await {
                Ok(false) => continue,
                Ok(true) => {
                    if let Err(status) = seen(forms, &invocation, attributes).await {
                        failures.extend(hook.misconfigured(None, &status.message));
                        continue;
                    }
                    let namespace = namespace_of(attributes);
                    self.params.collect(&kind, binding, &namespace).await
                }
                Err(why) => Err(why),
            };
            match params {
                Ok(params) => calls.extend(params.into_iter().map(|params| Call {
                    hook,
                    binding,
                    invocation: invocation.clone(),
                    params,
                })),
                Err(why) => failures.extend(hook.misconfigured(Some(binding), &why)),
            }
        }
    }

    async fn call(
        &self,
        call: &Call<'_>,
        attributes: &mut Attributes<'_>,
        forms: &Forms,
        failures: &mut Vec<Failure>,
    ) -> Result<(), Status> {
        let Call { hook, binding, .. } = call;
        let mutator = &hook.evaluator;
        let namespace = self.namespaces.of(attributes).await?;
        let params = call.params.read();
        if !mutator.conditions.is_empty() {
            let as_asked = (forms, &call.invocation);
            let view = View::new(attributes, as_asked, namespace.clone()).await;
            let mut view = view.map_err(unseen)?;
            hide_identity(attributes, &mut view.object);
            let values = view.values(attributes, &self.authorizer, &params);
            let values = values.map_err(Status::internal)?;
            let (verdict, judged) = mutator.conditions.judge(&values.all);
            let of = Conditioned::policy(&hook.name, attributes.operation);
            self.conditions.judged(&of, judged);
            match verdict {
                Verdict::Matches => {}
                Verdict::Excluded(_) => return Ok(()),
                Verdict::Failed(why) => {
                    failures.extend(hook.failed(binding, &why));
                    return Ok(());
                }
            }
        }
        let key = call.key();
        if attributes.reinvocation.is_again() && !attributes.policies.is_due(&key) {
            return Ok(());
        }
        let is_changed = self
            .mutate((call, &params), attributes, (forms, namespace), failures)
            .await?;
        if is_changed {
            attributes.policies.changed();
            attributes.reinvocation.want();
        }
        if mutator.is_reinvoked {
            attributes.policies.asked(key);
        }
        Ok(())
    }

    /// Whether something is otherwise afterwards.
    async fn mutate(
        &self,
        (call, params): (&Call<'_>, &Value),
        attributes: &mut Attributes<'_>,
        (forms, namespace): (&Forms, Option<Value>),
        failures: &mut Vec<Failure>,
    ) -> Result<bool, Status> {
        if attributes.object().is_null() {
            return Ok(false);
        }
        let gvk = call.invocation.kind(attributes);
        let schema = self.schema(&gvk)?;
        let target = Target {
            gvk: &gvk,
            schema: &schema,
        };
        let mut is_changed = false;
        for mutation in &call.hook.evaluator.mutations {
            let invocation = &call.invocation;
            let view = View::new(attributes, (forms, invocation), namespace.clone()).await;
            let mut view = view.map_err(unseen)?;
            hide_identity(attributes, &mut view.object);
            let begun = Instant::now();
            let made = view
                .values(attributes, &self.authorizer, params)
                .and_then(|values| {
                    let object = (&view.object, &target);
                    let mutator = &call.hook.evaluator;
                    let mutated = || mutator.mutated(mutation, &values, object);
                    mutator.weight.place(mutated)
                });
            let failed = made.as_ref().err().map(String::as_str);
            let of = (&*call.hook.name, &*call.binding.name);
            self.metrics.mutated(of, failed, begun.elapsed());
            let made = match made {
                Ok(made) => made,
                Err(why) => {
                    failures.extend(call.hook.failed(call.binding, &why));
                    continue;
                }
            };
            if made == view.object {
                continue;
            }
            let unknown = mutation.unknown_fields(&target);
            let decoded = forms.decoded(invocation, &gvk, &made, unknown);
            let mut made = decoded.map_err(unreadable)?;
            keep_managers(&mut made, &view.object);
            if made != view.object {
                let back = forms.back(invocation, made, attributes.object()).await;
                *attributes.object_mut() = back.map_err(unmade)?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// What objects of a kind look like.
    fn schema(&self, gvk: &Gvk) -> Result<Schema, Status> {
        let served = self.kinds.of_kind(gvk);
        let schema = served.and_then(|resource| resource.schema.clone());
        let built_in = || schema::table().by_gvk(gvk).map(Schema::BuiltIn);
        schema.or_else(built_in).ok_or_else(|| {
            Status::service_unavailable(format!(
                "Resource kind {gvk} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
            ))
        })
    }
}

/// Whether a write can be shown as it is asked for.
async fn seen(
    forms: &Forms,
    invocation: &Invocation,
    attributes: &Attributes<'_>,
) -> Result<(), Status> {
    let old = attributes.old().unwrap_or(&Value::Null);
    forms.shown(invocation, old).await?;
    forms.shown(invocation, attributes.object()).await?;
    Ok(())
}

/// Of a write that could be shown before.
fn unseen(status: Status) -> Status {
    Status::internal(&status.message)
}

/// Of what a policy has made in another version.
fn unmade(status: Status) -> Status {
    let why = &status.message;
    Status::internal(format_args!("failed to convert object: {why}"))
}

impl Call<'_> {
    fn key(&self) -> Key {
        let (namespace, name) = self.params.name();
        Key {
            policy: self.hook.name.clone(),
            binding: self.binding.name.clone(),
            params: (namespace.to_owned(), name.to_owned()),
        }
    }
}

/// What a mutation has made cannot be read: nobody's failure policy is asked.
fn unreadable(status: Status) -> Status {
    const STRICT: &str = "strict decoding error";
    let at = status.message.find(STRICT).unwrap_or_default();
    Status::internal(&status.message[at..])
}
