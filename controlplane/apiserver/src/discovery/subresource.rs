//! How discovery shows subresources: their names, the kinds they speak, and their verbs.

use serde_json::{Value, json};

use crate::registry::strategy::{ResourceInfo, Scope, Subresource};

impl Subresource {
    /// The last segment of its path, such as `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::Portforward => "portforward",
            Self::Proxy => "proxy",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Finalize => "finalize",
            Self::Token => "token",
            Self::Approval => "approval",
        }
    }

    /// What may be done with it.
    #[must_use]
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Scale | Self::EphemeralContainers | Self::Resize | Self::Approval => {
                &["get", "patch", "update"]
            }
            Self::Binding | Self::Eviction | Self::Token => &["create"],
            Self::Log => &["get"],
            Self::Exec | Self::Attach | Self::Portforward => &["create", "get"],
            Self::Proxy => &["create", "delete", "get", "patch", "update"],
            Self::Finalize => &["update"],
        }
    }

    /// Group, version and kind of what it speaks, where that is not the resource's own.
    #[must_use]
    pub fn foreign_kind(self, of: &ResourceInfo) -> Option<(&'static str, &'static str, &'static str)> {
        let options = |node, pod, service| match of.kind {
            "Node" => node,
            "Service" => service,
            _ => pod,
        };
        match self {
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Exec => Some(("", "v1", "PodExecOptions")),
            Self::Attach => Some(("", "v1", "PodAttachOptions")),
            Self::Portforward => Some(("", "v1", "PodPortForwardOptions")),
            Self::Proxy => Some(("", "v1", options("NodeProxyOptions", "PodProxyOptions", "ServiceProxyOptions"))),
            Self::Status | Self::Log | Self::EphemeralContainers | Self::Resize | Self::Finalize | Self::Approval => {
                None
            }
        }
    }
}

/// An entry of a legacy APIResourceList.
pub(super) fn legacy(info: &ResourceInfo, sub: Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", info.plural, sub.name()),
        "singularName": "",
        "namespaced": info.scope == Scope::Namespaced,
        "kind": info.kind,
        "verbs": sub.verbs(),
    });
    if let Some((group, version, kind)) = sub.foreign_kind(info) {
        value["kind"] = kind.into();
        // Left out where they are the list's own.
        if (group, version) != (info.group, info.version) {
            value["group"] = group.into();
            value["version"] = version.into();
        }
    }
    value
}

/// An entry of an aggregated resource's `subresources`.
pub(super) fn aggregated(info: &ResourceInfo, sub: Subresource) -> Value {
    let (group, version, kind) = sub.foreign_kind(info).unwrap_or((info.group, info.version, info.kind));
    json!({
        "subresource": sub.name(),
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": sub.verbs(),
    })
}
