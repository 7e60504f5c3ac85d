//! What the node and its containers use: the kernel's counters, and rates over the last seconds.
//!
//! Nothing is sampled while nobody asks. Whoever asks after a pause waits for half a second between
//! two looks; who asks every few seconds gets the rate since the last time.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, SystemTime},
};

use tokio::{sync::Mutex, time::Instant};

use super::ServerContext;
use crate::{
    pod::PodExt,
    runtime::types::{ContainerId, ContainerState, ContainerStats},
};

/// Rates over less say little; asked more often, the last answer stands.
const FRESH: Duration = Duration::from_secs(10);
/// Rates over more are history.
const OLD: Duration = Duration::from_secs(60);
/// Between two looks, when there is no earlier one to compare with.
const PAUSE: Duration = Duration::from_millis(500);
/// `/proc/stat` counts in hundredths of a second.
const TICK_NANOS: u64 = 10_000_000;

/// A running container.
#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) id: ContainerId,
    pub(super) name: String,
    pub(super) started_at: SystemTime,
    pub(super) stats: ContainerStats,
}

/// A pod and what runs of it.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) containers: Vec<Container>,
}

impl Pod {
    /// All containers together.
    pub(super) fn stats(&self) -> ContainerStats {
        self.containers
            .iter()
            .fold(ContainerStats::default(), |sum, container| ContainerStats {
                cpu_usage_nanos: sum
                    .cpu_usage_nanos
                    .saturating_add(container.stats.cpu_usage_nanos),
                memory_working_set_bytes: sum
                    .memory_working_set_bytes
                    .saturating_add(container.stats.memory_working_set_bytes),
                processes: sum.processes.saturating_add(container.stats.processes),
            })
    }
}

/// The whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) cpu_usage_nanos: u64,
    pub(super) memory_working_set_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) booted_unix_secs: u64,
}

impl Machine {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/stat"), &read("/proc/meminfo"))
    }

    /// Working set: what is in use, without files that nobody has touched lately. As the root
    /// cgroup would say it, which v2 does not let one ask.
    fn parse(stat: &str, meminfo: &str) -> Self {
        let line = |name: &str| {
            stat.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
        };
        let ticks: Vec<u64> = line("cpu ")
            .split_whitespace()
            .map(|text| text.parse().unwrap_or(0))
            .collect();
        // user nice system idle iowait irq softirq steal
        let busy: u64 = [0, 1, 2, 5, 6, 7]
            .iter()
            .filter_map(|index| ticks.get(*index))
            .sum();
        let bytes = |name: &str| {
            let rest = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default();
            rest.split_whitespace()
                .next()
                .and_then(|kib| kib.parse::<u64>().ok())
                .unwrap_or(0)
                * 1024
        };
        let total = bytes("MemTotal:");
        Self {
            cpu_usage_nanos: busy * TICK_NANOS,
            memory_working_set_bytes: total
                .saturating_sub(bytes("MemFree:"))
                .saturating_sub(bytes("Inactive(file):")),
            memory_bytes: total,
            booted_unix_secs: line("btime ").trim().parse().unwrap_or(0),
        }
    }
}

/// One look at everything.
#[derive(Debug, Clone)]
pub(super) struct Look {
    at: Instant,
    pub(super) time: SystemTime,
    pub(super) machine: Machine,
    pub(super) pods: Vec<Pod>,
}

impl Look {
    pub(super) async fn take(server: &ServerContext) -> Self {
        let (at, time) = (Instant::now(), SystemTime::now());
        let known = server.ctx.pods.read().clone();
        let mut pods = Vec::with_capacity(known.len());
        for pod in known {
            let Ok((_, found)) = server.ctx.runtime.pod_state(&pod.uid()).await else {
                continue;
            };
            let mut containers = Vec::with_capacity(found.len());
            for container in found {
                let ContainerState::Running { started_at, .. } = container.state else {
                    continue;
                };
                let Ok(stats) = server.ctx.runtime.container_stats(&container.id).await else {
                    continue;
                };
                containers.push(Container {
                    id: container.id,
                    name: container.name,
                    started_at,
                    stats,
                });
            }
            let (namespace, name, uid) = (
                pod.namespace().to_owned(),
                pod.name().to_owned(),
                pod.uid().to_string(),
            );
            pods.push(Pod {
                namespace,
                name,
                uid,
                containers,
            });
        }
        Self {
            at,
            time,
            machine: Machine::read(),
            pods,
        }
    }

    fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// A look, and how busy everything was before it.
#[derive(Debug, Clone)]
pub(super) struct Usage {
    pub(super) look: Look,
    /// Thousand millionths of a core.
    pub(super) machine_nanocores: u64,
    nanocores: HashMap<ContainerId, u64>,
}

impl Usage {
    fn between(old: &Look, new: &Look) -> Self {
        let before: HashMap<&ContainerId, u64> = old
            .pods
            .iter()
            .flat_map(|pod| &pod.containers)
            .map(|container| (&container.id, container.stats.cpu_usage_nanos))
            .collect();
        let window = new.at.saturating_duration_since(old.at);
        let nanocores = new
            .pods
            .iter()
            .flat_map(|pod| &pod.containers)
            .map(|container| {
                let used = container.stats.cpu_usage_nanos;
                let rate = match before.get(&container.id) {
                    Some(before) => rate(used.saturating_sub(*before), window),
                    None => rate(
                        used,
                        new.time
                            .duration_since(container.started_at)
                            .unwrap_or_default(),
                    ),
                };
                (container.id.clone(), rate)
            });
        let machine = new
            .machine
            .cpu_usage_nanos
            .saturating_sub(old.machine.cpu_usage_nanos);
        Self {
            machine_nanocores: rate(machine, window),
            nanocores: nanocores.collect(),
            look: new.clone(),
        }
    }

    /// How busy a container was.
    pub(super) fn nanocores(&self, container: &Container) -> u64 {
        self.nanocores.get(&container.id).copied().unwrap_or(0)
    }
}

/// Nanoseconds of CPU within a time, as thousand millionths of a core.
fn rate(nanos: u64, within: Duration) -> u64 {
    let within = within.as_nanos().max(1);
    u64::try_from(u128::from(nanos) * 1_000_000_000 / within).unwrap_or(u64::MAX)
}

/// Remembers the last look.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Option<(Look, Usage)>>);

impl Recorder {
    /// How busy everything was lately. Those who ask at once share one answer.
    pub(super) async fn usage(&self, server: &ServerContext) -> Usage {
        let mut last = self.0.lock().await;
        let old = match last.take() {
            Some((look, usage)) if look.age() < FRESH => {
                *last = Some((look, usage.clone()));
                return usage;
            }
            Some((look, _)) if look.age() < OLD => look,
            _ => {
                let look = Look::take(server).await;
                tokio::time::sleep(PAUSE).await;
                look
            }
        };
        let look = Look::take(server).await;
        let usage = Usage::between(&old, &look);
        *last = Some((look, usage.clone()));
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_proc() {
        let stat = "cpu  10 1 5 900 7 2 1 1 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n";
        let meminfo = "MemTotal:       1000 kB\nMemFree:         300 kB\nMemAvailable:    600 kB\nInactive(file):  200 kB\n";
        let expect = Machine {
            cpu_usage_nanos: 20 * TICK_NANOS,
            memory_working_set_bytes: 500 * 1024,
            memory_bytes: 1000 * 1024,
            booted_unix_secs: 1_700_000_000,
        };
        assert_eq!(Machine::parse(stat, meminfo), expect);
        assert_eq!(Machine::parse("", ""), Machine::default());
    }

    fn look(at: Instant, containers: &[(&str, u64)]) -> Look {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let container = |(id, cpu): &(&str, u64)| Container {
            id: ContainerId((*id).to_owned()),
            name: (*id).to_owned(),
            started_at: time - Duration::from_secs(4),
            stats: ContainerStats {
                cpu_usage_nanos: *cpu,
                memory_working_set_bytes: 1,
                processes: 1,
            },
        };
        let containers = containers.iter().map(container).collect();
        let pod = Pod {
            namespace: "d".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            containers,
        };
        Look {
            at,
            time,
            machine: Machine {
                cpu_usage_nanos: 0,
                ..Machine::default()
            },
            pods: vec![pod],
        }
    }

    #[test]
    fn rates_are_over_the_window_or_the_containers_life() {
        let start = Instant::now();
        let old = look(start, &[("a", 1_000_000_000), ("restarted", 9)]);
        let new = look(
            start + Duration::from_secs(2),
            &[("a", 2_000_000_000), ("b", 1_000_000_000), ("restarted", 3)],
        );
        let usage = Usage::between(&old, &new);
        let rates: Vec<u64> = new.pods[0]
            .containers
            .iter()
            .map(|container| usage.nanocores(container))
            .collect();
        assert_eq!(rates, [500_000_000, 250_000_000, 0]);
        assert_eq!(new.pods[0].stats().memory_working_set_bytes, 3);
    }
}
