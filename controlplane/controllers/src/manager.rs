//! Builds all informers and controllers, connects them, and runs them until told to stop.

use std::{fmt::Debug, sync::Arc, time::Duration};

use coracle_api::meta::NODE_LEASE_NAMESPACE;
use coracle_client::{
    event_recorder,
    informer::{Informer, Selection},
    tasks::spawn_synced,
};
use coracle_telemetry::{TaskEnded, Tasks};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Endpoints, Namespace, Node, ResourceQuota, Secret, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
    rbac::v1::ClusterRole,
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    certificate_signing::{
        CertificateController,
        authority::{Authorities, AuthorityError},
    },
    clients::Clients,
    cluster_role_aggregation::{self, ClusterRoleAggregation},
    config::ControllersConfig,
    context::Context,
    deployment::DeploymentController,
    disruption::DisruptionController,
    endpoints::EndpointsController,
    endpointslice::EndpointSliceController,
    endpointslice_mirroring::MirroringController,
    garbage_collector::GarbageCollector,
    job::JobController,
    namespace::NamespaceController,
    namespace_content::{self, NamespaceContentController},
    node_ipam::NodeIpamController,
    node_lifecycle::NodeLifecycleController,
    pod::{self, Pod},
    pod_gc::PodGcController,
    replicaset::ReplicaSetController,
    resource_quota::ResourceQuotaController,
    served_kinds::ServedKinds,
    service_endpoints::ServiceTrigger,
    taint_eviction::TaintEvictionController,
    token_cleaner::{self, TokenCleaner},
    token_secrets::{self, TokenSecretsController},
};

/// How long tasks get to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the controllers could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The node ranges do not fit into the cluster range.
    #[error("a node range of {node_mask_bits} bits does not fit into the cluster range {cluster_cidr}")]
    NodeMask {
        /// The range for all nodes.
        cluster_cidr: ipnet::Ipv4Net,
        /// The length of one node's prefix.
        node_mask_bits: u8,
    },
    /// The certificate authority is unusable.
    #[error("the certificate authority cannot sign: {0}")]
    Authority(String),
    /// An informer or a controller has panicked or ended: what it feeds would go on with a picture that no longer changes.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

impl From<AuthorityError> for RunError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error.to_string())
    }
}

/// Runs every controller until `shutdown`. Returns early if the settings are unusable, or if one task has died: all others
/// are ended then, for they read what it kept up to date.
///
/// Each controller acts as its own service account, as [`Clients`] says. Nothing is written before the first watches are
/// complete.
///
/// # Errors
/// [`RunError`] for settings that do not fit together: permanent, report to the user. [`RunError::Task`]: start the
/// controllers again, they keep no state of their own.
pub async fn run(
    clients: impl Into<Clients>,
    config: ControllersConfig,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let clients = clients.into();
    let (mask, cluster) = (config.node_mask_bits, config.cluster_cidr);
    if mask < cluster.prefix_len() || mask > 30 {
        return Err(RunError::NodeMask { cluster_cidr: cluster, node_mask_bits: mask });
    }
    let authorities = Authorities::new(&config)?;
    let (recorder, events) = event_recorder::channel(clients.shared.clone(), None, Duration::ZERO);
    let context = Context { client: clients.shared.clone(), clients, config: Arc::new(config), recorder };
    // Ends with the tasks that it stops, and with `shutdown`.
    let mut tasks = Tasks::new(shutdown.child_token());
    let stop = tasks.stop();
    tasks.add("the event recorder", events.run(stop));
    start(&context, authorities, &mut tasks);
    info!("controllers started");
    let ended = tasks.watch().await;
    // Each cuts off what it does and ends at once; the caller has a limit for all.
    tasks.finish(STOP_TIMEOUT).await;
    Ok(ended?)
}

