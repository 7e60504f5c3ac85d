//! How the conversion webhooks of kinds are reached: as those of admission are.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_registry::{
    converter::{CallConverter, NoAnswer, Outcome},
    custom_resource::WebhookConversion,
};
use coracle_telemetry::ErrorChain;
use coracle_webhook::{ClientConfig, ReadConfigError, Webhooks};

use crate::metrics::ConversionMetrics;

/// Who calls the webhook of a kind.
pub(super) fn reach(
    webhooks: &Webhooks,
    metrics: &ConversionMetrics,
    conversion: &WebhookConversion,
) -> Arc<dyn CallConverter> {
    Arc::new(Caller {
        webhooks: webhooks.clone(),
        definition: conversion.definition.clone(),
        metrics: metrics.clone(),
        config: ClientConfig::read(&conversion.client_config),
    })
}

struct Caller {
    webhooks: Webhooks,
    definition: String,
    metrics: ConversionMetrics,
    /// Of a definition that was stored by something that takes others: each call says so.
    config: Result<ClientConfig, ReadConfigError>,
}

#[async_trait]
impl CallConverter for Caller {
    async fn call(&self, review: Vec<u8>, deadline: Duration) -> Result<Bytes, NoAnswer> {
        let config = self.config.as_ref();
        let config = config.map_err(|error| ErrorChain(error).to_string())?;
        let answer = self.webhooks.post(config, review.into(), deadline).await;
        answer.map_err(|error| NoAnswer {
            why: error.to_string(),
            is_too_long: error.is_too_long(),
        })
    }

    fn called(&self, outcome: &Outcome<'_>) {
        self.metrics.called(&self.definition, outcome);
    }
}
