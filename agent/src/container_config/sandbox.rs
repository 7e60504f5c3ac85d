//! The sandbox of a pod.

use std::fs;

use k8s_openapi::api::core::v1::Pod;

use super::{resources, runtime_class, sysctls};
use crate::{
    blocking::blocking,
    context::NodeContext,
    events::EventType,
    pod::PodExt,
    pod_files,
    runtime::{
        RuntimeError,
        types::{PortMapping, Resources, SandboxConfig},
    },
};

/// What the sandbox of a pod is to be.
///
/// # Errors
/// The pod wants what no sandbox can have, or its RuntimeClass cannot be read.
pub(crate) async fn sandbox(
    ctx: &NodeContext,
    pod: &Pod,
    attempt: u32,
) -> Result<SandboxConfig, RuntimeError> {
    let runtime_handler = runtime_class::handler(&ctx.objects, pod).await?;
    let spec = pod.spec_or_default();
    let nodename = pod_files::nodename(pod, &ctx.config.cluster_domain).map_err(|error| {
        RuntimeError::InvalidConfig {
            message: error.to_string(),
        }
    })?;
    if let Some(message) = pod_files::missing_dns(pod, &ctx.config.name_servers()) {
        ctx.events
            .pod(pod, None, EventType::Warning, "MissingClusterDNS", message);
    }
    let (of_node, groups) = blocking(|| (node_resolver(), groups())).await;
    let dns = pod_files::dns(
        pod,
        &ctx.config.name_servers(),
        &ctx.config.cluster_domain,
        &of_node,
    );
    Ok(SandboxConfig {
        pod: pod.reference(),
        attempt,
        hostname: if pod.host_network() {
            ctx.config.node_name.clone()
        } else {
            nodename
        },
        host_network: pod.host_network(),
        host_pid: spec.host_pid.unwrap_or(false),
        host_ipc: spec.host_ipc.unwrap_or(false),
        share_process_namespace: spec.share_process_namespace.unwrap_or(false),
        user_namespace: spec.host_users == Some(false),
        runtime_handler,
        port_mappings: port_mappings(pod),
        dns,
        cgroup_parent: resources::cgroup_parent(&ctx.config.cgroup_root, pod),
        // No field of a pod says how many processes it may have: that is the node's to limit.
        resources: Resources {
            pids_limit: ctx.config.pod_max_pids.map(i64::from),
            ..resources::for_pod(pod)
        },
        sysctls: sysctls::of(pod, &groups),
        log_directory: ctx.log_dir(&pod.reference()),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    })
}

fn groups() -> String {
    fs::read_to_string("/proc/self/gid_map").unwrap_or_default()
}

fn node_resolver() -> String {
    pod_files::node_resolv_conf(|path| fs::read_to_string(path).unwrap_or_default())
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if pod.host_network() {
        return Vec::new();
    }
    let ports = pod
        .all_containers()
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(PortMapping {
                host_port: u16::try_from(port.host_port?)
                    .ok()
                    .filter(|&port| port > 0)?,
                container_port: u16::try_from(port.container_port).ok()?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                host_ip: port.host_ip.clone().unwrap_or_default(),
            })
        })
        .collect()
}
