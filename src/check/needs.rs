//! What a node needs of its machine: the tables that `coracle check` goes by.

/// Kernel option, whether pods need it, what it is for.
pub(super) const KERNEL_OPTIONS: &[(&str, bool, &str)] = &[
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

/// The same where iptables keeps the rules.
pub(super) const IPTABLES_OPTIONS: &[(&str, bool, &str)] = &[
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
    ("NETFILTER_XT_TARGET_CT", false, "names without connections"),
];

/// The same where nftables does.
pub(super) const NFTABLES_OPTIONS: &[(&str, bool, &str)] = &[
    ("NF_TABLES", true, "rules over nftables"),
    ("NF_TABLES_IPV4", true, "rules over nftables"),
    ("NFT_NAT", true, "Service addresses"),
    ("NFT_MASQ", true, "what pods send out of the cluster"),
    ("NFT_CT", true, "connection tracking"),
    ("NFT_NUMGEN", true, "balancing over endpoints"),
    ("NFT_FIB_IPV4", true, "node ports"),
    ("NFT_REJECT_IPV4", true, "refusing what nobody serves"),
];

/// Programs that are needed where iptables keeps the rules, and their Debian package.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("iptables-restore", "iptables"),
    ("iptables-save", "iptables"),
];

/// The bit of `CAP_NET_ADMIN`.
pub(super) const NET_ADMIN: u32 = 12;

/// Capability, its bit, whether pods need it, what is lost without.
pub(super) const CAPABILITIES: &[(&str, u32, bool, &str)] = &[
    ("CAP_SYS_ADMIN", 21, true, "namespaces and mounts"),
    (
        "CAP_NET_ADMIN",
        NET_ADMIN,
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

/// Controller, whether pods need it.
pub(super) const CONTROLLERS: &[(&str, bool)] = &[
    ("cpu", true),
    ("memory", true),
    ("pids", false),
    ("cpuset", false),
];

/// The oldest kernel with `openat2`, which image unpacking needs.
pub(super) const KERNEL_MIN: (u32, u32) = (5, 6);

/// The oldest kernel whose tmpfs can be kept off the swap; distributions have it in older ones.
pub(super) const NOSWAP_MIN: (u32, u32) = (6, 4);
