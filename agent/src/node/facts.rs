//! What this machine is and has, read once at start.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::NodeSystemInfo;

use crate::container_config::fields::Allocatable;

/// The machine.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_bytes: i64,
    /// Page size as in `hugepages-2Mi`, and bytes.
    pub(crate) hugepages: Vec<(String, i64)>,
    pub(crate) info: NodeSystemInfo,
}

impl Facts {
    /// Reads them; `data_dir` is where pods write to.
    pub(crate) fn read(data_dir: &Path) -> Self {
        let meminfo = read("/proc/meminfo");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: total_memory(&meminfo),
            ephemeral_bytes: disk_size(data_dir),
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            info: system_info(),
        }
    }

    /// What pods may use: everything, as nothing is reserved.
    pub(crate) fn allocatable(&self) -> Allocatable {
        Allocatable {
            cpu_millis: i64::try_from(self.cpus).unwrap_or(1) * 1000,
            memory_bytes: self.memory_bytes - self.hugepages.iter().map(|(_, bytes)| bytes).sum::<i64>(),
            ephemeral_bytes: self.ephemeral_bytes / 10 * 9,
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn total_memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse::<i64>().ok()).unwrap_or(0) * 1024
}

fn disk_size(dir: &Path) -> i64 {
    nix::sys::statvfs::statvfs(dir)
        .map_or(0, |stat| i64::try_from(stat.blocks() * stat.fragment_size()).unwrap_or(i64::MAX))
}

fn hugepages(dir: &Path) -> Vec<(String, i64)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<(String, i64)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let kib: i64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count: i64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
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
        system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
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
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_and_os_release_are_understood() {
        assert_eq!(total_memory("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), 24_000_000 * 1024);
        assert_eq!(os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(os_image(""), "Linux");
    }
}
