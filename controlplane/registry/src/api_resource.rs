//! A resource as clients see it: how it is called and what can be done with it.
//! `metav1.APIResource`, and a little more.
//!
//! A value, so that it can be made at run time. That of a built-in kind borrows the constants that
//! its file declares.

use std::{borrow::Cow, cmp::Reverse};

use coracle_api::resource::{GroupResource, Gvk};

pub use crate::strategy::Text;
use crate::strategy::{ResourceInfo, Scope, Subresource, VERBS_ALL};

/// How a resource is called, and what can be done with it.
#[derive(Debug, Clone)]
pub struct ApiResource {
    /// API group; empty for core.
    pub group: Text,
    /// Version, such as `v1`.
    pub version: Text,
    /// Kind, such as `Pod`.
    pub kind: Text,
    /// Of its lists, such as `PodList`.
    pub list_kind: Text,
    /// Resource name in URLs, such as `pods`.
    pub plural: Text,
    /// Such as `pod`.
    pub singular: Text,
    /// Such as `po`.
    pub short_names: Vec<Text>,
    /// Such as `all`.
    pub categories: Vec<Text>,
    /// Namespaced or not.
    pub scope: Scope,
    /// Which subresources exist.
    pub subresources: Cow<'static, [Subresource]>,
    /// Verbs of the main resource, in discovery's order.
    pub verbs: Vec<Text>,
    /// Whether PUT makes an object that is not there.
    pub create_on_update: bool,
    /// Whether PUT may leave `resourceVersion` out and then overwrites whatever there is.
    pub unconditional_update: bool,
    /// What clients of a kind that is going away are told with every answer; empty for the others.
    pub deprecated: Text,
}

impl ApiResource {
    /// An ordinary namespaced resource: every verb, no subresources, no other names.
    #[must_use]
    pub fn new(
        group: impl Into<Text>,
        version: impl Into<Text>,
        kind: impl Into<Text>,
        plural: impl Into<Text>,
    ) -> Self {
        let kind = kind.into();
        let singular = kind.to_lowercase().into();
        Self {
            group: group.into(),
            version: version.into(),
            list_kind: list_kind(&kind),
            kind,
            plural: plural.into(),
            singular,
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            subresources: Cow::Borrowed(&[]),
            verbs: texts(VERBS_ALL),
            create_on_update: false,
            unconditional_update: true,
            deprecated: Cow::Borrowed(""),
        }
    }

    /// Whether this is the resource `plural` of `group`, in whatever version. Names of two groups
    /// may be the same: never compare one without the other.
    #[must_use]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.plural == plural && self.group == group
    }

    /// Whether this is the core group's resource of that name.
    #[must_use]
    pub fn is_core(&self, plural: &str) -> bool {
        self.is("", plural)
    }

    /// Whether this is what is at `/apis/GROUP/VERSION/PLURAL`.
    #[must_use]
    pub fn is_at(&self, group: &str, version: &str, plural: &str) -> bool {
        self.is(group, plural) && self.version == version
    }

    /// Whether it can be done with the main resource.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    /// Whether its objects are in namespaces.
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Group, version and kind.
    #[must_use]
    pub fn gvk(&self) -> Gvk {
        Gvk::new(&*self.group, &*self.version, &*self.kind)
    }

    /// Group and plural.
    #[must_use]
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.group, &*self.plural)
    }

    /// What every key of its objects begins with: `/registry/pods/`, `/registry/apps/deployments/`.
    #[must_use]
    pub fn prefix(&self) -> String {
        prefix(&self.group, &self.plural)
    }
}

impl From<&'static ResourceInfo> for ApiResource {
    fn from(info: &'static ResourceInfo) -> Self {
        Self {
            group: Cow::Borrowed(info.group),
            version: Cow::Borrowed(info.version),
            kind: Cow::Borrowed(info.kind),
            list_kind: list_kind(info.kind),
            plural: Cow::Borrowed(info.plural),
            singular: Cow::Borrowed(info.singular),
            short_names: texts(info.short_names),
            categories: texts(info.categories),
            scope: info.scope,
            subresources: Cow::Borrowed(info.subresources),
            verbs: texts(info.verbs),
            create_on_update: info.create_on_update,
            unconditional_update: info.unconditional_update,
            deprecated: Cow::Borrowed(info.deprecated),
        }
    }
}

/// That of kinds that do not say.
fn list_kind(kind: &str) -> Text {
    format!("{kind}List").into()
}

/// See [`ApiResource::prefix`].
#[must_use]
pub fn prefix(group: &str, plural: &str) -> String {
    match group {
        "" => format!("/registry/{plural}/"),
        group => format!("/registry/{group}/{plural}/"),
    }
}

fn texts(all: &'static [&'static str]) -> Vec<Text> {
    all.iter().copied().map(Cow::Borrowed).collect()
}

/// The place of a version among those of its group: clients take the greatest first.
/// `v2 > v1 > v1beta2 > v1beta1 > v1alpha1`, then what is called otherwise, by the alphabet.
///
/// Source: `k8s.io/apimachinery/pkg/version/helpers.go`, `CompareKubeAwareVersionStrings`, at
/// v1.37.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionPriority<'a> {
    stage: Stage,
    major: u32,
    minor: u32,
    other: Reverse<&'a str>,
}

/// How far a version has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its name does not say.
    Unknown,
    Alpha,
    Beta,
    Stable,
}

impl<'a> VersionPriority<'a> {
    /// Of `v1beta2`.
    #[must_use]
    pub fn of(version: &'a str) -> Self {
        let (stage, major, minor) = staged(version).unwrap_or((Stage::Unknown, 0, 0));
        Self {
            stage,
            major,
            minor,
            // Two that mean the same, as `v1` and `v01`, are still two.
            other: Reverse(version),
        }
    }
}

/// Stage, major and minor number of `v1beta2`; `None` for what is called otherwise.
fn staged(version: &str) -> Option<(Stage, u32, u32)> {
    let numbers = version.strip_prefix('v')?;
    let digits = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    for (stage, name) in [(Stage::Alpha, "alpha"), (Stage::Beta, "beta")] {
        if let Some((major, minor)) = numbers.split_once(name) {
            return Some((stage, digits(major)?, digits(minor)?));
        }
    }
    Some((Stage::Stable, digits(numbers)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_stable_versions_first() {
        let mut versions = [
            "v1alpha1",
            "foo10",
            "v2",
            "v10",
            "v1beta1",
            "foo1",
            "v11alpha2",
            "v3beta1",
            "v1",
            "v12alpha1",
            "v10beta3",
        ];
        versions.sort_by_key(|version| Reverse(VersionPriority::of(version)));
        let expect = [
            "v10",
            "v2",
            "v1",
            "v10beta3",
            "v3beta1",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "v1alpha1",
            "foo1",
            "foo10",
        ];
        assert_eq!(versions, expect);
    }
}
