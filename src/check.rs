//! `coracle check`: what a node needs of its machine, whether it is there, and what to do if not.
//!
//! [`Machine::probe`] looks at files and effective capabilities, and asks the kernel whether it
//! takes nftables' tables, which changes nothing; [`findings`] judges by the tables of [`needs`],
//! purely, for the engine that `--proxy-mode` would choose ([`engine`]).

mod engine;
#[cfg(feature = "etcd")]
mod etcd;
mod machine;
mod needs;

use std::path::Path;

use anyhow::anyhow;
use coracle_agent::config::ProxyMode;

use self::{
    machine::{Firewall, Machine},
    needs::{CAPABILITIES, CONTROLLERS, KERNEL_MIN, KERNEL_OPTIONS, NOSWAP_MIN},
};
use crate::{
    Failure,
    cli::{CheckArgs, StoreArgs},
    say,
};

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

/// Carries out the command: prints the report; fails if pods cannot run here.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let machine = Machine::probe();
    let mut findings = findings(&machine, args.proxy_mode);
    findings.push(cgroup_root(&args.cgroup_root));
    findings.extend(store(&args.store)?);
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
            "{n} of {} things that are needed are missing: see FAIL above",
            findings.len()
        )
        .into()),
    }
}

#[cfg(feature = "etcd")]
fn store(args: &StoreArgs) -> Result<Vec<Finding>, Failure> {
    // For what the flags say against each other, whatever the engine.
    crate::store::engine(&args.store, &args.etcd).map_err(Failure::Usage)?;
    let crate::cli::Store::Etcd(urls) = &args.store else {
        return Ok(Vec::new());
    };
    let config = crate::store::etcd_config(urls, &args.etcd).map_err(Failure::Usage)?;
    Ok(etcd::findings(&config)?)
}

#[cfg(not(feature = "etcd"))]
fn store(args: &StoreArgs) -> Result<Vec<Finding>, Failure> {
    crate::store::engine(&args.store, &args.etcd).map_err(Failure::Usage)?;
    Ok(Vec::new())
}

fn findings(machine: &Machine, mode: ProxyMode) -> Vec<Finding> {
    let mut findings = vec![kernel_version(machine)];
    findings.extend(
        KERNEL_OPTIONS
            .iter()
            .map(|option| kernel_option(machine, option)),
    );
    findings.extend(engine::findings(machine, mode));
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
    findings.extend(machine.firewalls.iter().copied().map(firewall));
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

fn firewall(firewall: Firewall) -> Finding {
    let (what, advice) = match firewall {
        Firewall::Ufw => (
            "firewall ufw",
            "its rules come before those that let pods through: ufw route allow in on coracle0; ufw route allow out on \
             coracle0; ufw allow in on coracle0; between nodes: ufw allow 4789/udp; ufw allow 10250/tcp; to servers: ufw allow 6443/tcp",
        ),
        Firewall::Firewalld => (
            "firewall firewalld",
            "it keeps pods from each other, from names and from everybody else, which rules of ours cannot overrule: firewall-cmd \
             --permanent --zone=trusted --add-interface=coracle0 --add-interface=coracle-vxlan; between nodes: firewall-cmd \
             --permanent --add-port=4789/udp --add-port=10250/tcp; to servers: firewall-cmd --permanent --add-port=6443/tcp; \
             then firewall-cmd --reload",
        ),
    };
    finding(false, false, what.to_owned(), || advice.to_owned())
}

fn cgroup_root(path: &str) -> Finding {
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
    let there = mounts
        .iter()
        .any(|mount| Path::new(&format!("{mount}{path}")).is_dir());
    let made = "the agent makes it when it starts".to_owned();
    finding(there, false, format!("cgroup {path}"), || made)
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::needs::{IPTABLES_OPTIONS, NFTABLES_OPTIONS, PROGRAMS};

    pub(super) fn complete() -> Machine {
        let options = [KERNEL_OPTIONS, IPTABLES_OPTIONS, NFTABLES_OPTIONS];
        Machine {
            nftables: Some(Ok(())),
            has_rules_in_iptables: false,
            kernel_config: Some(
                options
                    .concat()
                    .iter()
                    .map(|(name, ..)| ((*name).to_owned(), 'y'))
                    .collect(),
            ),
            capabilities: u64::MAX,
            programs: PROGRAMS.iter().map(|(program, _)| *program).collect(),
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
        let found: Vec<_> = findings(&machine, ProxyMode::Auto)
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
            findings(&complete(), ProxyMode::Auto)
                .iter()
                .all(|finding| finding.level == Level::Ok)
        );
    }

    #[test]
    fn each_missing_thing_is_reported_with_what_to_do() {
        check(
            |m| m.firewalls.push(Firewall::Firewalld),
            Level::Warn,
            "--zone=trusted --add-interface=coracle0 --add-interface=coracle-vxlan; between nodes",
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
}
