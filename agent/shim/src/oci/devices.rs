//! Which device files a container may open, on the unified cgroup hierarchy: a program attached to
//! its cgroup.
//!
//! libcontainer sets device rules on the old hierarchies only. Without any, whoever may make a
//! device node (`MKNOD`) or finds one in a volume has the node's disks. Source: runc
//! `libcontainer/cgroups/devices`, `linux/bpf.h`.

use std::{fs, os::fd::AsFd, path::Path};

use anyhow::{Context, bail};
use coracle_bpf::{Instruction, ProgramType};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Spec};

use crate::shim::cgroup;

/// `BPF_DEVCG_ACC_*`.
const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const EVERYTHING: i32 = MKNOD | READ | WRITE;
/// `BPF_DEVCG_DEV_*`.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// What is allowed; all that no rule allows is not. `None` is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    kind: Option<i32>,
    access: i32,
    major: Option<i32>,
    minor: Option<i32>,
}

/// Attaches the filter to the container's cgroup, before anything of the image runs in there.
pub(super) fn guard(spec: &Spec) -> anyhow::Result<()> {
    let Some(linux) = spec.linux() else {
        return Ok(());
    };
    let mounts =
        cgroup::mounts(&fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?);
    if mounts
        .iter()
        .any(|(_, options)| options.split(',').any(|option| option == "devices"))
    {
        // Of the old hierarchies, where libcontainer has written the rules.
        return Ok(());
    }
    let list = linux
        .resources()
        .as_ref()
        .and_then(|resources| resources.devices().as_deref())
        .unwrap_or_default();
    let Some(rules) = plan(list)? else {
        return Ok(());
    };
    let (root, _) = mounts
        .iter()
        .find(|(_, options)| options.is_empty())
        .context("no cgroup hierarchy is mounted")?;
    let path = linux
        .cgroups_path()
        .as_deref()
        .context("spec without a cgroup")?;
    attach(&root.join(path.strip_prefix("/").unwrap_or(path)), &rules)
}

fn attach(directory: &Path, rules: &[Rule]) -> anyhow::Result<()> {
    let filter = coracle_bpf::load(ProgramType::CgroupDevice, "coracle_device", &program(rules))
        .context("load the device filter")?;
    let cgroup = fs::File::open(directory)
        .with_context(|| format!("open cgroup {}", directory.display()))?;
    coracle_bpf::attach_device_filter(cgroup.as_fd(), filter.as_fd())
        .with_context(|| format!("attach the device filter to {}", directory.display()))
}

/// The rules of a spec, where later ones win. `None`: everything is allowed.
fn plan(list: &[LinuxDeviceCgroup]) -> anyhow::Result<Option<Vec<Rule>>> {
    let mut rules = Some(Vec::new());
    for device in list {
        let rule = rule(device);
        let whole = rule.kind.is_none()
            && rule.access == EVERYTHING
            && rule.major.is_none()
            && rule.minor.is_none();
        match (device.allow(), whole) {
            (true, true) => rules = None,
            (false, true) => rules = Some(Vec::new()),
            (true, false) => {
                if let Some(rules) = &mut rules {
                    rules.push(rule);
                }
            }
            // The agent writes none: what a program of allowances cannot say is refused rather than
            // dropped.
            (false, false) => bail!("device rule {device:?} takes back a part of what is allowed"),
        }
    }
    Ok(rules)
}

fn rule(device: &LinuxDeviceCgroup) -> Rule {
    let letters = device.access().as_deref().unwrap_or("rwm");
    let bit = |letter, bit| if letters.contains(letter) { bit } else { 0 };
    let number = |value: Option<i64>| {
        value
            .and_then(|value| i32::try_from(value).ok())
            .filter(|value| *value >= 0)
    };
    Rule {
        kind: match device.typ() {
            Some(LinuxDeviceType::B) => Some(BLOCK),
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
            _ => None,
        },
        access: bit('m', MKNOD) | bit('r', READ) | bit('w', WRITE),
        major: number(device.major()),
        minor: number(device.minor()),
    }
}

/// Of `struct bpf_cgroup_dev_ctx`: r2 becomes the access, r3 the kind, r4 and r5 the numbers. Rule
/// after rule; 1 is yes.
fn program(rules: &[Rule]) -> Vec<Instruction> {
    let plain = |code, registers, offset, immediate| Instruction {
        code,
        registers,
        offset,
        immediate,
    };
    let mut program = vec![
        plain(0x61, 0x12, 0, 0),      // w2 = access << 16 | kind
        plain(0xbc, 0x23, 0, 0),      // w3 = w2
        plain(0x54, 0x03, 0, 0xffff), // w3 &= 0xffff
        plain(0x74, 0x02, 0, 16),     // w2 >>= 16
        plain(0x61, 0x14, 4, 0),      // w4 = major
        plain(0x61, 0x15, 8, 0),      // w5 = minor
    ];
    for rule in rules {
        // Compared one after the other; the first that differs leads to the next rule.
        let mut tests = Vec::new();
        tests.extend(rule.kind.map(|kind| (0x03, kind)));
        if rule.access != EVERYTHING {
            tests.push((0x06, 0));
        }
        tests.extend(rule.major.map(|major| (0x04, major)));
        tests.extend(rule.minor.map(|minor| (0x05, minor)));
        if rule.access != EVERYTHING {
            program.push(plain(0xbc, 0x26, 0, 0)); // w6 = w2
            program.push(plain(0x54, 0x06, 0, !rule.access)); // w6 &= what is not allowed
        }
        let count = tests.len();
        for (index, (register, value)) in tests.into_iter().enumerate() {
            // Over the rest of the tests, the answer and the exit.
            let over = i16::try_from(count - index - 1 + 2).expect("at most four tests");
            program.push(plain(0x56, register, over, value)); // if w != value goto next rule
        }
        program.push(plain(0xb7, 0, 0, 1));
        program.push(plain(0x95, 0, 0, 0));
    }
    program.push(plain(0xb7, 0, 0, 0));
    program.push(plain(0x95, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests;
