//! A container's seccomp filter: compiled once for each profile, kept on disk, loaded as it is.
//!
//! libseccomp takes 10 ms to turn the default profile into a program; a node's pods nearly all have
//! the same one. What a profile means is the OCI runtime specification's, names of actions and
//! operators included. Filters that ask a listener (`SCMP_ACT_NOTIFY`) are refused: nobody would
//! listen.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    fs,
    hash::{Hash, Hasher},
    io::{Read, Seek},
    path::Path,
};

use anyhow::{Context, bail};
use libseccomp::{
    ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall,
    ScmpVersion,
};
use nix::{errno::Errno, sys::memfd};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompFilterFlag, LinuxSeccompOperator,
    LinuxSyscall,
};
use serde::Deserialize;
use serde_json::Value;

use super::Invalid;
use crate::sys::{self, INSTRUCTION_BYTES};

/// The kernel's `BPF_MAXINSNS`.
const MAX_INSTRUCTIONS: usize = 4096;

/// Programs kept on a node; the oldest goes first.
const MAX_KEPT: usize = 64;

/// A program for the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    /// `SECCOMP_FILTER_FLAG_*`.
    flags: u32,
    /// `struct sock_filter[]`.
    program: Vec<u8>,
}

impl Filter {
    /// The program for `profile`, from `kept` if that has it. What cannot be kept is compiled again
    /// the next time.
    pub(super) fn obtain(profile: &Value, kept: &Path) -> anyhow::Result<Self> {
        let key = key(profile)?;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let file = kept.join(format!("{:016x}", hasher.finish()));
        // The name is short and may be another's: the whole key is compared.
        if let Some(filter) = fs::read(&file)
            .ok()
            .and_then(|bytes| Self::decode(bytes.strip_prefix(&key[..])?))
        {
            return Ok(filter);
        }
        let filter =
            compile(&LinuxSeccomp::deserialize(profile).context("read the seccomp profile")?)?;
        let _ = keep(kept, &file, &[key, filter.encode()].concat());
        Ok(filter)
    }

    /// Flags, then the program.
    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.flags.to_le_bytes()[..], &self.program].concat()
    }

    /// `None` if these bytes are no program.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, program) = bytes.split_first_chunk()?;
        let sound = !program.is_empty()
            && program.len().is_multiple_of(INSTRUCTION_BYTES)
            && program.len() / INSTRUCTION_BYTES <= MAX_INSTRUCTIONS;
        sound.then(|| Self {
            flags: u32::from_le_bytes(*flags),
            program: program.to_vec(),
        })
    }

    /// Confines this thread and all that comes of it. Needs `no_new_privs` or CAP_SYS_ADMIN.
    pub(super) fn load(&self) -> Result<(), Errno> {
        sys::load_filter(self.flags, &self.program)
    }
}

/// Everything that a program depends on, and where it ends.
fn key(profile: &Value) -> anyhow::Result<Vec<u8>> {
    let version = ScmpVersion::current().context("ask libseccomp for its version")?;
    let profile = serde_json::to_vec(profile)?;
    let mut key = format!("{version} {} {}\n", std::env::consts::ARCH, profile.len()).into_bytes();
    key.extend(profile);
    Ok(key)
}

/// Written whole or not at all.
fn keep(directory: &Path, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut kept = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    if kept.len() >= MAX_KEPT {
        kept.sort_by_key(|entry| {
            entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok()
        });
        fs::remove_file(kept[0].path())?;
    }
    let temporary = file.with_extension(std::process::id().to_string());
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, file)
}

fn compile(profile: &LinuxSeccomp) -> anyhow::Result<Filter> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let mut context = ScmpFilterContext::new(default).context("begin a seccomp filter")?;
    // The process decides on its privileges itself.
    context.set_ctl_nnp(false)?;
    // A tree instead of a list: a system call costs its container a dozen comparisons, not
    // hundreds.
    context.set_ctl_optimize(2)?;
    for arch in profile.architectures().iter().flatten() {
        context
            .add_arch(architecture(*arch))
            .with_context(|| format!("add architecture {arch:?}"))?;
    }
    for rule in profile.syscalls().iter().flatten() {
        let action = action(rule.action(), rule.errno_ret())?;
        if action != default {
            add(&mut context, action, rule)?;
        }
    }
    let mut file = fs::File::from(memfd::memfd_create(
        "seccomp",
        memfd::MFdFlags::MFD_CLOEXEC,
    )?);
    context
        .export_bpf(&file)
        .context("compile the seccomp filter")?;
    file.rewind()?;
    let mut program = Vec::new();
    file.read_to_end(&mut program)?;
    if program.len() / INSTRUCTION_BYTES > MAX_INSTRUCTIONS {
        return Err(Invalid("seccomp profile is too long for the kernel".to_owned()).into());
    }
    Ok(Filter {
        flags: flags(profile),
        program,
    })
}

