//! What plugins are made from.

use std::{net::IpAddr, sync::Arc};

use coracle_auth::{authn::service_account::TokenSigner, authz};
use coracle_registry::{resource::Registry, store::Store};
use coracle_webhook::Webhooks;
use ipnet::IpNet;

use crate::{
    config::AdmissionConfig, kinds::Kinds, matching::metrics::ConditionMetrics,
    metrics::AdmissionMetrics, pod_security::metrics::PodSecurityMetrics,
    policy::metrics::PolicyMetrics, webhooks::metrics::WebhookMetrics,
};

/// What plugins need of the server.
#[derive(Clone)]
pub struct Parts {
    /// For the present state.
    pub store: Store,
    /// The kinds.
    pub registry: Arc<Registry>,
    /// The same with those that come and go.
    pub kinds: Arc<dyn Kinds>,
    /// For webhooks.
    pub webhooks: Webhooks,
    /// For rights that only an object shows the need of.
    pub authorizer: Arc<authz::UnionAuthorizer>,
    /// For tokens that Secrets ask for.
    pub signer: Arc<TokenSigner>,
    /// The certificate that pods trust the API server by, in PEM.
    pub cluster_ca: String,
    /// What no node may say that it is.
    pub service_cidr: IpNet,
    /// What plugins are told from outside.
    pub config: AdmissionConfig,
    /// What plugins count.
    pub metrics: PodSecurityMetrics,
    /// How long they take.
    pub admission_metrics: AdmissionMetrics,
    /// What is counted of webhooks.
    pub webhook_metrics: WebhookMetrics,
    /// What is counted of the match conditions of webhooks and policies.
    pub condition_metrics: ConditionMetrics,
    /// What is counted of policies.
    pub policy_metrics: PolicyMetrics,
    /// Where clients reach this server: if that is loopback, nodes may be there, too.
    pub advertise: IpAddr,
}
