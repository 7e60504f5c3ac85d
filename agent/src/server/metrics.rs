//! `/metrics` and `/metrics/resource` in Prometheus' text form. Gathered when asked for; nothing is
//! kept.
//!
//! Source: `pkg/kubelet/metrics/metrics.go`, `pkg/kubelet/metrics/collectors/resource_metrics.go`
//! at v1.37.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use coracle_telemetry::metrics::{Exposition, Kind, ProcessFigures};

use super::{ServerContext, usage::Look};
use crate::runtime::types::{ContainerState, SandboxState};

/// Of the agent itself, and how much it runs.
pub(super) async fn agent(server: &ServerContext) -> String {
    let mut out = Exposition::default();
    let sandboxes = server
        .ctx
        .runtime
        .list_pod_sandboxes()
        .await
        .unwrap_or_default();
    let containers = server
        .ctx
        .runtime
        .list_containers()
        .await
        .unwrap_or_default();
    let ready = sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::Ready)
        .count();
    let mut states = BTreeMap::from([("created", 0_u32), ("exited", 0), ("running", 0)]);
    for container in &containers {
        let state = match container.state {
            ContainerState::Created => "created",
            ContainerState::Running { .. } => "running",
            ContainerState::Exited { .. } => "exited",
        };
        *states.entry(state).or_default() += 1;
    }
    out.family(
        "kubelet_node_name",
        Kind::Gauge,
        "The node's name. The count is always 1.",
    );
    out.sample(
        "kubelet_node_name",
        &[("node", &server.ctx.config.node_name)],
        1.0,
    );
    let help = "Number of pods that have a running pod sandbox";
    out.single("kubelet_running_pods", Kind::Gauge, help, count(ready));
    out.family(
        "kubelet_running_containers",
        Kind::Gauge,
        "Number of containers currently running",
    );
    for (state, number) in states {
        out.sample(
            "kubelet_running_containers",
            &[("container_state", state)],
            f64::from(number),
        );
    }
    let desired = server.ctx.pods.read().len();
    out.single(
        "kubelet_desired_pods",
        Kind::Gauge,
        "The number of pods the kubelet is being instructed to run.",
        count(desired),
    );
    let (strangers, admitted) = server.connections.counted();
    let name = "coracle_node_api_connections";
    out.family(
        name,
        Kind::Gauge,
        "Connections to the node's API, by whether their client has shown that it may use it",
    );
    for (state, number) in [("admitted", admitted), ("unidentified", strangers)] {
        out.sample(name, &[("state", state)], count(number));
    }
    ProcessFigures::own().write(&mut out);
    out.finish()
}

/// What the node, the pods and the containers use.
pub(super) async fn resource(server: &ServerContext) -> String {
    resource_text(&Look::take(server).await)
}

fn resource_text(look: &Look) -> String {
    let millis = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    };
    let time = millis(look.time);
    let mut out = Exposition::default();
    let containers: Vec<_> = look
        .pods
        .iter()
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .collect();
    let (cpu, memory) = ("cpu_usage_seconds_total", "memory_working_set_bytes");
    for (suffix, kind, help) in [
        (
            cpu,
            Kind::Counter,
            "Cumulative cpu time consumed by the container in core-seconds",
        ),
        (
            memory,
            Kind::Gauge,
            "Current working set of the container in bytes",
        ),
        (
            "start_time_seconds",
            Kind::Gauge,
            "Start time of the container since unix epoch in seconds",
        ),
    ] {
        let name = format!("container_{suffix}");
        out.family(&name, kind, help);
        for (pod, container) in &containers {
            let labels = [
                ("container", &*container.name),
                ("namespace", &pod.namespace),
                ("pod", &pod.name),
            ];
            let value = match suffix {
                "cpu_usage_seconds_total" => seconds(container.stats.cpu_usage_nanos),
                "memory_working_set_bytes" => bytes(container.stats.memory_working_set_bytes),
                _ => millis(container.started_at) as f64 / 1000.0,
            };
            out.sample_at(&name, &labels, value, time);
        }
    }
    let machine = &look.machine;
    out.family(
        "node_cpu_usage_seconds_total",
        Kind::Counter,
        "Cumulative cpu time consumed by the node in core-seconds",
    );
    out.sample_at(
        "node_cpu_usage_seconds_total",
        &[],
        seconds(machine.cpu_usage_nanos),
        time,
    );
    out.family(
        "node_memory_working_set_bytes",
        Kind::Gauge,
        "Current working set of the node in bytes",
    );
    out.sample_at(
        "node_memory_working_set_bytes",
        &[],
        bytes(machine.memory_working_set_bytes),
        time,
    );
    for (suffix, kind, help) in [
        (
            cpu,
            Kind::Counter,
            "Cumulative cpu time consumed by the pod in core-seconds",
        ),
        (
            memory,
            Kind::Gauge,
            "Current working set of the pod in bytes",
        ),
    ] {
        let name = format!("pod_{suffix}");
        out.family(&name, kind, help);
        for pod in look.pods.iter().filter(|pod| !pod.containers.is_empty()) {
            let stats = pod.stats();
            let value = if suffix == cpu {
                seconds(stats.cpu_usage_nanos)
            } else {
                bytes(stats.memory_working_set_bytes)
            };
            out.sample_at(
                &name,
                &[("namespace", &pod.namespace), ("pod", &pod.name)],
                value,
                time,
            );
        }
    }
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    out.single("resource_scrape_error", Kind::Gauge, help, 0.0);
    out.finish()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn bytes(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    number as f64
}