fn flags(profile: &LinuxSeccomp) -> u32 {
    let flag = |flag: &LinuxSeccompFilterFlag| match flag {
        LinuxSeccompFilterFlag::SeccompFilterFlagLog => libc::SECCOMP_FILTER_FLAG_LOG,
        LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
        // One thread, no listener.
        LinuxSeccompFilterFlag::SeccompFilterFlagTsync
        | LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 0,
    };
    // The kernel's flags are the lower 32 bits.
    profile
        .flags()
        .iter()
        .flatten()
        .map(flag)
        .fold(0, |all, one| all | u32::try_from(one).unwrap_or(0))
}

fn add(
    context: &mut ScmpFilterContext,
    action: ScmpAction,
    rule: &LinuxSyscall,
) -> anyhow::Result<()> {
    let comparisons: Vec<_> = rule
        .args()
        .iter()
        .flatten()
        .map(|argument| {
            let operator = operator(argument.op(), argument.value());
            // A mask is `value`, what is left of the argument under it `valueTwo`.
            let datum = match argument.op() {
                LinuxSeccompOperator::ScmpCmpMaskedEq => argument.value_two().unwrap_or(0),
                _ => argument.value(),
            };
            Ok((
                argument.index(),
                ScmpArgCompare::new(u32::try_from(argument.index())?, operator, datum),
            ))
        })
        .collect::<anyhow::Result<_>>()?;
    let indexes: BTreeSet<_> = comparisons.iter().map(|(index, _)| index).collect();
    let all: Vec<_> = comparisons
        .iter()
        .map(|(_, comparison)| *comparison)
        .collect();
    // libseccomp compares an argument once a rule: as runc, several comparisons of one argument are
    // several rules.
    let sets: Vec<&[ScmpArgCompare]> = if indexes.len() < all.len() {
        all.chunks(1).collect()
    } else {
        vec![&all[..]]
    };
    for name in rule.names() {
        // A name that this libseccomp does not know is no system call of this kernel's either.
        let Ok(call) = ScmpSyscall::from_name(name) else {
            continue;
        };
        for set in &sets {
            context
                .add_rule_conditional(action, call, set)
                .with_context(|| format!("add a rule for {name}"))?;
        }
    }
    Ok(())
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> anyhow::Result<ScmpAction> {
    let errno = i32::try_from(errno.unwrap_or(libc::EPERM.unsigned_abs()))
        .context("errno of a seccomp rule")?;
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => {
            ScmpAction::KillThread
        }
        LinuxSeccompAction::ScmpActKillProcess => ScmpAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => ScmpAction::Trap,
        LinuxSeccompAction::ScmpActErrno => ScmpAction::Errno(errno),
        LinuxSeccompAction::ScmpActTrace => {
            ScmpAction::Trace(u16::try_from(errno).context("datum of SCMP_ACT_TRACE")?)
        }
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActLog => ScmpAction::Log,
        LinuxSeccompAction::ScmpActNotify => {
            bail!(Invalid(
                "seccomp profile uses SCMP_ACT_NOTIFY, which nobody would answer".to_owned()
            ))
        }
    })
}

fn operator(operator: LinuxSeccompOperator, value: u64) -> ScmpCompareOp {
    match operator {
        LinuxSeccompOperator::ScmpCmpNe => ScmpCompareOp::NotEqual,
        LinuxSeccompOperator::ScmpCmpLt => ScmpCompareOp::Less,
        LinuxSeccompOperator::ScmpCmpLe => ScmpCompareOp::LessOrEqual,
        LinuxSeccompOperator::ScmpCmpEq => ScmpCompareOp::Equal,
        LinuxSeccompOperator::ScmpCmpGe => ScmpCompareOp::GreaterEqual,
        LinuxSeccompOperator::ScmpCmpGt => ScmpCompareOp::Greater,
        LinuxSeccompOperator::ScmpCmpMaskedEq => ScmpCompareOp::MaskedEqual(value),
    }
}

fn architecture(arch: Arch) -> ScmpArch {
    match arch {
        Arch::ScmpArchNative => ScmpArch::Native,
        Arch::ScmpArchX86 => ScmpArch::X86,
        Arch::ScmpArchX86_64 => ScmpArch::X8664,
        Arch::ScmpArchX32 => ScmpArch::X32,
        Arch::ScmpArchArm => ScmpArch::Arm,
        Arch::ScmpArchAarch64 => ScmpArch::Aarch64,
        Arch::ScmpArchMips => ScmpArch::Mips,
        Arch::ScmpArchMips64 => ScmpArch::Mips64,
        Arch::ScmpArchMips64n32 => ScmpArch::Mips64N32,
        Arch::ScmpArchMipsel => ScmpArch::Mipsel,
        Arch::ScmpArchMipsel64 => ScmpArch::Mipsel64,
        Arch::ScmpArchMipsel64n32 => ScmpArch::Mipsel64N32,
        Arch::ScmpArchPpc => ScmpArch::Ppc,
        Arch::ScmpArchPpc64 => ScmpArch::Ppc64,
        Arch::ScmpArchPpc64le => ScmpArch::Ppc64Le,
        Arch::ScmpArchS390 => ScmpArch::S390,
        Arch::ScmpArchS390x => ScmpArch::S390X,
        Arch::ScmpArchRiscv64 => ScmpArch::Riscv64,
        Arch::ScmpArchParisc => ScmpArch::Parisc,
        Arch::ScmpArchParisc64 => ScmpArch::Parisc64,
        Arch::ScmpArchLoongarch64 => ScmpArch::Loongarch64,
        Arch::ScmpArchM68k => ScmpArch::M68k,
        Arch::ScmpArchSh => ScmpArch::Sh,
        Arch::ScmpArchSheb => ScmpArch::Sheb,
    }
}

