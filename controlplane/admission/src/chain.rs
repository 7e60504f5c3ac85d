//! Every plugin, in upstream's order.
//!
//! Source: `AllOrderedPlugins` in `pkg/kubeapiserver/options/plugins.go` at v1.37; which of it a
//! server has its flags say ([`selection`](crate::selection)). Policies and webhooks come before
//! our own, which upstream does in the storage of their kinds: what they check is what the others
//! have made of it.

use std::sync::Arc;

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::store::companions::{Companion, Companions, Write};
use futures::future::join_all;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    attributes::{Attributes, Request},
    certificates::{
        CertificateApproval, CertificateRequester, CertificateSigning,
        CertificateSubjectRestriction, ClusterTrustBundleAttest, PodCertificateSigning,
    },
    default_ingress_class::DefaultIngressClass,
    default_toleration_seconds::DefaultTolerationSeconds,
    limit_ranger::LimitRanger,
    manifests::Source,
    metrics::{AdmissionMetrics, Look},
    namespace_lifecycle::{NAME as NAMESPACE_LIFECYCLE, NamespaceLifecycle, OpenNamespace},
    node_restriction::NodeRestriction,
    optional::{
        always::{AlwaysAdmit, AlwaysDeny},
        always_pull_images::AlwaysPullImages,
        event_rate_limit::EventRateLimit,
        extended_resource_toleration::ExtendedResourceToleration,
        external_ips::DenyServiceExternalIPs,
        image_policy_webhook::ImagePolicyWebhook,
        namespaces::{NamespaceAutoProvision, NamespaceExists},
        owner_references::OwnerReferencesPermissionEnforcement,
        pod_anti_affinity::LimitPodHardAntiAffinityTopology,
        pod_node_selector::PodNodeSelector,
        pod_toleration_restriction::PodTolerationRestriction,
    },
    param_access::ParamAccess,
    parts::Parts,
    plugin::Plugin,
    pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator},
    pod_security::PodSecurity,
    pod_topology_labels::PodTopologyLabels,
    policy::{mutating::MutatingAdmissionPolicy, validating::ValidatingAdmissionPolicy},
    priority::Priority,
    resource_quota::{NAME as RESOURCE_QUOTA, QuotaLock, ResourceQuota},
    role_escalation::RoleEscalation,
    runtime_class::RuntimeClass,
    service_account::ServiceAccount,
    service_account_tokens::ServiceAccountTokens,
    storage_class::{DefaultStorageClass, PersistentVolumeClaimResize},
    storage_protection::StorageObjectInUseProtection,
    taint_nodes_by_condition::TaintNodesByCondition,
    webhooks::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook},
};

/// The plugins of one server.
pub struct Chain {
    ordered: Vec<Box<dyn Plugin>>,
    lifecycle: Option<NamespaceLifecycle>,
    quota: Option<ResourceQuota>,
    policies: (MutatingAdmissionPolicy, ValidatingAdmissionPolicy),
    manifests: Vec<Arc<Source>>,
    metrics: AdmissionMetrics,
}

/// What admission says in the transaction of one write, and its turn at the quotas of its
/// namespace: while it is kept, others of the namespace wait.
pub struct Turn<'a> {
    namespace: Option<OpenNamespace<'a>>,
    quota: Option<QuotaLock<'a>>,
}

#[async_trait]
impl Companion for Turn<'_> {
    async fn companions(&self, write: Write<'_>) -> Result<Companions, Status> {
        let mut all = Companions::default();
        if let Some(namespace) = &self.namespace {
            all = all.and(namespace.companions(write).await?);
        }
        if let Some(quota) = &self.quota {
            all = all.and(quota.companions(write).await?);
        }
        Ok(all)
    }

    fn exhausted(&self) -> Status {
        match (&self.quota, &self.namespace) {
            (None, Some(namespace)) => namespace.exhausted(),
            (Some(quota), _) => quota.exhausted(),
            (None, None) => Status::internal("nothing has changed, and nothing was written"),
        }
    }
}

