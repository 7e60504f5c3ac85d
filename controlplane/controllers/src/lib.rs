//! Coracle's controllers: the loops that make the cluster be what its objects say.
//!
//! They speak the Kubernetes API through [`kube::Client`] alone, in-process or over HTTPS.
//! Informers, queues and the recorder of Events are [`coracle_client`]'s. The way of a change:
//!
//! ```text
//! watch > informer (one a kind) > cache > handlers > work_queue (one a controller) > reconcile(key)
//!    = plan (pure: cached objects in, actions out) > act (API calls) > events
//! ```
//! A controller is a line in `manager` and a folder or file: `setup` says what it reads and what
//! wakes it ([`coracle_client::builder`]), `reconcile` plans and acts.
//!
//! | module | does |
//! |---|---|
//! | `manager` | the list of controllers |
//! | `trims` | what informers keep of each kind |
//! | `config`, `context`, `clock` | what the controllers are told at start; what each of them gets; what time it is |
//! | `owner`, `claim` | controller references; adopting and releasing by them |
//! | `pod`, `pod_state`, `node_state` | a Pod as it is held; questions about it and about a Node |
//! | `finalizer` | puts one on, takes one off |
//! | `pod_claims` | the claims that a pod uses |
//! | `pod_control` | creates and deletes pods |
//! | `deployment`, `replicaset` | from a Deployment to Pods |
//! | `daemonset`, `history` | from a DaemonSet to a Pod on each node; former templates |
//! | `statefulset` | from a StatefulSet to Pods with names and claims of their own |
//! | `template_hash` | a short name for a template |
//! | `disruption`, `int_or_percent` | how many pods of a budget may be evicted |
//! | `job` | from a Job to Pods that end |
//! | `cronjob` | Jobs by the clock |
//! | `ttl_after_finished` | Jobs that are over, and were to stay for so long |
//! | `pod_autoscaler` | how many Pods a load needs |
//! | `endpointslice`, `endpoints`, `service_endpoints` | from a Service to the addresses behind it |
//! | `endpointslice_mirroring` | Endpoints that others write, as EndpointSlices |
//! | `service_lb` | addresses of nodes for Services of type LoadBalancer |
//! | `service_cidrs` | which ranges of Services' addresses are ready, and which may go |
//! | `node_ipam` | a `podCIDR` for each Node |
//! | `node_lifecycle`, `taint_eviction`, `pod_gc` | silent nodes, their taints, and the pods on them |
//! | `namespace_content` | the default ServiceAccount and the root CA of each namespace |
//! | `namespace` | the end of a namespace |
//! | `garbage_collector`, `served_kinds` | objects whose owners are gone, over all kinds that discovery shows |
//! | `removals` | who is told of what goes |
//! | `pod_certificate_requests` | the end of requests for certificates of pods |
//! | `trust_bundle` | whom clients of the API server believe, as an object |
//! | `certificate_signing` | node certificates, and which machine a node's name is |
//! | `cluster_role_aggregation` | the rules of ClusterRoles that are made from others |
//! | `token_cleaner`, `token_secrets` | expired bootstrap tokens; tokens whose ServiceAccount is gone |
//! | `resource_quota` | what each quota's namespace uses |
//! | `volume` | claims and volumes: binding, local volumes, protection while they are used |
//! | `clients` | the identity of each controller |

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

mod certificate_signing;
mod claim;
mod clients;
mod clock;
mod cluster_role_aggregation;
mod config;
mod context;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod finalizer;
mod garbage_collector;
mod history;
mod int_or_percent;
mod job;
mod manager;
mod namespace;
mod namespace_content;
mod node_ipam;
mod node_lifecycle;
mod node_state;
mod owner;
mod pod;
mod pod_autoscaler;
mod pod_certificate_requests;
mod pod_claims;
mod pod_control;
mod pod_gc;
mod pod_state;
mod removals;
mod replicaset;
mod resource_quota;
mod served_kinds;
mod service_cidrs;
mod service_endpoints;
mod service_lb;
mod statefulset;
mod taint_eviction;
mod template_hash;
mod token_cleaner;
mod token_secrets;
mod trims;
mod trust_bundle;
mod ttl_after_finished;
mod volume;

use coracle_client::{
    builder, cache, controller, errors, event_recorder, informers, manager::Manager, work_queue,
    writes,
};

pub use clients::Clients;
pub use clock::Clock;
pub use config::{CertificateAuthority, ControllersConfig, PodAutoscalerConfig};
pub use manager::{RunError, run};
