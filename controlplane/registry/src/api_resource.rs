//! A resource as clients see it: how it is called and what can be done with it.
//! `metav1.APIResource`, and a little more.
//!
//! A value, so that it can be made at run time. That of a built-in kind borrows the constants that
//! its file declares.

use std::borrow::Cow;

use coracle_api::resource::{GroupResource, Gvk};

pub use crate::strategy::Text;
use crate::strategy::{ResourceInfo, Scope, Subresource, VERBS_ALL};

/// See the module.
#[derive(Debug, Clone)]
pub struct ApiResource {
    /// API group; empty for core.
    pub group: Text,
    /// Version, such as `v1`.
    pub version: Text,
    /// Kind, such as `Pod`.
    pub kind: Text,
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
    pub verbs: &'static [&'static str],
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
            kind,
            plural: plural.into(),
            singular,
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            subresources: Cow::Borrowed(&[]),
            verbs: VERBS_ALL,
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

    /// Whether this is what is at `/apis/GROUP/VERSION/PLURAL`.
    #[must_use]
    pub fn is_at(&self, group: &str, version: &str, plural: &str) -> bool {
        self.is(group, plural) && self.version == version
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
        match &*self.group {
            "" => format!("/registry/{}/", self.plural),
            group => format!("/registry/{group}/{}/", self.plural),
        }
    }
}

impl From<&'static ResourceInfo> for ApiResource {
    fn from(info: &'static ResourceInfo) -> Self {
        let texts = |all: &'static [&'static str]| all.iter().copied().map(Cow::Borrowed).collect();
        Self {
            group: Cow::Borrowed(info.group),
            version: Cow::Borrowed(info.version),
            kind: Cow::Borrowed(info.kind),
            plural: Cow::Borrowed(info.plural),
            singular: Cow::Borrowed(info.singular),
            short_names: texts(info.short_names),
            categories: texts(info.categories),
            scope: info.scope,
            subresources: Cow::Borrowed(info.subresources),
            verbs: info.verbs,
            create_on_update: info.create_on_update,
            unconditional_update: info.unconditional_update,
            deprecated: Cow::Borrowed(info.deprecated),
        }
    }
}
