//! What EventRateLimit is told.

use coracle_api::status::FieldErrors;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::file::{self, AdmissionConfigError};

/// What has a bucket of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitType {
    /// This server, all events together.
    Server,
    /// A namespace.
    Namespace,
    /// Who sends events.
    User,
    /// What reports something and what it is about.
    SourceAndObject,
}

impl LimitType {
    const ALL: [Self; 4] = [
        Self::Namespace,
        Self::Server,
        Self::SourceAndObject,
        Self::User,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }
}

/// One limit.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    pub(crate) of: LimitType,
    /// Events a second.
    pub(crate) qps: u32,
    /// Events at once.
    pub(crate) burst: u32,
    /// Buckets that are kept; 0 for the usual number.
    pub(crate) cache_size: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    limits: Vec<LimitEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct LimitEntry {
    #[serde(rename = "type")]
    of: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

/// # Errors
/// What is wrong with which field. A configuration without a limit is none.
pub(crate) fn limits(value: Value) -> Result<Vec<Limit>, AdmissionConfigError> {
    let version = "eventratelimit.admission.k8s.io/v1alpha1";
    let file: File = file::read_of(&[(version, "Configuration")], value)?;
    let mut errors = FieldErrors::default();
    if file.limits.is_empty() {
        errors.invalid("limits", &json!([]), "must not be empty");
    }
    let entries = file.limits.iter().enumerate();
    let limits: Vec<Limit> = entries
        .filter_map(|(index, entry)| limit(entry, &format!("limits[{index}]"), &mut errors))
        .collect();
    if errors.is_empty() {
        Ok(limits)
    } else {
        Err(AdmissionConfigError(errors.to_string()))
    }
}

fn limit(entry: &LimitEntry, path: &str, errors: &mut FieldErrors) -> Option<Limit> {
    let of = LimitType::ALL
        .into_iter()
        .find(|one| one.as_str() == entry.of);
    if of.is_none() {
        let names = LimitType::ALL.map(LimitType::as_str);
        errors.not_supported(format!("{path}.type"), &json!(entry.of), &names);
    }
    for (field, value) in [("burst", entry.burst), ("qps", entry.qps)] {
        if value <= 0 {
            errors.invalid(format!("{path}.{field}"), &json!(value), "must be positive");
        }
    }
    if entry.cache_size < 0 && of != Some(LimitType::Server) {
        let path = format!("{path}.cacheSize");
        errors.invalid(path, &json!(entry.cache_size), "must not be negative");
    }
    Some(Limit {
        of: of?,
        qps: u32::try_from(entry.qps).ok()?,
        burst: u32::try_from(entry.burst).ok()?,
        cache_size: usize::try_from(entry.cache_size.max(0)).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(limits_: Value) -> Result<usize, String> {
        let value = json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
            "kind": "Configuration", "limits": limits_});
        limits(value)
            .map(|limits| limits.len())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_type_is_read() {
        let all = ["Server", "Namespace", "User", "SourceAndObject"];
        let all = all.map(|of| json!({"type": of, "qps": 1, "burst": 2, "cacheSize": 3}));
        assert_eq!(told(json!(all)), Ok(4));
        let server = json!([{"type": "Server", "qps": 1, "burst": 1, "cacheSize": -1}]);
        assert_eq!(told(server), Ok(1), "it has one bucket");
    }

    #[test]
    fn what_is_no_limit_is_told_with_its_place() {
        for (limits, expect) in [
            (json!([]), "limits: Invalid value: []: must not be empty"),
            (
                json!([{"type": "Foo", "qps": 1, "burst": 1}]),
                "limits[0].type: Unsupported value: \"Foo\": supported values: \"Namespace\", \"Server\", \
                 \"SourceAndObject\", \"User\"",
            ),
            (
                json!([{"type": "User", "qps": 1, "burst": 0}]),
                "limits[0].burst: Invalid value: 0: must be positive",
            ),
            (
                json!([{"type": "User", "qps": -1, "burst": 1}]),
                "limits[0].qps: Invalid value: -1: must be positive",
            ),
            (
                json!([{"type": "User", "qps": 1, "burst": 1, "cacheSize": -1}]),
                "limits[0].cacheSize: Invalid value: -1: must not be negative",
            ),
        ] {
            let error = told(limits).unwrap_err();
            assert!(error.contains(expect), "{error}\n{expect}");
        }
    }
}