/// The informers, one a kind.
struct Informers {
    pods: Informer<Pod>,
    replica_sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    jobs: Informer<Job>,
    services: Informer<Service>,
    endpoint_slices: Informer<EndpointSlice>,
    endpoints: Informer<Endpoints>,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    namespaces: Informer<Namespace>,
    requests: Informer<CertificateSigningRequest>,
    accounts: Informer<ServiceAccount>,
    root_cas: Informer<ConfigMap>,
    tokens: Informer<Secret>,
    account_tokens: Informer<Secret>,
    cluster_roles: Informer<ClusterRole>,
    quotas: Informer<ResourceQuota>,
    budgets: Informer<PodDisruptionBudget>,
}

impl Informers {
    fn new(client: &Client) -> Self {
        let everything = Selection::all;
        let named = |name: &str| Selection::fields(format!("metadata.name={name}"));
        let of_type = |kind: &str| Selection::fields(format!("type={kind}"));
        let (tokens, account_tokens) = (of_type(token_cleaner::TOKEN_TYPE), of_type(token_secrets::SECRET_TYPE));
        Self {
            pods: Informer::new(Api::all(client.clone()), everything(), pod::trimmer()),
            replica_sets: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            deployments: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            jobs: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            services: Informer::new(Api::all(client.clone()), everything(), |service| {
                service.metadata.annotations = None;
                service.status = None;
            }),
            endpoint_slices: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            endpoints: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            nodes: Informer::new(Api::all(client.clone()), everything(), |node| {
                if let Some(status) = &mut node.status {
                    status.images = None;
                }
            }),
            leases: Informer::new(Api::namespaced(client.clone(), NODE_LEASE_NAMESPACE), everything(), |_| {}),
            namespaces: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            requests: Informer::new(Api::all(client.clone()), everything(), |_| {}),
            accounts: Informer::new(Api::all(client.clone()), everything(), |account| {
                account.metadata.annotations = None;
                account.secrets = None;
            }),
            root_cas: Informer::new(Api::all(client.clone()), named(namespace_content::ROOT_CA), |_| {}),
            tokens: Informer::new(Api::namespaced(client.clone(), "kube-system"), tokens, token_cleaner::trim),
            account_tokens: Informer::new(Api::all(client.clone()), account_tokens, token_secrets::trim),
            cluster_roles: Informer::new(Api::all(client.clone()), everything(), cluster_role_aggregation::trim),
            quotas: Informer::new(Api::all(client.clone()), everything(), |quota| quota.status = None),
            budgets: Informer::new(Api::all(client.clone()), everything(), |_| {}),
        }
    }

    fn spawn(self, tasks: &mut Tasks) {
        fn add<K>(tasks: &mut Tasks, informer: Informer<K>)
        where
            K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        {
            let shutdown = tasks.stop();
            tasks.add(informer.name(), informer.run(shutdown));
        }
        add(tasks, self.pods);
        add(tasks, self.replica_sets);
        add(tasks, self.deployments);
        add(tasks, self.jobs);
        add(tasks, self.services);
        add(tasks, self.endpoint_slices);
        add(tasks, self.endpoints);
        add(tasks, self.nodes);
        add(tasks, self.leases);
        add(tasks, self.namespaces);
        add(tasks, self.requests);
        add(tasks, self.accounts);
        add(tasks, self.root_cas);
        add(tasks, self.tokens);
        add(tasks, self.account_tokens);
        add(tasks, self.cluster_roles);
        add(tasks, self.quotas);
        add(tasks, self.budgets);
    }
}

/// The collector, fed by every informer that sees all objects of its kind.
fn collector(context: &Context, kinds: &Arc<ServedKinds>, i: &mut Informers) -> Arc<GarbageCollector> {
    let collector = GarbageCollector::new(&context.of("generic-garbage-collector"), kinds.clone());
    collector.feed(&mut i.pods);
    collector.feed(&mut i.replica_sets);
    collector.feed(&mut i.deployments);
    collector.feed(&mut i.jobs);
    collector.feed(&mut i.services);
    collector.feed(&mut i.endpoint_slices);
    collector.feed(&mut i.endpoints);
    collector.feed(&mut i.nodes);
    collector.feed(&mut i.namespaces);
    collector.feed(&mut i.requests);
    collector.feed(&mut i.quotas);
    collector.feed(&mut i.budgets);
    collector.feed(&mut i.accounts);
    collector
}

