//! `/stats/summary` and `/spec`: what runs here and what it uses.
//!
//! Source: `k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go` at v1.37.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{ServerContext, usage::Usage};
use crate::{
    pod::{PodExt, api_time},
    psi::{self, Psi, Resource, Stall},
    volume::VolumeUsage,
};

/// The machine, as far as anybody asks for it.
pub(super) fn spec(server: &ServerContext) -> Value {
    let facts = server.ctx.machine.facts();
    json!({
        "num_cores": facts.cpus,
        "memory_capacity": facts.memory_bytes,
        "machine_id": facts.info.machine_id,
        "system_uuid": facts.info.system_uuid,
        "boot_id": facts.info.boot_id,
    })
}

/// CPU and memory of the node and of every container.
pub(super) async fn stats(server: &ServerContext) -> Value {
    let usage = server.usage.usage(server).await;
    let mut summary = summary(&server.ctx.config.node_name, &usage);
    let time = json!(api_time(usage.look.time));
    let pods = server.ctx.pods.read().clone();
    for pod in pods {
        let uid = pod.uid().to_string();
        let mut told = summary["pods"].as_array_mut().into_iter().flatten();
        let Some(told) = told.find(|told| told["podRef"]["uid"] == *uid) else {
            continue;
        };
        let used = server.ctx.volumes.usage(&pod).await;
        if !used.is_empty() {
            told["volume"] = volumes(pod.namespace(), &used, &time);
        }
    }
    for (resource, part) in [
        (Resource::Cpu, "cpu"),
        (Resource::Memory, "memory"),
        (Resource::Io, "io"),
    ] {
        if let Some(psi) = psi::of_machine(resource) {
            summary["node"][part]["psi"] = pressure(&psi);
            summary["node"][part]["time"] = time.clone();
        }
    }
    summary
}

/// As `VolumeStats`, of claims.
fn volumes(namespace: &str, used: &[VolumeUsage], time: &Value) -> Value {
    let one = |volume: &VolumeUsage| {
        let room = &volume.room;
        json!({
            "time": time,
            "availableBytes": room.available_bytes,
            "capacityBytes": room.capacity_bytes,
            "usedBytes": room.used_bytes,
            "inodesFree": room.inodes_free,
            "inodes": room.inodes,
            "inodesUsed": room.inodes_used,
            "name": volume.name,
            "pvcRef": {"name": volume.claim, "namespace": namespace},
        })
    };
    used.iter().map(one).collect()
}

/// As `PSIStats`: per cent, and nanoseconds altogether.
fn pressure(psi: &Psi) -> Value {
    let data = |stall: &Stall| {
        let total = stall.total_micros.saturating_mul(1000);
        json!({"total": total, "avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300})
    };
    json!({"full": data(&psi.full), "some": data(&psi.some)})
}

fn summary(node_name: &str, usage: &Usage) -> Value {
    let look = &usage.look;
    let time = api_time(look.time);
    let cpu = |nanocores: u64, nanos: u64| json!({"time": time, "usageNanoCores": nanocores, "usageCoreNanoSeconds": nanos});
    let memory = |bytes: u64| json!({"time": time, "workingSetBytes": bytes});
    let mut pods = Vec::with_capacity(look.pods.len());
    for pod in &look.pods {
        let containers: Vec<_> = pod
            .containers
            .iter()
            .map(|container| {
                json!({
                    "name": container.name,
                    "startTime": api_time(container.started_at),
                    "cpu": cpu(usage.nanocores(container), container.stats.cpu_usage_nanos),
                    "memory": memory(container.stats.memory_working_set_bytes),
                })
            })
            .collect();
        let total = pod.stats();
        let nanocores = pod
            .containers
            .iter()
            .map(|container| usage.nanocores(container))
            .sum();
        let started = pod
            .containers
            .iter()
            .map(|container| container.started_at)
            .min();
        pods.push(json!({
            "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "startTime": started.map(api_time),
            "containers": containers,
            "cpu": cpu(nanocores, total.cpu_usage_nanos),
            "memory": memory(total.memory_working_set_bytes),
        }));
    }
    let machine = &look.machine;
    let mut node_memory = memory(machine.memory_working_set_bytes);
    node_memory["availableBytes"] = machine
        .memory_bytes
        .saturating_sub(machine.memory_working_set_bytes)
        .into();
    json!({
        "node": {
            "nodeName": node_name,
            "startTime": api_time(SystemTime::UNIX_EPOCH + Duration::from_secs(machine.booted_unix_secs)),
            "cpu": cpu(usage.machine_nanocores, machine.cpu_usage_nanos),
            "memory": node_memory,
        },
        "pods": pods,
    })
}
