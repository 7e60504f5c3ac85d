//! Plugins that are off unless `--enable-admission-plugins` names them, as upstream.
//!
//! | module | does |
//! |---|---|
//! | [`always`] | lets everything pass, or nothing |
//! | [`always_pull_images`] | images are asked for with the pod's own credentials each time |
//! | [`event_rate_limit`] | so many events a second |
//! | [`extended_resource_toleration`] | who asks for a device tolerates the taint of its nodes |
//! | [`external_ips`] | no Service takes addresses of its own choice |
//! | [`image_policy_webhook`] | somebody outside says which images may run |
//! | [`namespaces`] | a namespace that is not there is made, or nothing is made in it |
//! | [`owner_references`] | who names an owner may delete what it owns |
//! | [`pod_anti_affinity`] | pods keep away from others of their node, not of more |
//! | [`pod_node_selector`] | which nodes pods of a namespace go to |
//! | [`pod_toleration_restriction`] | which taints pods of a namespace tolerate |
//! | [`tolerations`] | which of two tolerations says more |

pub(crate) mod always;
pub(crate) mod always_pull_images;
pub(crate) mod event_rate_limit;
pub(crate) mod extended_resource_toleration;
pub(crate) mod external_ips;
pub(crate) mod image_policy_webhook;
pub(crate) mod namespaces;
pub(crate) mod owner_references;
pub(crate) mod pod_anti_affinity;
pub(crate) mod pod_node_selector;
pub(crate) mod pod_toleration_restriction;
mod tolerations;
