//! Names of kinds and resources. Which of them are served is not known here: that is the
//! registry's.

use std::fmt;

/// A kind in a group and version. The core group is the empty string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gvk {
    /// API group, `""` for core.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

impl Gvk {
    /// A kind from its three parts.
    #[must_use]
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// A kind from an `apiVersion` (`v1`, `apps/v1`) and a kind.
    #[must_use]
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }

    /// What stands in `apiVersion`: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Kind and group as error messages name them: `Pod`, `Deployment.apps`.
    #[must_use]
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }
}

impl fmt::Display for Gvk {
    /// As Go prints it: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource in a group, without version: what error messages and authorization speak of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupResource {
    /// API group, `""` for core.
    pub group: String,
    /// Plural resource name, such as `pods`.
    pub resource: String,
}

impl GroupResource {
    /// A resource from its two parts.
    #[must_use]
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_as_upstream_prints_them() {
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(
            GroupResource::new("apps", "deployments").to_string(),
            "deployments.apps"
        );
        assert_eq!(
            Gvk::from_api_version("apps/v1", "Deployment").group_kind(),
            "Deployment.apps"
        );
        assert_eq!(Gvk::from_api_version("v1", "Pod").api_version(), "v1");
        assert_eq!(Gvk::new("", "v1", "Pod").to_string(), "/v1, Kind=Pod");
    }
}
