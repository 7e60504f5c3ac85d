//! ValidatingAdmissionWebhook: webhooks that may refuse a write, all asked at the same time.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go` at v1.37.

use std::time::Instant;

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;
use futures::future::join_all;

use super::{
    dispatch::{Call, Dispatcher},
    hook::Hook,
    kind::Kind,
};
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

pub(crate) struct ValidatingAdmissionWebhook(Dispatcher);

impl ValidatingAdmissionWebhook {
    pub(crate) fn new(parts: &Parts) -> Self {
        let plural = "validatingwebhookconfigurations";
        Self(Dispatcher::new(parts, plural, Kind::Validating))
    }

    async fn ask(
        &self,
        (index, hook): (usize, &Hook),
        attributes: &Attributes<'_>,
        call: &Call<'_>,
    ) -> Result<(), Status> {
        let begun = Instant::now();
        let answer = hook.call(&self.0.webhooks, Kind::Validating, attributes, call.shown());
        let answer = answer.await;
        let place = (begun, (0, index));
        self.0.judge(hook, attributes, place, answer).map(drop)
    }
}

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, _operation: Operation, resource: &ApiResource) -> bool {
        self.0.handles(resource)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (forms, hooks) = (self.0.forms(attributes), self.0.hooks(attributes.resource));
        let mut calls = Vec::new();
        for hook in hooks.iter() {
            if let Some(call) = self.0.call(hook, attributes, &forms).await? {
                calls.push((hook, call));
            }
        }
        let asked = calls
            .iter()
            .enumerate()
            .map(|(index, (hook, call))| self.ask((index, hook), attributes, call));
        // All of them are waited for: what they tell and count does not depend on each other.
        join_all(asked).await.into_iter().collect()
    }
}
