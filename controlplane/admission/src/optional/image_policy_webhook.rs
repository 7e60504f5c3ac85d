//! ImagePolicyWebhook: one webhook outside of the API says whether the images of a pod may run.
//!
//! ```text
//! images, annotations *.image-policy.k8s.io/*, namespace > remembered? > ImageReview > POST, again while it may help
//!    > allowed, denied; failed: as `defaultAllow` says
//! ```
//!
//! Where it fails and the pod is allowed all the same, that is put on record as upstream does, and
//! not on the pod.
//!
//! Source: `plugin/pkg/admission/imagepolicy/admission.go`,
//! `k8s.io/apiserver/pkg/util/webhook/webhook.go` at v1.37.

pub(crate) mod config;
mod remembered;
mod review;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;
use coracle_webhook::{CallError, Webhooks};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use self::{
    config::{ImagePolicy, NAME},
    remembered::Remembered,
    review::{Verdict, asked, spec},
};
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

/// For one try, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For all of them: no request of a client takes longer than a minute.
const PATIENCE: Duration = Duration::from_secs(45);
/// As upstream; each pause is half as long again as the one before.
const TRIES: u32 = 5;
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io";

pub(crate) struct ImagePolicyWebhook {
    policy: Option<Arc<ImagePolicy>>,
    webhooks: Webhooks,
    remembered: Mutex<Remembered>,
}

impl ImagePolicyWebhook {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            policy: parts.config.image_policy.clone(),
            webhooks: parts.webhooks.clone(),
            remembered: Mutex::new(Remembered::default()),
        }
    }

    /// What the webhook says of images, or has said lately.
    async fn verdict(&self, policy: &ImagePolicy, spec: &str) -> Result<Verdict, String> {
        let known = self.remembered.lock().find(spec, Instant::now());
        if let Some(known) = known {
            return Ok(known);
        }
        let answer = self.ask(policy, &review::body(spec)).await?;
        let verdict = review::read(&answer)?;
        let kept = match verdict.is_allowed {
            true => policy.allow_ttl,
            false => policy.deny_ttl,
        };
        let now = Instant::now();
        self.remembered.lock().keep(spec, &verdict, now + kept, now);
        Ok(verdict)
    }

    async fn ask(&self, policy: &ImagePolicy, body: &str) -> Result<Vec<u8>, String> {
        let (end, mut pause) = (Instant::now() + PATIENCE, policy.retry_backoff);
        let mut tried = 1;
        loop {
            let body = body.as_bytes().to_vec();
            let timeout = TIMEOUT.min(end.saturating_duration_since(Instant::now()));
            let answer = self.webhooks.post(&policy.client, body.into(), timeout);
            let error = match answer.await {
                Ok(answer) => return Ok(answer.to_vec()),
                Err(error) => error,
            };
            let is_over = tried == TRIES || Instant::now() + pause >= end;
            if is_over || !may_pass(&error) {
                return Err(error.to_string());
            }
            tracing::debug!(%error, tried, "the image policy webhook is asked again");
            sleep(pause).await;
            (pause, tried) = (pause.mul_f64(1.5), tried + 1);
        }
    }
}

/// Whether the same call may succeed a little later.
fn may_pass(error: &CallError) -> bool {
    error.is_reset() || matches!(error.code(), Some(429 | 500 | 504))
}

#[async_trait]
impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let Some(lists) = asked(attributes.subresource) else {
            return Ok(());
        };
        let spec = spec(attributes.object(), lists, attributes.namespace);
        let verdict = match self.verdict(policy, &spec).await {
            Ok(verdict) => verdict,
            Err(error) if policy.default_allow => {
                tracing::warn!(%error, "images are allowed though their webhook has failed");
                attributes.annotate(format!("{AUDIT}/failed-open"), "true".to_owned());
                return Ok(());
            }
            Err(error) => return Err(attributes.forbidden(error)),
        };
        for (key, value) in &verdict.audit {
            attributes.annotate(format!("{AUDIT}/{key}"), value.clone());
        }
        match (verdict.is_allowed, &*verdict.reason) {
            (true, _) => Ok(()),
            (false, "") => {
                Err(attributes.forbidden("one or more images rejected by webhook backend"))
            }
            (false, reason) => Err(attributes.forbidden(format_args!(
                "image policy webhook backend denied one or more images: {reason}"
            ))),
        }
    }
}
