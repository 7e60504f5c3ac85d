//! What of a node's software a pod needs, by what it asks for.
//!
//! Source: `k8s.io/component-helpers/nodedeclaredfeatures/features` at v1.37.

use k8s_openapi::api::core::v1::PodSpec;

const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// The names by which nodes declare it; mostly none.
pub(super) fn needed(spec: &PodSpec) -> Box<[&'static str]> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let rules = spec.containers.iter().chain(init);
    let mut rules = rules.flat_map(|container| container.restart_policy_rules.iter().flatten());
    let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
    let shares_network = spec.host_network == Some(true) && spec.host_users == Some(false);
    let asked = [(RESTART_ALL, restarts_all), (HOST_NETWORK, shares_network)];
    let asked = asked.into_iter().filter(|(_, is_asked)| *is_asked);
    asked.map(|(name, _)| name).collect()
}
