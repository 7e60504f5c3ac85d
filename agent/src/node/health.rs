//! What ails the machine, as conditions of its Node.
//!
//! | condition | from |
//! |---|---|
//! | `MemoryPressure`, `DiskPressure`, `PIDPressure` | eviction signals below their thresholds |
//! | `SystemMemoryContentionPressure`, `SystemDiskContentionPressure` | pressure stall information, where the kernel has it |
//! | `NetworkUnavailable` | the node's address is on no interface any more |
//! | `ClockSkew` | the API server's clock |
//!
//! The first three are upstream's and keep new pods away. The next two are named and judged as
//! KEP-4205 has it (a share of the last 60 seconds, still so in the last 10), and only told: work
//! of one pod that waits for its own limits counts, too. The last two appear only once there was
//! something to tell. That memory volumes may reach the swap is an event alone.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use tokio::time::Instant;

use super::{
    address::{self, Loss},
    clock::{ClockView, TOLERANCE_SECS},
};
use crate::{
    config::AgentConfig,
    events::EventType,
    eviction::{Pressure, Thresholds, signals},
    psi::{self, Psi, Resource},
    swap,
};

/// Per cent of a minute in which all work stood still, from which on it is told.
const CONTENTION_PERCENT: f64 = 20.0;
/// DHCP clients take an address away and give it back at once.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// Reason of `NetworkUnavailable` as it is written here; network add-ons use the condition as well.
const ADDRESS_GONE: &str = "NodeAddressGone";
const ADDRESS_PRESENT: &str = "NodeAddressPresent";
/// Upstream's words.
const SWAPPED: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
                       might be swapped to disk and should no longer be considered secure.";

/// What a look has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Health {
    /// Of what there is too little.
    pub(crate) pressures: Vec<Pressure>,
    /// For what work stands still; `None` where the kernel does not say.
    pub(crate) memory_contention: Option<bool>,
    pub(crate) disk_contention: Option<bool>,
    /// Seconds by which the clock is ahead of the API server's.
    pub(crate) clock_ahead_secs: i64,
    pub(crate) address_loss: Option<Loss>,
    /// Secrets may reach the disk.
    pub(crate) swaps_volumes: bool,
}

/// Looks at the machine, and remembers what it saw before.
pub(crate) struct Examiner {
    thresholds: Thresholds,
    transition: Duration,
    dirs: (PathBuf, PathBuf),
    node_ip: IpAddr,
    clock: ClockView,
    last_met: BTreeMap<Pressure, Instant>,
    contention: (bool, bool),
    lost_since: Option<Instant>,
}

/// What is read without thinking.
struct Signs {
    met: Vec<crate::eviction::Shortage>,
    memory: Option<Psi>,
    disk: Option<Psi>,
    address_loss: Option<Loss>,
    swaps_volumes: bool,
}

impl Examiner {
    pub(crate) fn new(config: &AgentConfig, clock: ClockView) -> Self {
        let dir = config.agent_dir();
        Self {
            thresholds: config.eviction_hard.clone(),
            transition: config.eviction_transition,
            dirs: (dir.join("pods"), dir.join("images")),
            node_ip: config.node_ip,
            clock,
            last_met: BTreeMap::new(),
            contention: (false, false),
            lost_since: None,
        }
    }

    /// One look.
    pub(crate) async fn look(&mut self) -> Health {
        let (thresholds, dirs, node_ip) =
            (self.thresholds.clone(), self.dirs.clone(), self.node_ip);
        let read = move || Signs {
            met: thresholds.met(&signals::observe(&dirs.0, &dirs.1)),
            memory: psi::of_machine(Resource::Memory),
            disk: psi::of_machine(Resource::Io),
            address_loss: address::look(node_ip),
            swaps_volumes: swap::reaches_memory_volumes() == Some(true),
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(signs) => self.judge(&signs, Instant::now()),
            // It has been printed; the next look may go well.
            Err(_) => Health::default(),
        }
    }

