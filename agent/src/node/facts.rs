//! What this machine is and has. It is read anew at every report: processors, memory and disks come
//! and go.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::NodeSystemInfo;
use parking_lot::{Mutex, RwLock};

use crate::{
    config::{AgentConfig, ConfigError},
    container_config::fields::Allocatable,
    eviction::{Signal, Thresholds},
    reserved::Reserved,
};

/// The machine as last read, and what of it is the pods'.
pub(crate) struct Machine {
    /// Where pods write to.
    data_dir: PathBuf,
    reserved: Reserved,
    eviction_hard: Thresholds,
    facts: RwLock<Arc<Facts>>,
    /// Held while it is read.
    reading: Mutex<()>,
}

/// What all pods together may take, in the kernel's terms. Eviction begins before they have taken
/// it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodsShare {
    pub(crate) cpu_millis: i64,
    pub(crate) memory_bytes: i64,
    /// Bounded only if some are kept back.
    pub(crate) pids: Option<i64>,
}

impl Machine {
    /// Reads it for the first time. Blocking.
    pub(crate) fn read(config: &AgentConfig) -> Self {
        let data_dir = config.agent_dir();
        Self {
            facts: RwLock::new(Arc::new(Facts::read(&data_dir))),
            data_dir,
            reserved: config.kube_reserved.plus(config.system_reserved),
            eviction_hard: config.eviction_hard.clone(),
            reading: Mutex::default(),
        }
    }

    /// Reads it again, unless that is going on. Blocking.
    pub(crate) fn refresh(&self) {
        let Some(_once) = self.reading.try_lock() else {
            return;
        };
        let fresh = Facts::read(&self.data_dir);
        *self.facts.write() = Arc::new(fresh);
    }

    pub(crate) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.read())
    }

    /// What pods may ask for: everything but what is reserved, what huge pages hold, and what
    /// eviction keeps free.
    pub(crate) fn allocatable(&self) -> Allocatable {
        self.facts()
            .allocatable(&self.reserved, &self.eviction_hard)
    }

    /// Bytes by size of page: `hugepages-2Mi`.
    pub(crate) fn hugepages(&self) -> Vec<(String, i64)> {
        self.facts().hugepages.clone()
    }

    /// What is enforced: everything but what is reserved.
    pub(crate) fn pods_share(&self) -> PodsShare {
        let (facts, reserved) = (self.facts(), &self.reserved);
        PodsShare {
            cpu_millis: (facts.cpu_millis() - reserved.cpu_millis).max(0),
            memory_bytes: (facts.memory_bytes - reserved.memory_bytes).max(0),
            pids: Some((facts.pids - reserved.pids).max(1))
                .filter(|_| reserved.pids > 0 && facts.pids > 0),
        }
    }

    /// A machine that has less than is to be kept back can run nothing.
    ///
    /// # Errors
    /// Names the resource and both amounts, as upstream does.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (facts, kept) = (
            self.facts(),
            self.facts().kept(&self.reserved, &self.eviction_hard),
        );
        let all = [
            ("cpu", kept.cpu_millis, facts.cpu_millis()),
            ("memory", kept.memory_bytes, facts.memory_bytes),
            (
                "ephemeral-storage",
                kept.ephemeral_bytes,
                facts.ephemeral_bytes,
            ),
        ];
        match all
            .into_iter()
            .find(|(_, kept, capacity)| *capacity > 0 && kept > capacity)
        {
            None => Ok(()),
            Some((name, kept, capacity)) => Err(ConfigError {
                field: "--kube-reserved, --system-reserved",
                value: format!("{name}={kept}"),
                expected: format!(
                    "resource {name:?} has a reservation of {kept} but capacity of {capacity}: expected capacity >= reservation"
                ),
            }),
        }
    }
}

/// The machine.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_bytes: i64,
    /// Page size as in `hugepages-2Mi`, and bytes.
    pub(crate) hugepages: Vec<(String, i64)>,
    /// Most processes and threads that the kernel has numbers for.
    pub(crate) pids: i64,
    pub(crate) info: NodeSystemInfo,
}

impl Facts {
    fn read(data_dir: &Path) -> Self {
        let meminfo = read("/proc/meminfo");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: total_memory(&meminfo),
            ephemeral_bytes: disk_size(data_dir),
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            pids: read("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
            info: system_info(),
        }
    }

    /// All there is.
    pub(crate) fn capacity(&self) -> Allocatable {
        Allocatable {
            cpu_millis: self.cpu_millis(),
            memory_bytes: self.memory_bytes,
            ephemeral_bytes: self.ephemeral_bytes,
        }
    }

    fn cpu_millis(&self) -> i64 {
        i64::try_from(self.cpus).unwrap_or(1) * 1000
    }

    /// What is kept from pods: reservations, and what eviction keeps free.
    fn kept(&self, reserved: &Reserved, thresholds: &Thresholds) -> Reserved {
        let free = |signal, capacity: i64| {
            let free = thresholds.kept_free(signal, u64::try_from(capacity).unwrap_or(0));
            i64::try_from(free).unwrap_or(i64::MAX)
        };
        reserved.plus(Reserved {
            memory_bytes: free(Signal::MemoryAvailable, self.memory_bytes),
            ephemeral_bytes: free(Signal::NodefsAvailable, self.ephemeral_bytes),
            ..Reserved::default()
        })
    }