impl Chain {
    /// All that there are.
    pub fn new(parts: &Parts) -> Self {
        let mutating = MutatingAdmissionPolicy::new(parts);
        let validating = ValidatingAdmissionPolicy::new(parts);
        let mut ordered: Vec<Box<dyn Plugin>> = vec![
            Box::new(AlwaysAdmit),
            Box::new(NamespaceAutoProvision::new(parts)),
            Box::new(NamespaceLifecycle::new(parts)),
            Box::new(NamespaceExists::new(parts)),
            Box::new(LimitPodHardAntiAffinityTopology),
            Box::new(LimitRanger::new(parts)),
            Box::new(ServiceAccount::new(parts)),
            Box::new(NodeRestriction::new(parts)),
            Box::new(TaintNodesByCondition),
            Box::new(AlwaysPullImages),
            Box::new(ImagePolicyWebhook::new(parts)),
            Box::new(PodSecurity::new(parts)),
            Box::new(PodNodeSelector::new(parts)),
            Box::new(Priority::new(parts)),
            Box::new(DefaultTolerationSeconds),
            Box::new(PodTolerationRestriction::new(parts)),
            Box::new(EventRateLimit::new(parts)),
            Box::new(ExtendedResourceToleration),
            Box::new(DefaultStorageClass::new(parts)),
            Box::new(StorageObjectInUseProtection),
            Box::new(OwnerReferencesPermissionEnforcement::new(parts)),
            Box::new(PersistentVolumeClaimResize::new(parts)),
            Box::new(RuntimeClass::new(parts)),
            Box::new(CertificateApproval::new(parts)),
            Box::new(CertificateSigning::new(parts)),
            Box::new(ClusterTrustBundleAttest::new(parts)),
            Box::new(CertificateSubjectRestriction),
            Box::new(DefaultIngressClass::new(parts)),
            Box::new(DenyServiceExternalIPs),
            Box::new(PodTopologyLabels::new(parts)),
            Box::new(NodeDeclaredFeatureValidator::new(parts)),
            Box::new(PodResizeValidator::new(parts)),
            Box::new(mutating.clone()),
            Box::new(MutatingAdmissionWebhook::new(parts)),
            Box::new(validating.clone()),
            Box::new(ValidatingAdmissionWebhook::new(parts)),
            Box::new(AlwaysDeny),
            Box::new(CertificateRequester),
            Box::new(PodCertificateSigning::new(parts)),
            Box::new(ServiceAccountTokens::new(parts)),
            Box::new(RoleEscalation::new(parts)),
            Box::new(ParamAccess::new(parts)),
        ];
        let selection = &parts.config.selection;
        ordered.retain(|plugin| selection.has(plugin.name()));
        let has_lifecycle = selection.has(NAMESPACE_LIFECYCLE);
        let has_quota = selection.has(RESOURCE_QUOTA);
        Self {
            ordered,
            lifecycle: has_lifecycle.then(|| NamespaceLifecycle::new(parts)),
            quota: ResourceQuota::new(parts).filter(|_| has_quota),
            policies: (mutating, validating),
            manifests: parts.config.manifests().cloned().collect(),
            metrics: parts.admission_metrics.clone(),
        }
    }

    /// Takes in the policies that there are: before the first write is admitted.
    pub fn refresh_policies(&self) {
        self.policies.0.refresh();
        self.policies.1.refresh();
    }

    /// Takes in policies as they change, and compiles them, and what files say, until `stop`.
    pub async fn follow_policies(&self, stop: &CancellationToken) {
        let (mutating, validating) = &self.policies;
        let manifests = join_all(
            self.manifests
                .iter()
                .map(|source| source.follow(stop, &self.metrics.manifests)),
        );
        tokio::join!(mutating.follow(stop), validating.follow(stop), manifests);
    }

    /// The same with one more where those are that call out, before our own.
    #[must_use]
    pub fn with(mut self, plugin: Box<dyn Plugin>) -> Self {
        let first_own = self
            .ordered
            .iter()
            .position(|one| one.name() == CertificateRequester.name());
        self.ordered
            .insert(first_own.unwrap_or(self.ordered.len()), plugin);
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.ordered
            .iter()
            .map(|plugin| plugin.name())
            .chain(self.quota.as_ref().map(|_| RESOURCE_QUOTA))
    }

    /// Lets every plugin change the write in turn.
    ///
    /// # Errors
    /// What the first says that refuses.
    pub async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        self.mutate_once(attributes).await?;
        if attributes.reinvocation.begins_again() {
            // Sidecars come with what the plugins that went before have never seen.
            self.mutate_once(attributes).await?;
        }
        Ok(())
    }

    async fn mutate_once(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let step = self.metrics.step(Look::Admit, attributes.operation);
        for plugin in &self.ordered {
            if plugin.handles(attributes.operation, attributes.resource) {
                let timing = step.plugin(plugin.name());
                timing.done(plugin.mutate(attributes).await)?;
            }
        }
        step.done();
        Ok(())
    }

    /// Shows every plugin what is valid and will be written.
    ///
    /// # Errors
    /// What the first says that refuses.
    pub async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let step = self.metrics.step(Look::Validate, attributes.operation);
        for plugin in &self.ordered {
            if plugin.handles(attributes.operation, attributes.resource) {
                let timing = step.plugin(plugin.name());
                timing.done(plugin.validate(attributes).await)?;
            }
        }
        step.done();
        Ok(())
    }

    /// The last of all: waits for a turn at the quotas that the write is charged to, if there are
    /// some. What it brings is the companion of the write's transaction. `change` is from what to
    /// what, of an update.
    ///
    /// # Errors
    /// The cache cannot follow.
    pub async fn turn(
        &self,
        request: &Request<'_>,
        change: Option<(&Value, &Value)>,
    ) -> Result<Option<Turn<'_>>, Status> {
        let lifecycle = self.lifecycle.as_ref();
        let namespace = lifecycle.and_then(|lifecycle| lifecycle.of_new(request));
        let quota = match &self.quota {
            Some(quota) => quota.turn(request, change).await?,
            None => None,
        };
        let is_needed = namespace.is_some() || quota.is_some();
        Ok(is_needed.then_some(Turn { namespace, quota }))
    }
}
