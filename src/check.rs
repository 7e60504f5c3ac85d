//! `coracle check`: what a node needs of its machine, whether it is there, and what to do if not.
//!
//! [`Machine::probe`] looks (files and effective capabilities, nothing is changed or loaded);
//! [`findings`] judges, purely.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
};

use anyhow::anyhow;

use crate::{Failure, cli::CheckArgs, say};

/// What a machine has.
#[derive(Debug, Clone, Default)]
struct Machine {
    /// `CONFIG_X` of the running kernel to `y` or `m`; `None` when the kernel does not say.
    kernel_config: Option<BTreeMap<String, char>>,
    /// Bits of the effective capability set.
    capabilities: u64,
    /// Programs found in `PATH`.
    programs: BTreeSet<&'static str>,
    /// Controllers that are mounted (v1) or available in the unified hierarchy (v2).
    controllers: BTreeSet<String>,
    /// `(release, major, minor)` of the kernel.
    kernel: (String, u32, u32),
    /// Whether packets are forwarded between interfaces.
    ip_forward: bool,
    /// Firewalls that are in charge of this machine.
    firewalls: Vec<Firewall>,
    /// Whether Secrets in pods' volumes may reach the disk.
    swaps_volumes: bool,
}

/// A firewall that is known to stand in the way of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firewall {
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

    fn finding(self) -> Finding {
        let (what, advice) = match self {
            Self::Ufw => (
                "firewall ufw",
                "its rules come before those that let pods through: ufw route allow in on coracle0; ufw route allow out on \
                 coracle0; ufw allow in on coracle0; between nodes: ufw allow 4789/udp",
            ),
            Self::Firewalld => (
                "firewall firewalld",
                "its own rules cannot be overruled: firewall-cmd --permanent --zone=trusted --add-interface=coracle0 \
                 --add-interface=coracle-vxlan && firewall-cmd --reload",
            ),
        };
        Finding {
            level: Level::Warn,
            what: what.to_owned(),
            advice: advice.to_owned(),
        }
    }
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// There.
    Ok,
    /// Missing, something works less well.
    Warn,
    /// Missing, pods cannot run.
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    level: Level,
    what: String,
    /// What to do; empty if nothing.
    advice: String,
}

/// Kernel option, whether pods need it, what it is for.
const KERNEL_OPTIONS: &[(&str, bool, &str)] = &[
    ("NET_NS", true, "network namespaces"),
    ("PID_NS", true, "process namespaces"),
    ("IPC_NS", true, "IPC namespaces"),
    ("UTS_NS", true, "host name namespaces"),
    ("CGROUPS", true, "cgroups"),
    ("MEMCG", true, "memory limits"),
    ("CFS_BANDWIDTH", true, "CPU limits"),
    ("CGROUP_PIDS", false, "process limits"),
    ("OVERLAY_FS", true, "container root file systems"),
    ("VETH", true, "pod interfaces"),
    ("BRIDGE", true, "the pod network"),
    ("NF_NAT", true, "Service addresses"),
    ("NETFILTER_XT_MATCH_COMMENT", true, "rule comments"),
    (
        "NETFILTER_XT_MATCH_STATISTIC",
        true,
        "balancing over endpoints",
    ),
    ("NETFILTER_XT_MATCH_CONNTRACK", true, "connection tracking"),
    ("NETFILTER_XT_MATCH_RECENT", false, "session affinity"),
    (
        "NETFILTER_XT_MATCH_SCTP",
        false,
        "Services and published ports of protocol SCTP",
    ),
    ("NETFILTER_XT_MATCH_ADDRTYPE", true, "node ports"),
    (
        "NF_CT_NETLINK",
        false,
        "forgetting UDP flows to pods that are gone",
    ),
    (
        "BPF_SYSCALL",
        false,
        "keeping pods from sending under other addresses",
    ),
    ("SECCOMP_FILTER", true, "system call filters"),
    ("VXLAN", false, "nodes on different subnets"),
];

