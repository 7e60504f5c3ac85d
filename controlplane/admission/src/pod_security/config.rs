//! What PodSecurity is told: the policy of namespaces whose labels say nothing, and whom no policy
//! is held against. A `PodSecurityConfiguration` of `pod-security.admission.config.k8s.io/v1`.
//!
//! Source: `k8s.io/pod-security-admission/admission/api` at v1.37.

use std::collections::HashSet;

use coracle_api::{
    name::{dns_label_errors, dns_subdomain_errors},
    status::FieldErrors,
};
use serde::Deserialize;
use serde_json::Value;

use super::level::{Level, LevelVersion, Policy, Version};
use crate::config::file::{self, AdmissionConfigError};

/// What the plugin is told.
#[derive(Debug, Clone)]
pub(crate) struct PodSecurityConfig {
    pub(crate) defaults: Policy,
    pub(crate) exemptions: Exemptions,
}

/// Who is let in unseen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Exemptions {
    #[serde(default)]
    usernames: Vec<String>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    runtime_classes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    exemptions: Exemptions,
}

/// Empty is left out.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Defaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

impl Default for PodSecurityConfig {
    fn default() -> Self {
        Self {
            defaults: Policy::PRIVILEGED,
            exemptions: Exemptions::default(),
        }
    }
}

impl PodSecurityConfig {
    /// # Errors
    /// What is wrong with which field.
    pub(crate) fn of(value: Value) -> Result<Self, AdmissionConfigError> {
        let version = "pod-security.admission.config.k8s.io/v1";
        let file: File = file::read_of(&[(version, "PodSecurityConfiguration")], value)?;
        let mut errors = FieldErrors::default();
        let defaults = file.defaults;
        let mut asked = |name: &str, level: &str, version: &str| LevelVersion {
            level: read(&mut errors, name, level, Level::Privileged, Level::parse),
            version: {
                let name = format!("{name}-version");
                read(&mut errors, &name, version, Version::Latest, Version::parse)
            },
        };
        let defaults = Policy {
            enforce: asked("enforce", &defaults.enforce, &defaults.enforce_version),
            warn: asked("warn", &defaults.warn, &defaults.warn_version),
            audit: asked("audit", &defaults.audit, &defaults.audit_version),
        };
        file.exemptions.check(&mut errors);
        if !errors.is_empty() {
            return Err(AdmissionConfigError(errors.to_string()));
        }
        Ok(Self {
            defaults,
            exemptions: file.exemptions,
        })
    }
}

impl Exemptions {
    pub(crate) fn has_user(&self, name: &str) -> bool {
        self.usernames.iter().any(|one| one == name)
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|one| one == name)
    }

    pub(crate) fn has_runtime_class(&self, name: &str) -> bool {
        self.runtime_classes.iter().any(|one| one == name)
    }

    fn check(&self, errors: &mut FieldErrors) {
        each(errors, "namespaces", &self.namespaces, |name| {
            dns_label_errors(name).join(", ")
        });
        each(errors, "runtimeClasses", &self.runtime_classes, |name| {
            dns_subdomain_errors(name).join(", ")
        });
        each(errors, "usernames", &self.usernames, |_| String::new());
    }
}

fn each(errors: &mut FieldErrors, list: &str, names: &[String], why: impl Fn(&str) -> String) {
    let mut seen = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        let (path, why) = (format!("exemptions.{list}[{index}]"), why(name));
        if !why.is_empty() {
            errors.invalid(path, &name.as_str().into(), why);
        } else if name.is_empty() {
            errors.required(path, "");
        } else if !seen.insert(name) {
            errors.duplicate(path, &name.as_str().into());
        }
    }
}

fn read<T>(
    errors: &mut FieldErrors,
    name: &str,
    text: &str,
    unsaid: T,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> T {
    if text.is_empty() {
        return unsaid;
    }
    parse(text).unwrap_or_else(|why| {
        errors.invalid(format!("defaults.{name}"), &text.into(), why);
        unsaid
    })
}
