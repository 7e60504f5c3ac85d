//! `/stats/summary` and `/spec`: what runs here and what it uses.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::ServerContext;
use crate::{
    node::facts::Facts,
    pod::{PodExt, api_time},
    runtime::types::ContainerState,
};

/// The machine, as far as anybody asks for it.
pub(super) fn spec(server: &ServerContext) -> Value {
    let facts = Facts::read(&server.ctx.config.agent_dir());
    json!({
        "num_cores": facts.cpus,
        "memory_capacity": facts.memory_bytes,
        "machine_id": facts.info.machine_id,
        "system_uuid": facts.info.system_uuid,
        "boot_id": facts.info.boot_id,
    })
}

/// CPU and memory of every container.
pub(super) async fn stats(server: &ServerContext) -> Value {
    let now = api_time(SystemTime::now());
    let pods: Vec<_> = server.view.read().clone();
    let mut list = Vec::new();
    for pod in pods {
        let Ok((_, containers)) = server.ctx.runtime.pod_state(&pod.uid()).await else { continue };
        let mut parts = Vec::new();
        let (mut cpu, mut memory) = (0_u64, 0_u64);
        for container in containers {
            let ContainerState::Running { started_at, .. } = container.state else { continue };
            let Ok(stats) = server.ctx.runtime.container_stats(&container.id).await else { continue };
            cpu = cpu.saturating_add(stats.cpu_usage_nanos);
            memory = memory.saturating_add(stats.memory_working_set_bytes);
            parts.push(json!({
                "name": container.name,
                "startTime": api_time(started_at),
                "cpu": {"time": now, "usageCoreNanoSeconds": stats.cpu_usage_nanos},
                "memory": {"time": now, "workingSetBytes": stats.memory_working_set_bytes},
            }));
        }
        list.push(json!({
            "podRef": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()},
            "startTime": pod.status_or_default().start_time,
            "containers": parts,
            "cpu": {"time": now, "usageCoreNanoSeconds": cpu},
            "memory": {"time": now, "workingSetBytes": memory},
        }));
    }
    json!({"node": {"nodeName": server.ctx.config.node_name}, "pods": list})
}
