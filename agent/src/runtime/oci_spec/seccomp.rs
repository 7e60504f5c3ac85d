//! Seccomp profiles: Docker's format (with `archMap`, `includes`, `excludes`) resolved to the OCI's for one container.
//!
//! The default profile's content is that of containerd's `contrib/seccomp/seccomp_default.go`, as data beside this file.

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
}

static DEFAULT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("seccomp_default.json")).expect("the embedded profile is JSON: a test parses it")
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
    for name in ["defaultErrnoRet", "flags", "listenerPath", "listenerMetadata"] {
        if let Some(value) = profile.get(name) {
            out[name] = value.clone();
        }
    }
    let mapped = profile["archMap"].as_array().into_iter().flatten().find(|entry| entry["architecture"] == native);
    // With those of 32 bits that run here: libseccomp ends who calls by an architecture that is not listed.
    out["architectures"] = match mapped {
        Some(entry) => {
            let subordinate = entry["subArchitectures"].as_array().into_iter().flatten().cloned();
            Value::Array(std::iter::once(json!(native)).chain(subordinate).collect())
        }
        None => profile.get("architectures").cloned().unwrap_or_else(|| json!([native])),
    };
    let applies = |rule: &&Value| {
        let lists = |condition: &Value, name: &str, has: &dyn Fn(&str) -> bool| -> Option<bool> {
            let list = condition[name].as_array().filter(|list| !list.is_empty())?;
            Some(list.iter().filter_map(Value::as_str).any(has))
        };
        let has_cap = |cap: &str| caps.iter().any(|own| own == cap);
        let has_arch = |arch: &str| arch == short;
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        lists(includes, "caps", &has_cap).unwrap_or(true)
            && lists(includes, "arches", &has_arch).unwrap_or(true)
            && !lists(excludes, "caps", &has_cap).unwrap_or(false)
            && !lists(excludes, "arches", &has_arch).unwrap_or(false)
    };
    let rules = profile["syscalls"].as_array().into_iter().flatten().filter(applies).map(|rule| {
        let names = rule.get("names").cloned().unwrap_or_else(|| json!([rule["name"]]));
        let mut clean = json!({ "names": names, "action": rule["action"] });
        for name in ["errnoRet", "args"] {
            if let Some(value) =
                rule.get(name).filter(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
            {
                clean[name] = value.clone();
            }
        }
        clean
    });
    out["syscalls"] = Value::Array(rules.collect());
    out
}