    fn allocatable(&self, reserved: &Reserved, thresholds: &Thresholds) -> Allocatable {
        let kept = self.kept(reserved, thresholds);
        let huge = self.hugepages.iter().map(|(_, bytes)| bytes).sum::<i64>();
        Allocatable {
            cpu_millis: (self.cpu_millis() - kept.cpu_millis).max(0),
            memory_bytes: (self.memory_bytes - kept.memory_bytes - huge).max(0),
            ephemeral_bytes: (self.ephemeral_bytes - kept.ephemeral_bytes).max(0),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn total_memory(meminfo: &str) -> i64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<i64>().ok())
        .unwrap_or(0)
        * 1024
}

fn disk_size(dir: &Path) -> i64 {
    nix::sys::statvfs::statvfs(dir).map_or(0, |stat| {
        i64::try_from(stat.blocks() * stat.fragment_size()).unwrap_or(i64::MAX)
    })
}

fn hugepages(dir: &Path) -> Vec<(String, i64)> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<(String, i64)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let kib: i64 = name
                .to_str()?
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let count: i64 = fs::read_to_string(entry.path().join("nr_hugepages"))
                .ok()?
                .trim()
                .parse()
                .ok()?;
            let size = if kib >= 1024 * 1024 {
                format!("{}Gi", kib / 1024 / 1024)
            } else if kib >= 1024 {
                format!("{}Mi", kib / 1024)
            } else {
                format!("{kib}Ki")
            };
            Some((format!("hugepages-{size}"), count * kib * 1024))
        })
        .collect();
    found.sort();
    found
}

fn system_info() -> NodeSystemInfo {
    let trimmed = |path: &str| read(path).trim().to_owned();
    let machine_id = trimmed("/etc/machine-id");
    let uuid = trimmed("/sys/class/dmi/id/product_uuid");
    NodeSystemInfo {
        system_uuid: if uuid.is_empty() {
            machine_id.clone()
        } else {
            uuid
        },
        machine_id,
        boot_id: trimmed("/proc/sys/kernel/random/boot_id"),
        kernel_version: trimmed("/proc/sys/kernel/osrelease"),
        os_image: os_image(&read("/etc/os-release")),
        container_runtime_version: format!("coracle://{}", env!("CARGO_PKG_VERSION")),
        kubelet_version: "v1.37.0+coracle".to_owned(),
        kube_proxy_version: "v1.37.0+coracle".to_owned(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        ..NodeSystemInfo::default()
    }
}

/// Go's name of this machine's architecture.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

fn os_image(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(
        || "Linux".to_owned(),
        |name| name.trim_matches('"').to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_and_os_release_are_understood() {
        assert_eq!(
            total_memory("MemTotal:       24000000 kB\nMemFree: 1 kB\n"),
            24_000_000 * 1024
        );
        assert_eq!(
            os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(os_image(""), "Linux");
    }

    fn machine(thresholds: &str, reserved: Reserved) -> Machine {
        let facts = Facts {
            cpus: 2,
            memory_bytes: 4 << 30,
            ephemeral_bytes: 100 << 30,
            hugepages: vec![("hugepages-2Mi".to_owned(), 1 << 30)],
            pids: 32_768,
            info: NodeSystemInfo::default(),
        };
        Machine {
            data_dir: PathBuf::new(),
            reserved,
            eviction_hard: thresholds.parse().expect("thresholds"),
            facts: RwLock::new(Arc::new(facts)),
            reading: Mutex::default(),
        }
    }

    #[test]
    fn pods_may_ask_for_what_is_neither_reserved_nor_kept_free() {
        let all = machine("", Reserved::default());
        let expected = Allocatable {
            cpu_millis: 2000,
            memory_bytes: 3 << 30,
            ephemeral_bytes: 100 << 30,
        };
        assert_eq!(all.allocatable(), expected);
        let share = PodsShare {
            cpu_millis: 2000,
            memory_bytes: 4 << 30,
            pids: None,
        };
        assert_eq!(all.pods_share(), share);
        let reserved = Reserved {
            cpu_millis: 500,
            memory_bytes: 1 << 30,
            ephemeral_bytes: 1 << 30,
            pids: 768,
        };
        let some = machine("memory.available<100Mi,nodefs.available<10%", reserved);
        let expected = Allocatable {
            cpu_millis: 1500,
            memory_bytes: (2 << 30) - (100 << 20),
            ephemeral_bytes: 89 << 30,
        };
        assert_eq!(some.allocatable(), expected);
        assert_eq!(
            some.pods_share(),
            PodsShare {
                cpu_millis: 1500,
                memory_bytes: 3 << 30,
                pids: Some(32_000)
            }
        );
        assert_eq!(some.check(), Ok(()));
    }

    #[test]
    fn a_machine_smaller_than_its_reservations_is_refused() {
        let reserved = Reserved {
            cpu_millis: 2001,
            ..Reserved::default()
        };
        let error = machine("", reserved)
            .check()
            .expect_err("too much")
            .to_string();
        assert!(
            error.contains("resource \"cpu\" has a reservation of 2001 but capacity of 2000"),
            "{error}"
        );
    }

    #[test]
    fn what_the_machine_has_is_read_again() {
        let mut config = AgentConfig::new("n1", "192.0.2.1".parse().expect("address"));
        config.data_dir = PathBuf::from("/");
        let machine = Machine {
            data_dir: PathBuf::from("/"),
            ..machine("", Reserved::default())
        };
        machine.refresh();
        assert_eq!(
            machine.facts().memory_bytes,
            Machine::read(&config).facts().memory_bytes
        );
        assert_ne!(machine.facts().memory_bytes, 4 << 30);
    }
}