/// Program, Debian package, whether pods need it.
const PROGRAMS: &[(&str, &str, bool)] = &[
    ("iptables-restore", "iptables", true),
    ("iptables-save", "iptables", true),
];

/// Capability, its bit, whether pods need it, what is lost without.
const CAPABILITIES: &[(&str, u32, bool, &str)] = &[
    ("CAP_SYS_ADMIN", 21, true, "namespaces and mounts"),
    (
        "CAP_NET_ADMIN",
        12,
        true,
        "pod networking and Service rules",
    ),
    ("CAP_MKNOD", 27, true, "device nodes and layer whiteouts"),
    ("CAP_SYS_CHROOT", 18, true, "container root file systems"),
    ("CAP_SETUID", 7, true, "containers of other users"),
    (
        "CAP_SYS_PTRACE",
        19,
        false,
        "looking into containers' processes",
    ),
    (
        "CAP_SYS_RESOURCE",
        24,
        false,
        "oom_score_adj below the agent's own and raised limits; Coracle clamps them",
    ),
];

const CONTROLLERS: &[(&str, bool)] = &[
    ("cpu", true),
    ("memory", true),
    ("pids", false),
    ("cpuset", false),
];

/// The oldest kernel with `openat2`, which image unpacking needs.
const KERNEL_MIN: (u32, u32) = (5, 6);

/// The oldest kernel whose tmpfs can be kept off the swap; distributions have it in older ones.
const NOSWAP_MIN: (u32, u32) = (6, 4);

/// Carries out the command: prints the report; fails if pods cannot run here.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let machine = Machine::probe();
    let mut findings = findings(&machine);
    findings.push(cgroup_root(&args.cgroup_root));
    for finding in &findings {
        let word = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let dash = if finding.advice.is_empty() { "" } else { " - " };
        say(format_args!(
            "{word}  {}{dash}{}",
            finding.what, finding.advice
        ));
    }
    match findings
        .iter()
        .filter(|finding| finding.level == Level::Fail)
        .count()
    {
        0 => Ok(()),
        n => Err(anyhow!(
            "{n} of {} things that a node needs are missing: see FAIL above",
            findings.len()
        )
        .into()),
    }
}

fn findings(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![kernel_version(machine)];
    findings.extend(
        KERNEL_OPTIONS
            .iter()
            .map(|option| kernel_option(machine, option)),
    );
    findings.extend(PROGRAMS.iter().map(|&(program, package, needed)| {
        finding(
            machine.programs.contains(program),
            needed,
            format!("program {program}"),
            || format!("apt-get install {package}"),
        )
    }));
    findings.extend(CAPABILITIES.iter().map(|&(name, bit, needed, loses)| {
        finding(
            machine.capabilities & (1 << bit) != 0,
            needed,
            format!("capability {name}"),
            || {
                if needed {
                    format!("run as root with it: {loses}")
                } else {
                    format!("without it: {loses}")
                }
            },
        )
    }));
    findings.extend(CONTROLLERS.iter().map(|&(name, needed)| {
        finding(machine.controllers.contains(name), needed, format!("cgroup controller {name}"), || {
            format!(
                "enable it on the kernel command line (cgroup_enable={name}) or in the parent's cgroup.subtree_control"
            )
        })
    }));
    findings.push(finding(
        machine.ip_forward,
        false,
        "net.ipv4.ip_forward".to_owned(),
        || "the agent turns it on when it starts".to_owned(),
    ));
    findings.extend(machine.firewalls.iter().map(|firewall| firewall.finding()));
    findings.push(finding(!machine.swaps_volumes, false, "memory volumes stay in memory".to_owned(), || {
        let (major, minor) = NOSWAP_MIN;
        format!("Secrets may be swapped to disk: swapoff -a, or a kernel of {major}.{minor} or later (tmpfs noswap)")
    }));
    findings
}

fn finding(present: bool, needed: bool, what: String, advice: impl FnOnce() -> String) -> Finding {
    match (present, needed) {
        (true, _) => Finding {
            level: Level::Ok,
            what,
            advice: String::new(),
        },
        (false, true) => Finding {
            level: Level::Fail,
            what,
            advice: advice(),
        },
        (false, false) => Finding {
            level: Level::Warn,
            what,
            advice: advice(),
        },
    }
}

