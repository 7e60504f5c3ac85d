//! Admission: what a write needs beyond its own validity. One ordered list of plugins, under
//! upstream's names.
//!
//! ```text
//! write.rs of the server: prepare > mutate > (defaults again) > validate (strategy) > Services' addresses
//!    > validating admission > companions of the transaction: the namespace, ResourceQuota, and what the registry adds by itself
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`attributes`], [`told`] | a write as admission sees it, and what the client says of it |
//! | [`matching`] | which requests a webhook or a policy is about, and what its expressions see |
//! | [`kinds`] | which kinds are served |
//! | `policy` | ValidatingAdmissionPolicies and MutatingAdmissionPolicies |
//! | `reinvocation` | what is looked at once more because others have changed it |
//! | [`plugin`] | what a plugin is |
//! | [`parts`] | what plugins are made from |
//! | [`config`] | what they are told from outside |
//! | `manifests` | webhooks and policies from files |
//! | `kubeconfig` | who the server is to webhooks, as files say |
//! | [`chain`] | all of them, in order |
//! | `namespace_lifecycle` | new content needs a namespace that lives, up to its transaction; some namespaces stay for ever |
//! | `limit_ranger` | what containers ask for by default, and may ask for |
//! | `service_account` | a pod's account, its token and pull secrets |
//! | `node_restriction` | what a node may write, where the URL does not show it |
//! | `taint_nodes_by_condition` | new Nodes take no pods before they are ready |
//! | `pod_security` | the Pod Security Standards, by labels of namespaces |
//! | `priority`, `runtime_class`, `default_toleration_seconds` | what pods get of their classes, and without any |
//! | `classes` | classes of which one may be the default |
//! | `storage_class` | the default class of claims, and whether they may grow |
//! | `storage_protection` | finalizers of volumes and claims, by which they stay while they are used |
//! | `webhooks` | others are asked, over HTTPS, what a write becomes and whether it may be |
//! | `certificates` | who approves and signs which certificates, and who asks for one |
//! | `service_account_tokens` | token Secrets (upstream: a controller) |
//! | `role_escalation` | nobody grants what they do not hold (upstream: the storage of roles) |
//! | `param_access` | nobody reads by a policy's parameters what they may not read (upstream: the validation of policies) |
//! | [`selection`] | which of them a server has |
//! | [`metrics`] | how long they take |
//! | `optional` | those that are off unless they are asked for |
//! | `default_ingress_class` | the default class of Ingresses |
//! | `pod_topology_labels` | zone and region of the node that a pod comes to |
//! | `pod_resize` | what a pod on a node may become there |
//! | `resource_quota` | charges quotas in the transaction that writes |
//! | `pod` | what the plugins for pods share |
//!
//! Every write of a client comes through here, whatever its verb: create, update, each patch
//! format, server-side apply, the subresources, delete; and what is no write but joins a client
//! with what runs (CONNECT). What the server writes on its own behalf does not. Plugins read the
//! registry and ask the authorizer; nothing here knows HTTP or a request, and nothing is written
//! but by the store. They are async: one that calls out holds nothing up but its own write.
#![forbid(unsafe_code)]

pub mod attributes;
mod certificates;
pub mod chain;
mod classes;
pub mod config;
mod default_ingress_class;
mod default_toleration_seconds;
pub mod kinds;
mod kubeconfig;
mod limit_ranger;
mod manifests;
pub mod matching;
pub mod metrics;
mod namespace_lifecycle;
mod node_restriction;
mod optional;
mod param_access;
pub mod parts;
pub mod plugin;
mod pod;
mod pod_resize;
mod pod_security;
mod pod_topology_labels;
mod policy;
mod priority;
pub mod reinvocation;
mod resource_quota;
mod role_escalation;
mod runtime_class;
pub mod selection;
mod service_account;
mod service_account_tokens;
mod storage_class;
mod storage_protection;
mod taint_nodes_by_condition;
pub mod told;
mod webhooks;

pub use attributes::{Attributes, Operation, Request};
pub use chain::{Chain, Turn};
pub use config::{AdmissionConfig, AdmissionConfigError};
pub use kinds::Kinds;
pub use matching::ConditionMetrics;
pub use metrics::AdmissionMetrics;
pub use parts::Parts;
pub use plugin::Plugin;
pub use pod_security::metrics::PodSecurityMetrics;
pub use policy::metrics::PolicyMetrics;
pub use policy::type_check::type_warnings;
pub use told::Told;
#[cfg(feature = "fuzzing")]
pub use webhooks::fuzzing;
pub use webhooks::metrics::WebhookMetrics;
