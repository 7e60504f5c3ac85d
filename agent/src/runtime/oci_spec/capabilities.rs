//! A container's capabilities: the default set of CRI runtimes, what the pod adds, what it drops.
//! Pure.

use super::SpecError;
use crate::runtime::SecurityContext;

/// As containerd's and Docker's default.
const DEFAULT: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// All of Linux 5.9 and later, by number.
const ALL: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The bounding set, as `CAP_...`, in order of number. What the node itself lacks is left out when
/// the spec is made real ([`available`]). `MKNOD` is harmless: the helper sees to it that what is
/// made cannot be opened.
pub(super) fn compute(security: &SecurityContext) -> Result<Vec<String>, SpecError> {
    let normal = |name: &String| {
        let upper = name.to_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" {
            return Ok("ALL");
        }
        ALL.iter()
            .find(|known| **known == bare)
            .copied()
            .ok_or_else(|| SpecError::UnknownCapability(name.clone()))
    };
    let add = security
        .cap_add
        .iter()
        .map(normal)
        .collect::<Result<Vec<_>, _>>()?;
    let drop = security
        .cap_drop
        .iter()
        .map(normal)
        .collect::<Result<Vec<_>, _>>()?;
    let everything = security.privileged || add.contains(&"ALL");
    let nothing = drop.contains(&"ALL");
    let granted = |name: &&&str| {
        let name: &str = name;
        if !available(name) {
            return false;
        }
        if security.privileged {
            return true;
        }
        // Without ALL, and one added: that one alone. What is dropped by name is gone in any case.
        let by_default = DEFAULT.contains(&name) && !nothing;
        (everything || by_default || add.contains(&name)) && !drop.contains(&name)
    };
    Ok(ALL
        .iter()
        .filter(granted)
        .map(|name| format!("CAP_{name}"))
        .collect())
}

/// Whether this process has it to give: asking the kernel for more fails the whole container.
fn available(name: &str) -> bool {
    static BOUNDING: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .filter(|mask| *mask != 0)
            .unwrap_or(u64::MAX)
    });
    ALL.iter()
        .position(|known| *known == name)
        .is_some_and(|number| *BOUNDING >> number & 1 == 1)
}
