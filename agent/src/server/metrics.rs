//! `/metrics` and `/metrics/resource` in Prometheus' text form. Gathered when asked for; nothing is
//! kept.
//!
//! Source: `pkg/kubelet/metrics/metrics.go`, `pkg/kubelet/metrics/collectors/resource_metrics.go`
//! at v1.37.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use coracle_netfilter::conntrack;
use coracle_telemetry::metrics::{Exposition, Kind, ProcessFigures};

use super::{ServerContext, usage::Look};
use crate::{
    blocking::blocking,
    pod::PodExt,
    runtime::types::{ContainerState, ContainerStatus, SandboxState},
    volume::Room,
};

/// Of the agent itself, and how much it runs.
pub(super) async fn agent(server: &ServerContext) -> String {
    let runtime = &server.ctx.runtime;
    // What cannot be listed is told as none: a scrape does not fail for it.
    let sandboxes = runtime.list_pod_sandboxes().await.unwrap_or_default();
    let containers = runtime.list_containers().await.unwrap_or_default();
    let mut out = Exposition::default();
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
    let ready = sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::Ready)
        .count();
    let help = "Number of pods that have a running pod sandbox";
    out.single("kubelet_running_pods", Kind::Gauge, help, count(ready));
    running_containers(&containers, &mut out);
    let desired = server.ctx.pods.read().len();
    out.single(
        "kubelet_desired_pods",
        Kind::Gauge,
        "The number of pods the kubelet is being instructed to run.",
        count(desired),
    );
    connections(server, &mut out);
    connection_table(&mut out).await;
    volumes(server, &mut out).await;
    ProcessFigures::own().write(&mut out);
    out.finish()
}

/// Upstream's name for containers of every state, not of running ones alone.
fn running_containers(containers: &[ContainerStatus], out: &mut Exposition) {
    let mut states = BTreeMap::from([("created", 0_u32), ("exited", 0), ("running", 0)]);
    for container in containers {
        let state = match container.state {
            ContainerState::Created => "created",
            ContainerState::Running { .. } => "running",
            ContainerState::Exited { .. } => "exited",
        };
        *states.entry(state).or_default() += 1;
    }
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
}

fn connections(server: &ServerContext, out: &mut Exposition) {
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
}

/// Nothing where the kernel follows no connections.
async fn connection_table(out: &mut Exposition) {
    let Ok(table) = blocking(conntrack::table).await else {
        return;
    };
    for (name, kind, help, figure) in [
        (
            "coracle_conntrack_entries",
            Kind::Gauge,
            "Connections in the kernel's table",
            table.count,
        ),
        (
            "coracle_conntrack_entries_limit",
            Kind::Gauge,
            "Connections that the kernel's table has room for",
            table.most,
        ),
        (
            "coracle_conntrack_dropped_packets_total",
            Kind::Counter,
            "Packets that were dropped for want of room in the kernel's table of connections, or because they came at once",
            table.dropped,
        ),
    ] {
        out.single(name, kind, help, bytes(figure));
    }
}

/// The six families of a volume: the end of its name, what it says, where that is.
type VolumeFamily = (&'static str, &'static str, fn(&Room) -> u64);

const VOLUME_FAMILIES: [VolumeFamily; 6] = [
    (
        "available_bytes",
        "Number of available bytes in the volume",
        |room| room.available_bytes,
    ),
    (
        "capacity_bytes",
        "Capacity in bytes of the volume",
        |room| room.capacity_bytes,
    ),
    ("inodes", "Maximum number of inodes in the volume", |room| {
        room.inodes
    }),
    (
        "inodes_free",
        "Number of free inodes in the volume",
        |room| room.inodes_free,
    ),
    (
        "inodes_used",
        "Number of used inodes in the volume",
        |room| room.inodes_used,
    ),
    ("used_bytes", "Number of used bytes in the volume", |room| {
        room.used_bytes
    }),
];

