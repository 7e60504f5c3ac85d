//! Which plugins a server has: upstream's, by their names, and whether each is on unless a flag
//! says otherwise.
//!
//! Ours are not in the list and always on: they stand where upstream has no plugin to turn off.
//!
//! Source: `AllOrderedPlugins` and `DefaultOffAdmissionPlugins` in
//! `pkg/kubeapiserver/options/plugins.go`, `Validate` in
//! `k8s.io/apiserver/pkg/server/options/admission.go` at v1.37.

use std::collections::BTreeSet;

use crate::config::file::AdmissionConfigError;

/// On unless it is disabled. NodeRestriction is off in kube-apiserver itself; whoever makes
/// clusters of it turns it on, and so do we.
const DEFAULT_ON: &[&str] = &[
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "NodeDeclaredFeatureValidator",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Off unless it is enabled.
const DEFAULT_OFF: &[&str] = &[
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "OwnerReferencesPermissionEnforcement",
    "DenyServiceExternalIPs",
    "AlwaysDeny",
];

/// What flags say of plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    enabled: BTreeSet<String>,
    disabled: BTreeSet<String>,
}

impl Selection {
    /// `enabled` besides those that are on anyway, without `disabled`.
    ///
    /// # Errors
    /// Names that no plugin has, and those that are in both.
    pub fn new(enabled: &[String], disabled: &[String]) -> Result<Self, AdmissionConfigError> {
        let mut errors = Vec::new();
        for (flag, names) in [
            ("enable-admission-plugins", enabled),
            ("disable-admission-plugins", disabled),
        ] {
            let unknown = names.iter().filter(|name| !is_known(name));
            errors.extend(unknown.map(|name| format!("{flag} plugin {name:?} is unknown")));
        }
        let selection = Self {
            enabled: enabled.iter().cloned().collect(),
            disabled: disabled.iter().cloned().collect(),
        };
        let both: Vec<&str> = selection
            .enabled
            .intersection(&selection.disabled)
            .map(String::as_str)
            .collect();
        if !both.is_empty() {
            let both = both.join(" ");
            errors.push(format!(
                "[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"
            ));
        }
        if errors.is_empty() {
            Ok(selection)
        } else {
            Err(AdmissionConfigError(errors.join("; ")))
        }
    }

    /// Whether the server has the plugin.
    pub(crate) fn has(&self, name: &str) -> bool {
        if DEFAULT_OFF.contains(&name) {
            self.enabled.contains(name)
        } else {
            !self.disabled.contains(name)
        }
    }
}

fn is_known(name: &str) -> bool {
    DEFAULT_ON.contains(&name) || DEFAULT_OFF.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn flags_turn_plugins_on_and_off() {
        let plain = Selection::default();
        for (name, is_on) in [
            ("PodSecurity", true),
            ("AlwaysDeny", false),
            ("EventRateLimit", false),
            ("RoleEscalation", true),
        ] {
            assert_eq!(plain.has(name), is_on, "{name}");
        }
        let (on, off) = (
            names(&["AlwaysPullImages", "Priority"]),
            names(&["PodSecurity", "AlwaysDeny"]),
        );
        let told = Selection::new(&on, &off).unwrap();
        for (name, is_on) in [
            ("AlwaysPullImages", true),
            ("Priority", true),
            ("PodSecurity", false),
            ("AlwaysDeny", false),
            ("LimitRanger", true),
        ] {
            assert_eq!(told.has(name), is_on, "{name}");
        }
    }

    #[test]
    fn names_that_are_unknown_or_in_both_are_refused() {
        for (on, off, expect) in [
            (
                &["Foo"][..],
                &["Bar"][..],
                "enable-admission-plugins plugin \"Foo\" is unknown; disable-admission-plugins plugin \"Bar\" is unknown",
            ),
            (
                &["Priority", "LimitRanger"],
                &["LimitRanger", "Priority"],
                "[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
            (
                &[],
                &["RoleEscalation"],
                "disable-admission-plugins plugin \"RoleEscalation\" is unknown",
            ),
        ] {
            let error = Selection::new(&names(on), &names(off)).unwrap_err();
            assert_eq!(error.to_string(), expect);
        }
    }
}
