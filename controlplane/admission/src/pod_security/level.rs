//! Levels of the Pod Security Standards, their versions, and what the labels of a namespace say of
//! them.
//!
//! Source: `k8s.io/pod-security-admission/api` at v1.37.

use std::fmt;

use coracle_api::status::FieldErrors;

/// What each label of Pod Security begins with, and each of its annotations for the audit.
pub(crate) const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much is asked of a pod: each asks for all that the ones before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// Of which release of Kubernetes the standards are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// `v1.x`, also of releases to come: theirs are the newest that are known.
    Minor(u64),
    /// The newest.
    Latest,
}

/// Such as `restricted:v1.30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelVersion {
    pub(crate) level: Level,
    pub(crate) version: Version,
}

/// What a namespace asks of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// What a pod has to be to be let in.
    pub(crate) enforce: LevelVersion,
    /// What it has to be not to be put on record.
    pub(crate) audit: LevelVersion,
    /// What it has to be for its writer to be told nothing.
    pub(crate) warn: LevelVersion,
}

impl Level {
    /// # Errors
    /// What it must be.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Version {
    /// # Errors
    /// What it must be.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").filter(|minor| {
            let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
            is_number && (*minor == "0" || !minor.starts_with('0'))
        });
        minor
            .and_then(|minor| minor.parse().ok())
            .map(Self::Minor)
            .ok_or("must be \"latest\" or \"v1.x\"")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

impl LevelVersion {
    /// What asks for nothing.
    pub(crate) const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };

    fn is_as_strict_as(&self, other: &Self) -> bool {
        let asks_nothing = self.level == Level::Privileged && other.level == Level::Privileged;
        asks_nothing || self == other
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

impl Policy {
    /// What asks for nothing.
    pub(crate) const PRIVILEGED: Self = Self {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    /// Of the labels of a namespace, and `defaults` where they say nothing. What cannot be read is
    /// an error, and stands for the strictest where it is enforced, for nothing elsewhere.
    pub(crate) fn of_labels<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: &Self,
    ) -> (Self, FieldErrors) {
        let (mut policy, mut errors) = (*defaults, FieldErrors::default());
        let mut read = Labels {
            label: &label,
            errors: &mut errors,
        };
        let enforced = read.level("enforce");
        if let Some(level) = enforced {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        read.version("enforce-version", &mut policy.enforce);
        if let Some(level) = read.level("audit") {
            policy.audit.level = level.unwrap_or(Level::Privileged);
        }
        read.version("audit-version", &mut policy.audit);
        let warned = read.level("warn");
        if let Some(level) = warned {
            policy.warn.level = level.unwrap_or(Level::Privileged);
        }
        let has_warn_version = read.version("warn-version", &mut policy.warn);
        // Whoever writes what makes pods that will be refused is told so by what refuses them.
        if warned.is_none()
            && let Some(Some(level)) = enforced
            && level > policy.warn.level
        {
            policy.warn.level = level;
            if !has_warn_version {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether nothing is asked of any pod.
    pub(crate) fn is_privileged(&self) -> bool {
        self.asks_nothing_but_enforced() && self.enforce.level == Level::Privileged
    }

    /// Whether nothing is asked of what makes pods.
    pub(crate) fn asks_nothing_but_enforced(&self) -> bool {
        self.audit.level == Level::Privileged && self.warn.level == Level::Privileged
    }

    /// Whether both ask for the same.
    pub(crate) fn is_as_strict_as(&self, other: &Self) -> bool {
        self.enforce.is_as_strict_as(&other.enforce)
            && self.audit.is_as_strict_as(&other.audit)
            && self.warn.is_as_strict_as(&other.warn)
    }
}

/// Labels as they are read, and what is wrong with them.
struct Labels<'l, 'e, F> {
    label: &'l F,
    errors: &'e mut FieldErrors,
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Labels<'_, '_, F> {
    /// `Some(None)` of what cannot be read.
    fn level(&mut self, name: &str) -> Option<Option<Level>> {
        self.read(name, Level::parse)
    }

    /// Whether the label is there.
    fn version(&mut self, name: &str, into: &mut LevelVersion) -> bool {
        let version = self.read(name, Version::parse);
        if let Some(version) = version {
            into.version = version.unwrap_or(Version::Latest);
        }
        version.is_some()
    }

    fn read<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<Option<T>> {
        let label = format!("{PREFIX}{name}");
        let text = (self.label)(&label)?;
        let parsed = parse(text);
        if let Err(why) = &parsed {
            let path = format!("metadata.labels[{label}]");
            self.errors.invalid(path, &text.into(), *why);
        }
        Some(parsed.ok())
    }
}