#[cfg(test)]
mod tests {
    use nix::{
        fcntl::OFlag,
        unistd::{getsid, pipe2},
    };
    use serde_json::json;

    use super::*;

    fn profile() -> Value {
        json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64"],
                "syscalls": [
            { "names": ["read", "write", "no_such_call"], "action": "SCMP_ACT_ALLOW" },
            { "names": ["clone"], "action": "SCMP_ACT_ALLOW",
              "args": [{ "index": 0, "value": 0x7e02_0000_u32, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }] },
            { "names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [
                { "index": 0, "value": 0, "op": "SCMP_CMP_EQ" }, { "index": 0, "value": 8, "op": "SCMP_CMP_EQ" }] },
        ] })
    }

    #[test]
    fn second_time_comes_from_disk() {
        let kept = tempfile::tempdir().unwrap();
        let compiled = Filter::obtain(&profile(), kept.path()).unwrap();
        let file = fs::read_dir(kept.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        // Marked, to know it again.
        let mut bytes = fs::read(&file).unwrap();
        let last = bytes.len() - INSTRUCTION_BYTES..;
        bytes[last].fill(7);
        fs::write(&file, bytes).unwrap();
        let read = Filter::obtain(&profile(), kept.path()).unwrap();
        assert_eq!(read.program.len(), compiled.program.len());
        assert!(read.program.ends_with(&[7; INSTRUCTION_BYTES]));
    }

    #[test]
    fn file_of_another_profile_or_damaged_is_not_used() {
        let kept = tempfile::tempdir().unwrap();
        let compiled = Filter::obtain(&profile(), kept.path()).unwrap();
        let file = fs::read_dir(kept.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let whole = fs::read(&file).unwrap();
        let mut other = whole.clone();
        other[whole.iter().position(|byte| *byte == b'\n').unwrap() + 5] ^= 1;
        for bytes in [other, whole[..whole.len() - 1].to_vec(), Vec::new()] {
            fs::write(&file, bytes).unwrap();
            assert_eq!(Filter::obtain(&profile(), kept.path()).unwrap(), compiled);
        }
    }

    #[test]
    fn kept_programs_are_few() {
        let kept = tempfile::tempdir().unwrap();
        for errno in 1..u32::try_from(MAX_KEPT).unwrap() + 10 {
            let profile = json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno });
            Filter::obtain(&profile, kept.path()).unwrap();
        }
        assert_eq!(fs::read_dir(kept.path()).unwrap().count(), MAX_KEPT);
    }

    #[test]
    fn listener_is_refused() {
        for profile in [
            json!({ "defaultAction": "SCMP_ACT_NOTIFY" }),
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mount"], "action": "SCMP_ACT_NOTIFY" }] }),
        ] {
            let error = Filter::obtain(&profile, tempfile::tempdir().unwrap().path()).unwrap_err();
            assert!(error.is::<Invalid>(), "{error:#}");
        }
    }

    /// In a thread of its own: a filter cannot be taken off again.
    #[test]
    fn loaded_filter_decides() {
        let kept = tempfile::tempdir().unwrap();
        let deny = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            { "names": ["getsid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99 },
            { "names": ["pipe2"], "action": "SCMP_ACT_ERRNO", "errnoRet": 98,
              "args": [{ "index": 1, "value": 0x80800, "valueTwo": 0x800, "op": "SCMP_CMP_MASKED_EQ" }] } ] });
        let filter = Filter::obtain(&deny, kept.path()).unwrap();
        let outcome = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            filter.load().unwrap();
            let pipe = |flags| pipe2(flags).map(drop);
            let (alone, both) = (
                OFlag::O_NONBLOCK | OFlag::O_DIRECT,
                OFlag::O_NONBLOCK | OFlag::O_CLOEXEC,
            );
            (
                getsid(None).map_err(|errno| errno as i32),
                pipe(alone).map_err(|errno| errno as i32),
                pipe(both),
            )
        })
        .join()
        .unwrap();
        assert_eq!(outcome, (Err(99), Err(98), Ok(())));
    }
}
