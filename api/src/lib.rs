//! The shared vocabulary of Coracle: pure data types and pure functions, no I/O but for the
//! time zones of [`cron::zone`], no clock but [`meta::now`].
//!
//! | module | what |
//! |---|---|
//! | [`resource`] | group, version, kind and resource names |
//! | [`resource_list`] | amounts by resource name |
//! | [`status`] | Kubernetes' error answers, with its own words |
//! | [`name`] | what a name, label or qualified name may be |
//! | [`quantity`] | `100m`, `1Gi`: fixed-point amounts |
//! | [`selector`] | label and field selectors |
//! | [`meta`] | accessors for the metadata of an object held as JSON |
//! | [`schema`] | the table of the built-in types, derived at build time, and schemas that come at run time |
//! | [`decode`] | JSON, YAML and protobuf bodies to JSON values, along their schema |
//! | [`encode`] | JSON to protobuf, along the table |
//! | [`disruption`] | the condition of a PodDisruptionBudget |
//! | [`address`] | which addresses are dialled for others, and where nodes may be |
//! | [`channel`] | the channels of exec and attach in WebSockets |
//! | [`cron`] | schedules of CronJobs |
//! | [`patch`] | JSON patch, merge patch, strategic merge patch, server-side apply |
//! | [`kubelet_ca`] | the authority of the nodes' serving certificates |
//! | [`load_balancer`] | which Services get addresses of nodes |
//! | [`interner`] | values that many objects have in common |
//! | [`percent`] | percent escapes of URLs |
//! | [`cluster_dns`] | where names of Services are answered |
//! | [`component_config`] | what configuration files of components have in common |
//! | [`node_features`] | what nodes say of their software |
//! | [`pod_network`] | how pods of different nodes reach each other |
//! | [`qos`] | the quality-of-service class of a pod |
//! | [`quota`] | what objects count against a ResourceQuota |
//! | [`scheduling`] | what decides whether a pod may be on a node |
//! | [`volume`] | claims and the volumes that they are bound to |

#![forbid(unsafe_code)]

pub mod address;
pub mod channel;
pub mod cluster_dns;
pub mod component_config;
pub mod cron;
pub mod decode;
pub mod disruption;
pub mod encode;
pub mod interner;
pub mod kubelet_ca;
pub mod load_balancer;
pub mod meta;
pub mod name;
pub mod node_features;
pub mod patch;
pub mod percent;
pub mod pod_network;
pub mod qos;
pub mod quantity;
pub mod quota;
pub mod resource;
pub mod resource_list;
pub mod scheduling;
pub mod schema;
pub mod selector;
pub mod status;
pub mod volume;