/// Each claim once, however many pods have it.
///
/// Source: `pkg/kubelet/metrics/collectors/volume_stats.go` at v1.37.
async fn volumes(server: &ServerContext, out: &mut Exposition) {
    let mut used = BTreeMap::new();
    let pods = server.ctx.pods.read().clone();
    for pod in pods {
        for volume in server.ctx.volumes.usage(&pod).await {
            used.insert((pod.namespace().to_owned(), volume.claim), volume.room);
        }
    }
    if used.is_empty() {
        return;
    }
    for (end, help, figure) in VOLUME_FAMILIES {
        let name = format!("kubelet_volume_stats_{end}");
        out.family(&name, Kind::Gauge, help);
        for ((namespace, claim), room) in &used {
            let labels = [
                ("namespace", namespace.as_str()),
                ("persistentvolumeclaim", claim.as_str()),
            ];
            out.sample(&name, &labels, bytes(figure(room)));
        }
    }
}

/// What the node, the pods and the containers use.
pub(super) async fn resource(server: &ServerContext) -> String {
    resource_text(&Look::take(server).await)
}

fn resource_text(look: &Look) -> String {
    let time = unix_millis(look.time);
    let mut out = Exposition::default();
    let containers: Vec<_> = look
        .pods
        .iter()
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .map(|(pod, container)| {
            let labels = vec![
                ("container", &*container.name),
                ("namespace", &*pod.namespace),
                ("pod", &*pod.name),
            ];
            (container, labels)
        })
        .collect();
    let subjects = containers.iter().map(|(container, labels)| Subject {
        labels: labels.clone(),
        cpu_nanos: container.stats.cpu_usage_nanos,
        memory_bytes: container.stats.memory_working_set_bytes,
    });
    cpu_and_memory("container", subjects.collect(), time, &mut out);
    let name = "container_start_time_seconds";
    let help = "Start time of the container since unix epoch in seconds";
    out.family(name, Kind::Gauge, help);
    for (container, labels) in &containers {
        let started = unix_millis(container.started_at) as f64 / 1000.0;
        out.sample_at(name, labels, started, time);
    }
    let machine = Subject {
        labels: Vec::new(),
        cpu_nanos: look.machine.cpu_usage_nanos,
        memory_bytes: look.machine.memory_working_set_bytes,
    };
    cpu_and_memory("node", vec![machine], time, &mut out);
    let pods = look.pods.iter().filter(|pod| !pod.containers.is_empty());
    let subjects = pods.map(|pod| {
        let stats = pod.stats();
        Subject {
            labels: vec![("namespace", &*pod.namespace), ("pod", &*pod.name)],
            cpu_nanos: stats.cpu_usage_nanos,
            memory_bytes: stats.memory_working_set_bytes,
        }
    });
    cpu_and_memory("pod", subjects.collect(), time, &mut out);
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    out.single("resource_scrape_error", Kind::Gauge, help, 0.0);
    out.finish()
}

/// Something that uses CPU and memory.
struct Subject<'a> {
    labels: Vec<(&'a str, &'a str)>,
    cpu_nanos: u64,
    memory_bytes: u64,
}

/// Two families: their names begin with what the subjects are, such as `pod`.
fn cpu_and_memory(what: &str, subjects: Vec<Subject<'_>>, time: i64, out: &mut Exposition) {
    let name = format!("{what}_cpu_usage_seconds_total");
    let help = format!("Cumulative cpu time consumed by the {what} in core-seconds");
    out.family(&name, Kind::Counter, &help);
    for subject in &subjects {
        out.sample_at(&name, &subject.labels, seconds(subject.cpu_nanos), time);
    }
    let name = format!("{what}_memory_working_set_bytes");
    let help = format!("Current working set of the {what} in bytes");
    out.family(&name, Kind::Gauge, &help);
    for subject in &subjects {
        out.sample_at(&name, &subject.labels, bytes(subject.memory_bytes), time);
    }
}

fn unix_millis(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
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