    fn judge(&mut self, signs: &Signs, now: Instant) -> Health {
        for supply in signs.met.iter().map(|shortage| shortage.supply) {
            let pressure = supply.signal.pressure();
            if self.last_met.insert(pressure, now).is_none() {
                let (signal, available, capacity) =
                    (supply.signal, supply.available, supply.capacity);
                tracing::warn!(%signal, available, capacity, "too little is left: the node is under pressure");
            }
        }
        // As upstream: pressure that comes and goes must not let pods come and go.
        self.last_met.retain(|pressure, at| {
            let lasts = *at == now || now.saturating_duration_since(*at) < self.transition;
            if !lasts {
                tracing::info!(?pressure, "the node is no longer under pressure");
            }
            lasts
        });
        self.contention.0 = signs
            .memory
            .is_some_and(|psi| contended(&psi, self.contention.0));
        self.contention.1 = signs
            .disk
            .is_some_and(|psi| contended(&psi, self.contention.1));
        self.lost_since = signs.address_loss.and(self.lost_since.or(Some(now)));
        let is_lost = self
            .lost_since
            .is_some_and(|since| now.saturating_duration_since(since) >= LOST_AFTER);
        Health {
            pressures: self.last_met.keys().copied().collect(),
            memory_contention: signs.memory.map(|_| self.contention.0),
            disk_contention: signs.disk.map(|_| self.contention.1),
            clock_ahead_secs: self.clock.lock().unwrap_or(0),
            address_loss: signs.address_loss.filter(|_| is_lost),
            swaps_volumes: signs.swaps_volumes,
        }
    }
}

/// Begins when the last minute and the last seconds were bad, and ends when the last minute was
/// good.
fn contended(psi: &Psi, before: bool) -> bool {
    psi.full.avg60 >= CONTENTION_PERCENT && (before || psi.full.avg10 >= CONTENTION_PERCENT)
}

/// Type, status, reason and message of a condition.
pub(crate) type Told = (&'static str, bool, &'static str, String);

