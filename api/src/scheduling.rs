//! What decides whether a pod may be on a node, for the scheduler that places it, the node that
//! takes it, the controllers that drive it away and the API server that counts it: one answer for
//! all of them.
//!
//! | module | what |
//! |---|---|
//! | `host_port` | ports that a pod takes on its node |
//! | `node_affinity` | `nodeSelector` and node affinity |
//! | `requests` | what a pod asks for altogether |
//! | `resource_name` | which resources are not Kubernetes' own |
//! | `taint` | tolerations against taints |
//!
//! Not here: the order of checks, their words, and what to do about the answer.

mod host_port;
mod node_affinity;
mod requests;
mod resource_name;
mod taint;

use k8s_openapi::api::core::v1::Container;
use serde_json::Value;

pub use host_port::{HostPort, host_ports};
pub use node_affinity::{NodeView, can_be_met, field_holds, meets_term, required_affinity_matches};
pub use requests::{
    peak, pod_limits_in_force, pod_limits_of_json, pod_requests, pod_requests_in_force,
    pod_requests_of_json,
};
pub use resource_name::{is_extended, is_native};
pub use taint::{tolerates, tolerates_any};

/// Whether an init container is a sidecar: restarted always, started before what follows it,
/// stopped last. Upstream calls it a restartable init container.
#[must_use]
pub fn is_sidecar(container: &Container) -> bool {
    is_sidecar_policy(container.restart_policy.as_deref())
}

/// The same of an init container that is held as JSON.
#[must_use]
pub fn is_sidecar_json(container: &Value) -> bool {
    is_sidecar_policy(container["restartPolicy"].as_str())
}

/// The same by an init container's own `restartPolicy`.
#[must_use]
pub fn is_sidecar_policy(restart_policy: Option<&str>) -> bool {
    restart_policy == Some("Always")
}
