//! Seccomp profiles: Docker's format (with `archMap`, `includes`, `excludes`) resolved to the OCI's
//! for one container.
//!
//! The default profile's content is that of containerd's `contrib/seccomp/seccomp_default.go`, as
//! data beside this file.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not JSON.
    #[error("parse")]
    Parse(#[from] serde_json::Error),
    /// Not an object, or without `defaultAction`.
    #[error("no defaultAction")]
    NoDefaultAction,
    /// A rule for kernels from a version on that is none.
    #[error("minKernel {0:?}: expected MAJOR.MINOR, such as \"4.8\"")]
    MinKernel(String),
}

static DEFAULT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("seccomp_default.json"))
        .expect("the embedded profile is JSON: a test parses it")
});

/// `RuntimeDefault` for a container with these capabilities (`CAP_...`).
#[must_use]
pub fn runtime_default(caps: &[String]) -> Value {
    resolve(&DEFAULT, caps)
}

/// A `Localhost` profile.
///
/// # Errors
/// [`ProfileError`]: permanent until the file changes.
pub fn from_profile(text: &str, caps: &[String]) -> Result<Value, ProfileError> {
    let profile: Value = serde_json::from_str(text)?;
    if !profile["defaultAction"].is_string() {
        return Err(ProfileError::NoDefaultAction);
    }
    for rule in profile["syscalls"].as_array().into_iter().flatten() {
        for wanted in [
            &rule["includes"]["minKernel"],
            &rule["excludes"]["minKernel"],
        ] {
            if !wanted.is_null() && wanted.as_str().and_then(major_minor).is_none() {
                return Err(ProfileError::MinKernel(
                    wanted.as_str().unwrap_or_default().to_owned(),
                ));
            }
        }
    }
    Ok(resolve(&profile, caps))
}

/// Names of this machine's architecture: in `archMap`, in `includes.arches`.
fn architecture() -> (&'static str, &'static str) {
    match std::env::consts::ARCH {
        "aarch64" => ("SCMP_ARCH_AARCH64", "arm64"),
        _ => ("SCMP_ARCH_X86_64", "amd64"),
    }
}

fn resolve(profile: &Value, caps: &[String]) -> Value {
    let (native, short) = architecture();
    let mut out = json!({ "defaultAction": profile["defaultAction"] });
    for name in [
        "defaultErrnoRet",
        "flags",
        "listenerPath",
        "listenerMetadata",
    ] {
        if let Some(value) = profile.get(name) {
            out[name] = value.clone();
        }
    }
    let mapped = profile["archMap"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["architecture"] == native);
    // With those of 32 bits that run here: libseccomp ends who calls by an architecture that is not
    // listed.
    out["architectures"] = match mapped {
        Some(entry) => {
            let subordinate = entry["subArchitectures"]
                .as_array()
                .into_iter()
                .flatten()
                .cloned();
            Value::Array(std::iter::once(json!(native)).chain(subordinate).collect())
        }
        None => profile
            .get("architectures")
            .cloned()
            .unwrap_or_else(|| json!([native])),
    };
    let machine = Machine {
        caps,
        arch: short,
        kernel: *KERNEL,
    };
    let rules = profile["syscalls"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|rule| machine.has(rule))
        .map(|rule| {
            let names = rule
                .get("names")
                .cloned()
                .unwrap_or_else(|| json!([rule["name"]]));
            let mut clean = json!({ "names": names, "action": rule["action"] });
            for name in ["errnoRet", "args"] {
                if let Some(value) = rule.get(name).filter(|value| {
                    !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
                }) {
                    clean[name] = value.clone();
                }
            }
            clean
        });
    out["syscalls"] = Value::Array(rules.collect());
    out
}

/// The running kernel's version; the oldest where it cannot be told.
static KERNEL: LazyLock<(u32, u32)> = LazyLock::new(|| {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    major_minor(release.trim()).unwrap_or_default()
});

/// `6.1.0-18-amd64` is (6, 1).
fn major_minor(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest
        .split(|character: char| !character.is_ascii_digit())
        .next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What rules ask for.
struct Machine<'a> {
    /// Of the container.
    caps: &'a [String],
    /// As `includes.arches` names it.
    arch: &'a str,
    kernel: (u32, u32),
}

impl Machine<'_> {
    /// Whether a rule is part of the profile here, as Docker reads it: `includes` wants every
    /// capability and one of the architectures, `excludes` none of either.
    fn has(&self, rule: &Value) -> bool {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let mut arches = list(includes, "arches").peekable();
        list(includes, "caps").all(|cap| self.has_cap(cap))
            && (arches.peek().is_none() || arches.any(|arch| arch == self.arch))
            && self.is_from(&includes["minKernel"]).unwrap_or(true)
            && !list(excludes, "caps").any(|cap| self.has_cap(cap))
            && !list(excludes, "arches").any(|arch| arch == self.arch)
            && !self.is_from(&excludes["minKernel"]).unwrap_or(false)
    }

    fn has_cap(&self, cap: &str) -> bool {
        self.caps.iter().any(|own| own == cap)
    }

    /// Whether the kernel is of this version or newer. `None`: no version is asked for.
    fn is_from(&self, version: &Value) -> Option<bool> {
        version
            .as_str()
            .and_then(major_minor)
            .map(|wanted| self.kernel >= wanted)
    }
}

fn list<'a>(condition: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    condition[name]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}
