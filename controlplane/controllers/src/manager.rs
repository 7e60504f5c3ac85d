//! The list of controllers: each with the service account that it acts as. All run and end
//! together.

use std::{sync::Arc, time::Duration};

use coracle_client::event_recorder;
use coracle_telemetry::TaskEnded;
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Manager,
    certificate_signing::{
        CertificateController, NodeNameCleaner,
        authority::{Authorities, AuthorityError},
    },
    clients::Clients,
    cluster_role_aggregation::ClusterRoleAggregation,
    config::ControllersConfig,
    context::Context,
    cronjob::CronJobController,
    daemonset::DaemonSetController,
    deployment::DeploymentController,
    disruption::DisruptionController,
    endpoints::EndpointsController,
    endpointslice::EndpointSliceController,
    endpointslice_mirroring::MirroringController,
    garbage_collector::GarbageCollector,
    job::JobController,
    namespace::NamespaceController,
    namespace_content::NamespaceContentController,
    node_ipam::NodeIpamController,
    node_lifecycle::NodeLifecycleController,
    pod_autoscaler::PodAutoscalerController,
    pod_certificate_requests::PodCertificateRequestCleaner,
    pod_gc::PodGcController,
    removals::Removals,
    replicaset::ReplicaController,
    resource_quota::ResourceQuotaController,
    served_kinds::ServedKinds,
    service_cidrs::ServiceCidrController,
    service_lb::ServiceLbController,
    statefulset::StatefulSetController,
    taint_eviction::TaintEvictionController,
    token_cleaner::TokenCleaner,
    token_secrets::TokenSecretsController,
    trims,
    trust_bundle::TrustBundlePublisher,
    ttl_after_finished::TtlAfterFinished,
    volume,
};

/// How long tasks get to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

fn setup(manager: &mut Manager, context: &Context, authorities: Authorities) {
    let of = |account| context.of(account);
    ReplicaController::<ReplicaSet>::setup(manager, &of("replicaset-controller"));
    ReplicaController::<ReplicationController>::setup(manager, &of("replication-controller"));
    DeploymentController::setup(manager, &of("deployment-controller"));
    DaemonSetController::setup(manager, &of("daemon-set-controller"));
    StatefulSetController::setup(manager, &of("statefulset-controller"));
    JobController::setup(manager, &of("job-controller"));
    CronJobController::setup(manager, &of("cronjob-controller"));
    TtlAfterFinished::setup(manager, &of("ttl-after-finished-controller"));
    PodAutoscalerController::setup(manager, &of("horizontal-pod-autoscaler"));
    EndpointSliceController::setup(manager, &of("endpointslice-controller"));
    EndpointsController::setup(manager, &of("endpoint-controller"));
    MirroringController::setup(manager, &of("endpointslicemirroring-controller"));
    ServiceLbController::setup(manager, &of("service-controller"));
    ServiceCidrController::setup(manager, &of("service-cidrs-controller"));
    NodeLifecycleController::setup(manager, &of("node-controller"));
    TaintEvictionController::setup(manager, &of("node-controller"));
    NodeIpamController::setup(manager, &of("node-controller"));
    PodGcController::setup(manager, &of("pod-garbage-collector"));
    CertificateController::setup(manager, &of("certificate-controller"), authorities);
    NodeNameCleaner::setup(manager, &of("certificate-controller"));
    PodCertificateRequestCleaner::setup(manager, &of("podcertificaterequestcleaner"));
    TrustBundlePublisher::setup(
        manager,
        &of("kube-apiserver-serving-clustertrustbundle-publisher"),
    );
    ResourceQuotaController::setup(manager, &of("resourcequota-controller"));
    DisruptionController::setup(manager, &of("disruption-controller"));
    NamespaceController::setup(manager, &of("namespace-controller"));
    // Two of upstream's in one, with an account each.
    NamespaceContentController::setup(manager, context);
    TokenSecretsController::setup(manager, context);
    TokenCleaner::setup(manager, &of("token-cleaner"));
    ClusterRoleAggregation::setup(manager, &of("clusterrole-aggregation-controller"));
    volume::setup(manager, context);
    // Last: it is fed by the informers of all others.
    GarbageCollector::setup(manager, &of("generic-garbage-collector"));
}

/// Why the controllers could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The node ranges do not fit into the cluster range.
    #[error(
        "a node range of {node_mask_bits} bits does not fit into the cluster range {cluster_cidr}"
    )]
    NodeMask {
        /// The range for all nodes.
        cluster_cidr: ipnet::Ipv4Net,
        /// The length of one node's prefix.
        node_mask_bits: u8,
    },
    /// The certificate authority is unusable.
    #[error("the certificate authority cannot sign: {0}")]
    Authority(String),
    /// An informer or a controller has panicked or ended: what it feeds would go on with a picture
    /// that no longer changes.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

impl From<AuthorityError> for RunError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error.to_string())
    }
}

/// Runs every controller until `shutdown`. Returns early if the settings are unusable, or if one
/// task has died: all others are ended then, for they read what it kept up to date.
///
/// Each controller acts as its own service account, as [`Clients`] says. Nothing is written before
/// the first watches are complete.
///
/// # Errors
/// [`RunError`] for settings that do not fit together: permanent, report to the user.
/// [`RunError::Task`]: start the controllers again, they keep no state of their own.
pub async fn run(
    clients: impl Into<Clients>,
    config: ControllersConfig,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let clients = clients.into();
    let (mask, cluster) = (config.node_mask_bits, config.cluster_cidr);
    if mask < cluster.prefix_len() || mask > 30 {
        return Err(RunError::NodeMask {
            cluster_cidr: cluster,
            node_mask_bits: mask,
        });
    }
    let authorities = Authorities::new(&config)?;
    let client = clients.shared.clone();
    let (recorder, events) = event_recorder::channel(client.clone(), None, Duration::ZERO);
    let mut manager = Manager::new(
        trims::informers(client.clone()),
        config.metrics.clone(),
        &shutdown,
    );
    let context = Context {
        kinds: Arc::new(ServedKinds::new(client.clone())),
        removals: Removals::default(),
        config: Arc::new(config),
        client,
        clients,
        recorder,
    };
    manager.add("the event recorder", |stop| events.run(stop));
    setup(&mut manager, &context, authorities);
    info!("controllers started");
    Ok(manager.run(STOP_TIMEOUT).await?)
}
