//! How the conversion webhooks of kinds are reached: as those of admission are.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_registry::{converter::CallConverter, custom_resource::WebhookConversion};
use coracle_telemetry::ErrorChain;
use coracle_webhook::{ClientConfig, ReadConfigError, Webhooks};

/// Who calls the webhook of a kind.
pub(super) fn reach(webhooks: &Webhooks, conversion: &WebhookConversion) -> Arc<dyn CallConverter> {
    Arc::new(Caller {
        webhooks: webhooks.clone(),
        config: ClientConfig::read(&conversion.client_config),
    })
}

struct Caller {
    webhooks: Webhooks,
    /// Of a definition that was stored by something that takes others: each call says so.
    config: Result<ClientConfig, ReadConfigError>,
}

#[async_trait]
impl CallConverter for Caller {
    async fn call(&self, review: Vec<u8>, deadline: Duration) -> Result<Bytes, String> {
        let config = self.config.as_ref();
        let config = config.map_err(|error| ErrorChain(error).to_string())?;
        let answer = self.webhooks.post(config, review.into(), deadline).await;
        answer.map_err(|error| error.to_string())
    }
}
