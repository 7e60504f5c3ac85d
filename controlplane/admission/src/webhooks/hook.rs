//! One webhook, as its configuration has it.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/accessors.go` at v1.37.

use std::{collections::HashMap, time::Duration};

use coracle_api::meta;
use coracle_registry::value::{items, string};
use coracle_webhook::ClientConfig;
use serde_json::Value;

use crate::matching::{Criteria, MatchConditions};

/// What is asked unless it is said.
const DEFAULT_TIMEOUT: u64 = 10;

/// A webhook.
pub(crate) struct Hook {
    /// Tells it from all others, also from one of the same name in its configuration.
    pub(crate) uid: String,
    pub(crate) configuration: String,
    pub(crate) name: String,
    /// Where it is, or why nobody knows.
    pub(crate) client: Result<ClientConfig, String>,
    pub(crate) criteria: Criteria,
    pub(crate) conditions: MatchConditions,
    /// Whether a write goes on where it has failed.
    pub(crate) ignores_failures: bool,
    pub(crate) timeout: Duration,
    pub(crate) side_effects: SideEffects,
    /// The first that it takes and we speak.
    pub(crate) version: Option<ReviewVersion>,
    /// Whether it is called again when others have changed the object since.
    pub(crate) is_reinvoked: bool,
}

/// What a call does besides answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideEffects {
    /// Nothing in a dry run.
    NoneOnDryRun,
    Some,
    Unsaid,
}

/// Versions of AdmissionReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The webhooks of a configuration, in its order.
pub(crate) fn read_all(configuration: &Value) -> Vec<Hook> {
    let name = meta::name(configuration);
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let webhooks = items(&configuration["webhooks"]).iter();
    let hooks = webhooks.map(|webhook| {
        let count = seen.entry(string(&webhook["name"])).or_default();
        let hook = Hook::read(webhook, name, *count);
        *count += 1;
        hook
    });
    hooks.collect()
}

impl Hook {
    fn read(webhook: &Value, configuration: &str, nth: usize) -> Self {
        let name = string(&webhook["name"]);
        let client = ClientConfig::read(&webhook["clientConfig"]);
        let timeout = webhook["timeoutSeconds"].as_u64();
        let versions = items(&webhook["admissionReviewVersions"]);
        Self {
            uid: format!("{configuration}/{name}/{nth}"),
            configuration: configuration.to_owned(),
            name: name.to_owned(),
            client: client.map_err(|error| error.to_string()),
            criteria: Criteria::read(webhook, "rules"),
            conditions: MatchConditions::read(&webhook["matchConditions"], false),
            ignores_failures: webhook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(timeout.unwrap_or(DEFAULT_TIMEOUT)),
            side_effects: match webhook["sideEffects"].as_str() {
                Some("None" | "NoneOnDryRun") => SideEffects::NoneOnDryRun,
                Some(_) => SideEffects::Some,
                None => SideEffects::Unsaid,
            },
            version: versions.iter().find_map(|version| match string(version) {
                "v1" => Some(ReviewVersion::V1),
                "v1beta1" => Some(ReviewVersion::V1Beta1),
                _ => None,
            }),
            is_reinvoked: webhook["reinvocationPolicy"] == "IfNeeded",
        }
    }
}
