//! MutatingAdmissionWebhook: webhooks that may change a write, one after the other.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go` at v1.37.

use std::time::Instant;

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;
use serde_json::{Value, json};

use super::{dispatch::Dispatcher, hook::Hook, kind::Kind};
use crate::{
    attributes::{Attributes, Operation},
    matching::Forms,
    parts::Parts,
    plugin::Plugin,
};

pub(crate) struct MutatingAdmissionWebhook(Dispatcher);

impl MutatingAdmissionWebhook {
    pub(crate) fn new(parts: &Parts) -> Self {
        let plural = "mutatingwebhookconfigurations";
        Self(Dispatcher::new(parts, plural, Kind::Mutating))
    }

    async fn call_all(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let forms = self.0.forms(attributes);
        for (index, hook) in self.0.hooks(attributes.resource).iter().enumerate() {
            // Who was not called before is not called for what others have changed.
            if attributes.reinvocation.is_again() && !attributes.reinvocation.is_due(&hook.uid) {
                continue;
            }
            let Some(changed) = self.call(hook, index, attributes, &forms).await? else {
                continue;
            };
            if let Some(object) = changed {
                *attributes.object_mut() = object;
                attributes.reinvocation.changed();
                attributes.reinvocation.want();
            }
            if hook.is_reinvoked {
                attributes.reinvocation.called(&hook.uid);
            }
        }
        Ok(())
    }

    /// Calls one, if it is to be called; the object that it makes, if it changes it.
    async fn call(
        &self,
        hook: &Hook,
        index: usize,
        attributes: &Attributes<'_>,
        forms: &Forms,
    ) -> Result<Option<Option<Value>>, Status> {
        let Some(call) = self.0.call(hook, attributes, forms).await? else {
            return Ok(None);
        };
        let (begun, round) = (Instant::now(), u8::from(attributes.reinvocation.is_again()));
        let answer = hook.call(&self.0.webhooks, Kind::Mutating, attributes, call.shown());
        let brought = match answer.await {
            Ok(answer) => {
                let shown = (&call.invocation, &call.kind);
                let objects = (&*call.object, attributes.object());
                let patched = hook.patched(&answer, forms, shown, objects).await;
                patched.map(|patched| (patched, answer.patch))
            }
            Err(refusal) => Err(refusal),
        };
        let place = (round, index);
        let judged = self.0.judge(hook, attributes, (begun, place), brought)?;
        let (patched, patch) = judged.unwrap_or_default();
        annotate(attributes, hook, place, patched.is_some(), &patch);
        Ok(Some(patched))
    }
}

/// What the audit is to know: whether it changed something, and by what.
fn annotate(
    attributes: &Attributes<'_>,
    hook: &Hook,
    (round, index): (u8, usize),
    mutated: bool,
    patch: &[u8],
) {
    let mut said = json!({"configuration": hook.configuration, "webhook": hook.name});
    let key = |what: &str| format!("{what}.webhook.admission.k8s.io/round_{round}_index_{index}");
    if !patch.is_empty() {
        let patch: Value = serde_json::from_slice(patch).unwrap_or_default();
        said["patch"] = patch;
        said["patchType"] = "JSONPatch".into();
        attributes.annotate(key("patch"), said.to_string());
    }
    let said = json!({"configuration": hook.configuration, "webhook": hook.name,
        "mutated": mutated});
    attributes.annotate(key("mutation"), said.to_string());
}

#[async_trait]
impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, _operation: Operation, resource: &ApiResource) -> bool {
        self.0.handles(resource)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        attributes.enter_webhooks();
        let called = self.call_all(attributes).await;
        attributes.leave_webhooks();
        called
    }
}
