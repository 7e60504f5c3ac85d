//! Which webhooks are called for a write, and how their failures count.

use std::{borrow::Cow, sync::Arc, time::Instant};

use coracle_api::{resource::Gvk, status::Status};
use coracle_auth::authz::UnionAuthorizer;
use coracle_registry::api_resource::ApiResource;
use coracle_webhook::Webhooks;
use serde_json::Value;

use super::{
    call::Refusal,
    hook::Hook,
    index::{All, Hooks},
    kind::Kind,
    metrics::{Outcome, WebhookMetrics},
    review::Shown,
};
use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
    matching::{
        self, ConditionMetrics, Conditioned, Forms, Invocation, Judged, Namespaces, Seen, Verdict,
        forms::hide_identity, review::request,
    },
    parts::Parts,
};

/// What both plugins have.
pub(super) struct Dispatcher {
    kind: Kind,
    hooks: Hooks,
    pub(super) webhooks: Webhooks,
    kinds: Arc<dyn Kinds>,
    namespaces: Namespaces,
    authorizer: Arc<UnionAuthorizer>,
    metrics: WebhookMetrics,
    conditions: ConditionMetrics,
}

/// A write as a webhook that is called for it sees it.
pub(super) struct Call<'a> {
    pub(super) invocation: Invocation,
    /// Of the object.
    pub(super) kind: Gvk,
    request: Value,
    pub(super) object: Cow<'a, Value>,
    old: Cow<'a, Value>,
}

impl Call<'_> {
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown {
            request: &self.request,
            object: &self.object,
            old: &self.old,
        }
    }
}

impl Dispatcher {
    pub(super) fn new(parts: &Parts, plural: &str, kind: Kind) -> Self {
        let told = match kind {
            Kind::Mutating => &parts.config.mutating_webhooks,
            Kind::Validating => &parts.config.validating_webhooks,
        };
        Self {
            kind,
            hooks: Hooks::new(&parts.registry, plural, told),
            webhooks: parts.webhooks.clone(),
            kinds: Arc::clone(&parts.kinds),
            namespaces: Namespaces::new(parts),
            authorizer: Arc::clone(&parts.authorizer),
            metrics: parts.webhook_metrics.clone(),
            conditions: parts.condition_metrics.clone(),
        }
    }

    /// Whether there are webhooks at all that may be asked about a resource.
    pub(super) fn handles(&self, resource: &ApiResource) -> bool {
        self.hooks.has_some(|| matching::asked(resource))
    }

    /// Those that may be.
    pub(super) fn hooks(&self, resource: &ApiResource) -> All {
        self.hooks.all(matching::asked(resource))
    }

    pub(super) fn forms(&self, attributes: &Attributes<'_>) -> Forms {
        Forms::of(attributes, &*self.kinds)
    }

    /// How a webhook is to be called for a write; `None` if it is not.
    ///
    /// # Errors
    /// It cannot be told whether it is.
    pub(super) async fn call<'a>(
        &self,
        hook: &Hook,
        attributes: &'a Attributes<'_>,
        forms: &Forms,
    ) -> Result<Option<Call<'a>>, Status> {
        let found = hook
            .criteria
            .find(attributes, &*self.kinds, &self.namespaces)
            .await?;
        let Some(invocation) = found else {
            return Ok(None);
        };
        let old = attributes.old().unwrap_or(&Value::Null);
        let old = forms.shown(&invocation, old).await;
        let old = old.map_err(|status| self.unseen(status))?;
        let object = forms.shown(&invocation, attributes.object()).await;
        let mut object = object.map_err(|status| self.unseen(status))?;
        if self.kind == Kind::Mutating && attributes.operation == Operation::Create {
            hide_identity(attributes, object.to_mut());
        }
        let call = Call {
            kind: invocation.kind(attributes),
            request: request(attributes, &invocation),
            object,
            old,
            invocation,
        };
        if hook.conditions.is_empty() || self.is_met(hook, attributes, &call).await? {
            return Ok(Some(call));
        }
        Ok(None)
    }

    /// Why a write ends of which no webhook can be shown what it asks for. Upstream says it twice
    /// where a write is changed.
    fn unseen(&self, status: Status) -> Status {
        let wrapped = |status: Status| Status::internal(&status.message);
        match self.kind {
            // The client may try again.
            _ if status.code == 429 => status,
            Kind::Mutating => wrapped(wrapped(status)),
            Kind::Validating => wrapped(status),
        }
    }

    /// Whether the match conditions hold.
    async fn is_met(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        call: &Call<'_>,
    ) -> Result<bool, Status> {
        let seen = Seen {
            object: &call.object,
            old: &call.old,
            // Of webhooks' conditions upstream never says in which namespace they are.
            namespace: None,
            request: &call.request,
            params: &Value::Null,
        };
        let (verdict, judged) = match seen.inputs(attributes, &self.authorizer) {
            Ok(inputs) => hook.conditions.judge(&inputs.values()),
            Err(error) => (Verdict::Failed(error.to_string()), Judged::default()),
        };
        let r#type = match self.kind {
            Kind::Mutating => "admit",
            // As upstream; calls are counted under another name.
            Kind::Validating => "validate",
        };
        let of = Conditioned::webhook(&hook.name, r#type, attributes.operation);
        self.conditions.judged(&of, judged);
        match verdict {
            Verdict::Matches => Ok(true),
            Verdict::Excluded(_) => Ok(false),
            Verdict::Failed(_) if hook.ignores_failures => Ok(false),
            Verdict::Failed(why) => Err(attributes.forbidden(why)),
        }
    }

    /// What a call has come to: what it brought, nothing if it failed and may, or why the write
    /// ends. `place` is that of the webhook among all, and how often it was called before.
    pub(super) fn judge<T>(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        (begun, (round, index)): (Instant, (u8, usize)),
        result: Result<T, Refusal>,
    ) -> Result<Option<T>, Status> {
        let outcome = |code, rejected_by| Outcome { code, rejected_by };
        let (outcome, judged) = match result {
            Ok(brought) => (outcome(200, None), Ok(Some(brought))),
            Err(Refusal::Denied(status)) => (outcome(status.code, Some("no_error")), Err(*status)),
            Err(Refusal::Internal(status)) => {
                (outcome(0, Some("apiserver_internal_error")), Err(*status))
            }
            Err(Refusal::Failed { why, code }) if hook.ignores_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "failed calling webhook, failing open"
                );
                self.metrics.failed_open(self.kind, &hook.name);
                let prefix = match self.kind {
                    Kind::Mutating => "failed-open.mutation.webhook.admission.k8s.io/",
                    Kind::Validating => "failed-open.validating.webhook.admission.k8s.io/",
                };
                let key = format!("{prefix}round_{round}_index_{index}");
                attributes.annotate(key, hook.name.clone());
                (outcome(code, None), Ok(None))
            }
            Err(Refusal::Failed { why, code }) => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "failed calling webhook, failing closed"
                );
                let by = Some("calling_webhook_error");
                (outcome(code, by), Err(hook.failure(&why)))
            }
        };
        let of = (self.kind, &*hook.name);
        let took = begun.elapsed();
        self.metrics.called(of, attributes.operation, took, outcome);
        judged
    }
}