fn start(context: &Context, authorities: Authorities, tasks: &mut Tasks) {
    let mut i = Informers::new(&context.client);
    start_workloads(context, &mut i, tasks);
    start_services(context, &mut i, tasks);
    start_nodes(context, authorities, &mut i, tasks);
    start_cluster(context, &mut i, tasks);
    i.spawn(tasks);
}

fn start_workloads(context: &Context, i: &mut Informers, tasks: &mut Tasks) {
    let (pods, replica_sets) = (i.pods.synced(), i.replica_sets.synced());
    let replicaset = ReplicaSetController::new(&context.of("replicaset-controller"), &mut i.replica_sets, &mut i.pods);
    spawn_synced(tasks, "the ReplicaSet controller", vec![pods.clone(), replica_sets.clone()], move |shutdown| {
        replicaset.run(shutdown)
    });

    let context_of_deployments = context.of("deployment-controller");
    let deployment =
        DeploymentController::new(&context_of_deployments, &mut i.deployments, &mut i.replica_sets, &mut i.pods);
    spawn_synced(
        tasks,
        "the Deployment controller",
        vec![pods.clone(), replica_sets, i.deployments.synced()],
        move |shutdown| deployment.run(shutdown),
    );

    let job = JobController::new(&context.of("job-controller"), &mut i.jobs, &mut i.pods);
    spawn_synced(tasks, "the Job controller", vec![pods, i.jobs.synced()], move |shutdown| job.run(shutdown));
}

fn start_services(context: &Context, i: &mut Informers, tasks: &mut Tasks) {
    let (pods, nodes, services) = (i.pods.synced(), i.nodes.synced(), i.services.synced());
    let (all_slices, all_endpoints) = (i.endpoint_slices.synced(), i.endpoints.synced());
    let context_of_slices = context.of("endpointslice-controller");
    let slices =
        EndpointSliceController::new(&context_of_slices, &i.services, &i.pods, &i.nodes, &mut i.endpoint_slices);
    let context_of_endpoints = context.of("endpoint-controller");
    let endpoints = EndpointsController::new(&context_of_endpoints, &i.services, &i.pods, &mut i.endpoints);
    ServiceTrigger::install(vec![slices.queue(), endpoints.queue()], &mut i.services, &mut i.pods);
    let needs = vec![pods.clone(), services.clone(), nodes, all_slices.clone()];
    spawn_synced(tasks, "the EndpointSlice controller", needs, move |shutdown| slices.run(shutdown));
    spawn_synced(
        tasks,
        "the Endpoints controller",
        vec![pods, services.clone(), all_endpoints.clone()],
        move |shutdown| endpoints.run(shutdown),
    );

    let context = context.of("endpointslicemirroring-controller");
    let mirroring = MirroringController::new(&context, &mut i.services, &mut i.endpoints, &mut i.endpoint_slices);
    spawn_synced(
        tasks,
        "the EndpointSlice mirroring controller",
        vec![services, all_endpoints, all_slices],
        move |shutdown| mirroring.run(shutdown),
    );
}

