//! What this machine has, read from files and the effective capabilities. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
};

use coracle_agent::config::{has_rules_in_iptables, probe_nftables};
use coracle_telemetry::ErrorChain;

use super::needs::{CONTROLLERS, NET_ADMIN, NOSWAP_MIN, PROGRAMS};

/// What a machine has.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    /// `CONFIG_X` of the running kernel to `y` or `m`; `None` when the kernel does not say.
    pub(super) kernel_config: Option<BTreeMap<String, char>>,
    /// Bits of the effective capability set.
    pub(super) capabilities: u64,
    /// Programs found in `PATH`.
    pub(super) programs: BTreeSet<&'static str>,
    /// Controllers that are mounted (v1) or available in the unified hierarchy (v2).
    pub(super) controllers: BTreeSet<String>,
    /// `(release, major, minor)` of the kernel.
    pub(super) kernel: (String, u32, u32),
    /// What the kernel says to nftables' tables; `None` if who asks may not.
    pub(super) nftables: Option<Result<(), String>>,
    /// Whether iptables' tables have rules of an earlier run.
    pub(super) has_rules_in_iptables: bool,
    /// Whether packets are forwarded between interfaces.
    pub(super) ip_forward: bool,
    /// Firewalls that are in charge of this machine.
    pub(super) firewalls: Vec<Firewall>,
    /// Whether Secrets in pods' volumes may reach the disk.
    pub(super) swaps_volumes: bool,
}

/// A firewall that is known to stand in the way of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Firewall {
    Ufw,
    Firewalld,
}

impl Firewall {
    /// Whether it runs, by what it leaves in the file system.
    fn find() -> Vec<Self> {
        let ufw = std::fs::read_to_string("/etc/ufw/ufw.conf").unwrap_or_default();
        let enabled = ufw
            .lines()
            .any(|line| line.trim().eq_ignore_ascii_case("ENABLED=yes"));
        // firewalld writes its process ID there.
        let firewalld = Path::new("/run/firewalld.pid").exists();
        [(enabled, Self::Ufw), (firewalld, Self::Firewalld)]
            .into_iter()
            .filter_map(|(on, it)| on.then_some(it))
            .collect()
    }
}

impl Machine {
    /// Looks at this machine. The kernel may load modules of nftables, as for an agent.
    pub(super) fn probe() -> Self {
        let capabilities = effective_capabilities().unwrap_or(0);
        let may_ask = capabilities & (1 << NET_ADMIN) != 0;
        let ask = || probe_nftables().map_err(|error| ErrorChain(&error).to_string());
        Self {
            kernel_config: kernel_config(),
            capabilities,
            nftables: may_ask.then(ask),
            has_rules_in_iptables: may_ask && has_rules_in_iptables(),
            programs: PROGRAMS
                .iter()
                .map(|(program, _)| *program)
                .filter(|program| in_path(program))
                .collect(),
            controllers: controllers(),
            kernel: kernel_release(),
            firewalls: Firewall::find(),
            // Who may not ask the kernel goes by its number.
            swaps_volumes: coracle_agent::swap::reaches_memory_volumes().unwrap_or_else(|| {
                let (_, major, minor) = kernel_release();
                (major, minor) < NOSWAP_MIN
            }),
            ip_forward: std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")
                .is_ok_and(|text| text.trim() == "1"),
        }
    }
}

fn kernel_config() -> Option<BTreeMap<String, char>> {
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open("/proc/config.gz") {
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .ok()?;
    } else {
        text = std::fs::read_to_string(format!("/boot/config-{}", kernel_release().0)).ok()?;
    }
    Some(parse_kernel_config(&text))
}

fn parse_kernel_config(text: &str) -> BTreeMap<String, char> {
    let options = text
        .lines()
        .filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
    options
        .filter_map(|(name, value)| match value {
            "y" => Some((name.to_owned(), 'y')),
            "m" => Some((name.to_owned(), 'm')),
            _ => None,
        })
        .collect()
}

fn effective_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The agent also looks where root's tools live, whatever PATH a service manager hands down.
    let extra = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(extra)
        .any(|dir| dir.join(program).is_file())
}

fn controllers() -> BTreeSet<String> {
    let unified = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let mut found: BTreeSet<String> = unified.split_whitespace().map(str::to_owned).collect();
    for (name, _) in CONTROLLERS {
        if Path::new("/sys/fs/cgroup")
            .join(name)
            .join("tasks")
            .exists()
        {
            found.insert((*name).to_owned());
        }
    }
    found
}

fn kernel_release() -> (String, u32, u32) {
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release, major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_are_built_count() {
        let config = parse_kernel_config(
            "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=\"text\"\n",
        );
        assert_eq!(
            config.into_iter().collect::<Vec<_>>(),
            [("A".to_owned(), 'y'), ("B".to_owned(), 'm')]
        );
    }
}