fn kernel_version(machine: &Machine) -> Finding {
    let (release, major, minor) = &machine.kernel;
    finding(
        (*major, *minor) >= KERNEL_MIN,
        true,
        format!("kernel {release}"),
        || format!("{}.{} or later is needed", KERNEL_MIN.0, KERNEL_MIN.1),
    )
}

fn kernel_option(machine: &Machine, &(option, needed, purpose): &(&str, bool, &str)) -> Finding {
    let what = format!("kernel option CONFIG_{option} ({purpose})");
    let Some(config) = &machine.kernel_config else {
        let advice = "the kernel does not say: neither /proc/config.gz nor /boot/config-* is there"
            .to_owned();
        return Finding {
            level: Level::Warn,
            what,
            advice,
        };
    };
    finding(config.contains_key(option), needed, what, || {
        format!("use a kernel with CONFIG_{option}=y or m")
    })
}

fn cgroup_root(path: &str) -> Finding {
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
    let there = mounts
        .iter()
        .any(|mount| Path::new(&format!("{mount}{path}")).is_dir());
    let made = "the agent makes it when it starts".to_owned();
    finding(there, false, format!("cgroup {path}"), || made)
}

impl Machine {
    /// Looks at this machine.
    fn probe() -> Self {
        Self {
            kernel_config: kernel_config(),
            capabilities: effective_capabilities().unwrap_or(0),
            programs: PROGRAMS
                .iter()
                .map(|(program, ..)| *program)
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

    fn complete() -> Machine {
        Machine {
            kernel_config: Some(
                KERNEL_OPTIONS
                    .iter()
                    .map(|(name, ..)| ((*name).to_owned(), 'y'))
                    .collect(),
            ),
            capabilities: u64::MAX,
            programs: PROGRAMS.iter().map(|(program, ..)| *program).collect(),
            controllers: CONTROLLERS
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            kernel: ("6.1.0".to_owned(), 6, 1),
            ip_forward: true,
            firewalls: Vec::new(),
            swaps_volumes: false,
        }
    }

    fn check(spoil: impl FnOnce(&mut Machine), expect: Level, advice: &str) {
        let mut machine = complete();
        spoil(&mut machine);
        let found: Vec<_> = findings(&machine)
            .into_iter()
            .filter(|f| f.level != Level::Ok)
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].level, expect);
        assert!(found[0].advice.contains(advice), "{}", found[0].advice);
    }

    #[test]
    fn a_complete_machine_has_nothing_to_complain_about() {
        assert!(
            findings(&complete())
                .iter()
                .all(|finding| finding.level == Level::Ok)
        );
    }

    #[test]
    fn each_missing_thing_is_reported_with_what_to_do() {
        check(
            |m| m.programs.retain(|name| *name != "iptables-restore"),
            Level::Fail,
            "apt-get install iptables",
        );
        check(
            |m| m.firewalls.push(Firewall::Firewalld),
            Level::Warn,
            "--zone=trusted",
        );
        check(
            |m| m.firewalls.push(Firewall::Ufw),
            Level::Warn,
            "ufw route allow",
        );
        check(|m| m.swaps_volumes = true, Level::Warn, "swapoff -a");
        check(|m| m.capabilities &= !(1 << 24), Level::Warn, "clamps");
        check(|m| m.capabilities &= !(1 << 21), Level::Fail, "run as root");
        check(
            |m| m.controllers.retain(|name| name != "memory"),
            Level::Fail,
            "cgroup_enable=memory",
        );
        check(
            |m| m.kernel = ("4.19".to_owned(), 4, 19),
            Level::Fail,
            "5.6 or later",
        );
        check(
            |m| {
                m.kernel_config
                    .iter_mut()
                    .for_each(|config| config.retain(|name, _| name != "OVERLAY_FS"))
            },
            Level::Fail,
            "CONFIG_OVERLAY_FS",
        );
    }

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