impl Health {
    /// The conditions that upstream's nodes always have.
    pub(crate) fn pressure_conditions(&self) -> [Told; 3] {
        let told = |pressure,
                    name,
                    (bad, bad_text): (&'static str, &str),
                    (good, good_text): (&'static str, &str)| {
            let is = self.pressures.contains(&pressure);
            (
                name,
                is,
                if is { bad } else { good },
                if is { bad_text } else { good_text }.to_owned(),
            )
        };
        [
            told(
                Pressure::Memory,
                "MemoryPressure",
                (
                    "KubeletHasInsufficientMemory",
                    "kubelet has insufficient memory available",
                ),
                (
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
            ),
            told(
                Pressure::Disk,
                "DiskPressure",
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ),
            told(
                Pressure::Pid,
                "PIDPressure",
                (
                    "KubeletHasInsufficientPID",
                    "kubelet has insufficient PID available",
                ),
                (
                    "KubeletHasSufficientPID",
                    "kubelet has sufficient PID available",
                ),
            ),
        ]
    }

    /// All others that there is something to tell of.
    pub(crate) fn more_conditions(&self, before: Option<&NodeStatus>) -> Vec<Told> {
        let had = |kind: &str| {
            let known = before
                .and_then(|before| before.conditions.as_ref())
                .into_iter()
                .flatten();
            known
                .filter(|condition| condition.type_ == kind)
                .any(is_ours)
        };
        let mut told = Vec::new();
        let contention = [
            (
                "SystemMemoryContentionPressure",
                self.memory_contention,
                "memory",
            ),
            ("SystemDiskContentionPressure", self.disk_contention, "I/O"),
        ];
        for (kind, is, what) in contention {
            match is {
                Some(true) => {
                    let why = format!(
                        "all work waited for {what} for more than {CONTENTION_PERCENT} % of the last minute"
                    );
                    told.push((kind, true, "PressureStall", why));
                }
                Some(false) => {
                    told.push((
                        kind,
                        false,
                        "NoPressureStall",
                        format!("work does not wait for {what}"),
                    ));
                }
                None => {}
            }
        }
        // Nothing is told of these two as long as all is well. What has been told is taken back,
        // not left to stand.
        if let Some(loss) = self.address_loss {
            told.push(("NetworkUnavailable", true, ADDRESS_GONE, loss_message(loss)));
        } else if had("NetworkUnavailable") {
            let why = "the node's address is this machine's".to_owned();
            told.push(("NetworkUnavailable", false, ADDRESS_PRESENT, why));
        }
        if self.is_skewed() {
            told.push(("ClockSkew", true, "ClockDiffers", self.skew_message()));
        } else if had("ClockSkew") {
            told.push((
                "ClockSkew",
                false,
                "ClockAgrees",
                "the clock agrees with the API server's".to_owned(),
            ));
        }
        told
    }

    /// Whether the clock differs by more than is bearable.
    pub(crate) fn is_skewed(&self) -> bool {
        self.clock_ahead_secs.abs() > TOLERANCE_SECS
    }

    /// Without the seconds, which change with each measurement: coarse, so that the same is told
    /// once.
    pub(crate) fn skew_message(&self) -> String {
        let secs = self.clock_ahead_secs.abs();
        let about = match secs {
            ..60 => "some seconds".to_owned(),
            60..3600 => format!("about {} min", (secs + 30) / 60),
            _ => format!("about {} h", (secs + 1800) / 3600),
        };
        let way = if self.clock_ahead_secs > 0 {
            "ahead of"
        } else {
            "behind"
        };
        format!("the clock is {about} {way} the API server's")
    }
}

/// What people see in `kubectl describe node` when something changes.
pub(crate) fn events(
    node_name: &str,
    before: &Health,
    now: &Health,
) -> Vec<(EventType, &'static str, String)> {
    let mut events = Vec::new();
    let names = [
        (
            Pressure::Memory,
            "NodeHasInsufficientMemory",
            "NodeHasSufficientMemory",
        ),
        (
            Pressure::Disk,
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
        ),
        (
            Pressure::Pid,
            "NodeHasInsufficientPID",
            "NodeHasSufficientPID",
        ),
    ];
    for (pressure, begins, ends) in names {
        let (was, is) = (
            before.pressures.contains(&pressure),
            now.pressures.contains(&pressure),
        );
        if was != is {
            let reason = if is { begins } else { ends };
            events.push((
                EventType::Normal,
                reason,
                format!("Node {node_name} status is now: {reason}"),
            ));
        }
    }
    match (before.is_skewed(), now.is_skewed()) {
        (false, true) => events.push((EventType::Warning, "ClockSkew", now.skew_message())),
        (true, false) => events.push((
            EventType::Normal,
            "ClockAgrees",
            "the clock agrees again".to_owned(),
        )),
        _ => {}
    }
    match (before.address_loss, now.address_loss) {
        (None, Some(loss)) => events.push((EventType::Warning, ADDRESS_GONE, loss_message(loss))),
        (Some(_), None) => events.push((
            EventType::Normal,
            ADDRESS_PRESENT,
            "the node's address is back".to_owned(),
        )),
        _ => {}
    }
    if now.swaps_volumes && !before.swaps_volumes {
        events.push((
            EventType::Warning,
            "PossibleMemoryBackedVolumesOnDisk",
            SWAPPED.to_owned(),
        ));
    }
    events
}

fn loss_message(loss: Loss) -> String {
    let instead = loss
        .instead
        .map_or_else(String::new, |now| format!("; the machine has {now} now"));
    format!("the node's address is on no interface{instead}")
}

/// Add-ons may tell of the network as well.
fn is_ours(condition: &NodeCondition) -> bool {
    condition.type_ != "NetworkUnavailable"
        || condition
            .reason
            .as_deref()
            .is_some_and(|reason| [ADDRESS_GONE, ADDRESS_PRESENT].contains(&reason))
}

#[cfg(test)]
mod tests;