fn start_nodes(context: &Context, authorities: Authorities, i: &mut Informers, tasks: &mut Tasks) {
    let (pods, nodes) = (i.pods.synced(), i.nodes.synced());
    let context_of_nodes = context.of("node-controller");
    let lifecycle = NodeLifecycleController::new(&context_of_nodes, &mut i.nodes, &i.leases, &mut i.pods);
    let needs = vec![pods.clone(), nodes.clone(), i.leases.synced()];
    spawn_synced(tasks, "the node lifecycle controller", needs, move |shutdown| lifecycle.run(shutdown));
    let eviction = TaintEvictionController::new(&context_of_nodes, &mut i.nodes, &mut i.pods);
    spawn_synced(tasks, "the taint eviction controller", vec![pods.clone(), nodes.clone()], move |shutdown| {
        eviction.run(shutdown)
    });
    let ipam = NodeIpamController::new(&context_of_nodes, &mut i.nodes);
    spawn_synced(tasks, "the node IPAM controller", vec![nodes.clone()], move |shutdown| ipam.run(shutdown));
    let pod_gc = PodGcController::new(&context.of("pod-garbage-collector"), &mut i.nodes, &mut i.pods);
    spawn_synced(tasks, "the pod garbage collector", vec![pods, nodes.clone()], move |shutdown| pod_gc.run(shutdown));

    let context = context.of("certificate-controller");
    let certificates = CertificateController::new(&context, authorities, &mut i.requests, &mut i.nodes);
    spawn_synced(tasks, "the certificate controller", vec![nodes, i.requests.synced()], move |shutdown| {
        certificates.run(shutdown)
    });
}

fn start_cluster(context: &Context, i: &mut Informers, tasks: &mut Tasks) {
    let (pods, services, namespaces) = (i.pods.synced(), i.services.synced(), i.namespaces.synced());
    let kinds = Arc::new(ServedKinds::new(context.client.clone()));
    let collector = collector(context, &kinds, i);
    let context_of_quotas = context.of("resourcequota-controller");
    let changing = (&mut i.pods, &mut i.services);
    let quota = ResourceQuotaController::new(&context_of_quotas, kinds.clone(), &collector, &mut i.quotas, changing);
    spawn_synced(tasks, "the quota controller", vec![pods.clone(), services, i.quotas.synced()], move |shutdown| {
        quota.run(shutdown)
    });
    let needs = vec![pods, i.replica_sets.synced(), i.deployments.synced()];
    let owners = (&i.replica_sets, &i.deployments);
    let context_of_budgets = context.of("disruption-controller");
    let disruption = DisruptionController::new(&context_of_budgets, kinds.clone(), &mut i.budgets, &mut i.pods, owners);
    let needs = [needs, vec![i.budgets.synced()]].concat();
    spawn_synced(tasks, "the disruption controller", needs, move |shutdown| disruption.run(shutdown));
    let context_of_namespaces = context.of("namespace-controller");
    let namespace = NamespaceController::new(&context_of_namespaces, kinds, &collector, &mut i.namespaces, &mut i.pods);
    // It waits for its kinds itself, all of them.
    spawn_synced(tasks, "the garbage collector", Vec::new(), move |shutdown| collector.run(shutdown));
    spawn_synced(tasks, "the namespace controller", vec![namespaces.clone()], move |shutdown| namespace.run(shutdown));

    let content = NamespaceContentController::new(context, &mut i.namespaces, &mut i.accounts, &mut i.root_cas);
    let needs = vec![namespaces, i.accounts.synced(), i.root_cas.synced()];
    spawn_synced(tasks, "the namespace content controller", needs, move |shutdown| content.run(shutdown));

    let account_tokens = TokenSecretsController::new(context, &mut i.account_tokens, &mut i.accounts);
    let needs = vec![i.account_tokens.synced(), i.accounts.synced()];
    spawn_synced(tasks, "the account token controller", needs, move |shutdown| account_tokens.run(shutdown));

    let cleaner = TokenCleaner::new(&context.of("token-cleaner"), &mut i.tokens);
    spawn_synced(tasks, "the token cleaner", vec![i.tokens.synced()], move |shutdown| cleaner.run(shutdown));

    let context = context.of("clusterrole-aggregation-controller");
    let aggregation = ClusterRoleAggregation::new(&context, &mut i.cluster_roles);
    spawn_synced(tasks, "the ClusterRole aggregation", vec![i.cluster_roles.synced()], move |shutdown| {
        aggregation.run(shutdown)
    });
}
