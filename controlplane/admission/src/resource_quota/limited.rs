//! What nobody may use without a quota that limits it: `limitedResources`.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: ResourceQuotaConfiguration
//! limitedResources:
//! - {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage]}
//! - {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [cluster-services]}]}
//! ```
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota`, `CheckRequest`
//! in `.../resourcequota/controller.go` at v1.37.

use std::{collections::BTreeSet, fmt};

use coracle_api::{quota, resource_list::Amounts, status::FieldErrors};
use serde::Deserialize;
use serde_json::Value;

use crate::config::file::{self, AdmissionConfigError};

/// What the configuration limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limited(Vec<LimitedResource>);

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct LimitedResource {
    api_group: String,
    resource: String,
    match_contains: Vec<String>,
    match_scopes: Vec<Scope>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Scope {
    scope_name: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    limited_resources: Vec<LimitedResource>,
}

/// What is used and limited by no quota.
#[derive(Debug, PartialEq)]
pub(crate) enum Uncovered {
    /// Names of resources, such as `requests.cpu`.
    Names(BTreeSet<String>),
    /// Scopes, as they are told.
    Scopes(Vec<String>),
}

impl Limited {
    /// # Errors
    /// What is wrong with which field.
    pub(crate) fn of(value: Value) -> Result<Self, AdmissionConfigError> {
        let known = [
            ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
            ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
            ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
        ];
        let file: File = file::read_of(&known, value)?;
        let mut errors = FieldErrors::default();
        for (index, limited) in file.limited_resources.iter().enumerate() {
            if limited.resource.is_empty() {
                errors.required(format!("limitedResources[{index}].resource"), "");
            }
        }
        if errors.is_empty() {
            Ok(Self(file.limited_resources))
        } else {
            Err(AdmissionConfigError(errors.to_string()))
        }
    }

    /// Whether objects of a resource may need a quota. Asked for every write.
    pub(crate) fn concerns(&self, group: &str, plural: &str) -> bool {
        let has_scopes = group.is_empty() && matches!(plural, "pods" | "persistentvolumeclaims");
        let mut all = self.0.iter();
        all.any(|one| one.is(group, plural) || (has_scopes && !one.match_scopes.is_empty()))
    }

    /// Whether `covered` and `scopes`, which are those of all quotas, have all that is limited of
    /// what the object of a resource uses.
    ///
    /// # Errors
    /// What they do not have.
    pub(crate) fn check<'a>(
        &self,
        (group, plural, object): (&str, &str, &Value),
        used: &Amounts,
        covered: impl Iterator<Item = &'a String>,
        scopes: impl Iterator<Item = Value>,
    ) -> Result<(), Uncovered> {
        let own = self.0.iter().filter(|one| one.is(group, plural));
        let mut names: BTreeSet<String> = own.flat_map(|one| one.names(used)).cloned().collect();
        covered.for_each(|name| _ = names.remove(name));
        if !names.is_empty() {
            return Err(Uncovered::Names(names));
        }
        let is_of = |scope: &Value| quota::is_of_scope(scope, group, plural, object);
        let covered: Vec<Value> = scopes.filter(is_of).collect();
        let limited = self.0.iter().flat_map(|one| &one.match_scopes);
        let uncovered: Vec<String> = limited
            .filter(|scope| is_of(&scope.requirement()))
            .filter(|scope| {
                !covered
                    .iter()
                    .any(|one| one["scopeName"] == *scope.scope_name)
            })
            .map(ToString::to_string)
            .collect();
        if uncovered.is_empty() {
            Ok(())
        } else {
            Err(Uncovered::Scopes(uncovered))
        }
    }
}

impl LimitedResource {
    fn is(&self, group: &str, plural: &str) -> bool {
        self.api_group == group && self.resource == plural
    }

    /// What is limited of what is used.
    fn names<'a>(&self, used: &'a Amounts) -> impl Iterator<Item = &'a String> {
        let used = used
            .iter()
            .filter(|(_, amount)| !amount.is_zero() && !amount.is_negative());
        used.map(|(name, _)| name)
            .filter(|name| self.match_contains.iter().any(|part| name.contains(part)))
    }
}

impl Scope {
    fn requirement(&self) -> Value {
        serde_json::json!({"scopeName": self.scope_name, "operator": self.operator, "values": self.values})
    }
}

impl fmt::Display for Scope {
    /// As Go prints such a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.join(" ");
        write!(f, "{{{} {} [{values}]}}", self.scope_name, self.operator)
    }
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                write!(f, "insufficient quota to consume: {}", names.join(","))
            }
            Self::Scopes(scopes) => {
                let scopes = scopes.join(" ");
                write!(f, "insufficient quota to match these scopes: [{scopes}]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn limited(resources: Value) -> Result<Limited, String> {
        let value = json!({"apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ResourceQuotaConfiguration", "limitedResources": resources});
        Limited::of(value).map_err(|error| error.to_string())
    }

    fn check(
        resources: Value,
        (plural, object): (&str, Value),
        covered: &[&str],
        scopes: Value,
    ) -> Result<(), String> {
        let covered: Vec<String> = covered.iter().map(|name| (*name).to_owned()).collect();
        let used = quota::usage("", plural, &object, Timestamp::UNIX_EPOCH);
        let quotas = quota::scopes(&json!({"scopeSelector": {"matchExpressions": scopes}}));
        let checked = limited(resources).unwrap().check(
            ("", plural, &object),
            &used,
            covered.iter(),
            quotas.into_iter(),
        );
        checked.map_err(|uncovered| uncovered.to_string())
    }

    fn pod(class: &str) -> (&'static str, Value) {
        let container = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}});
        let spec = json!({"priorityClassName": class, "containers": [container]});
        ("pods", json!({"spec": spec}))
    }

    #[test]
    fn what_is_limited_needs_a_quota_that_has_it() {
        let cpu = json!([{"resource": "pods", "matchContains": ["requests.cpu", "pods"]}]);
        let missing = "insufficient quota to consume: count/pods,pods,requests.cpu";
        assert_eq!(
            check(cpu.clone(), pod(""), &[], json!([])).unwrap_err(),
            missing
        );
        let all = ["pods", "count/pods", "requests.cpu", "limits.cpu"];
        assert_eq!(check(cpu.clone(), pod(""), &all, json!([])), Ok(()));
        let map = ("configmaps", json!({}));
        assert_eq!(check(cpu, map, &[], json!([])), Ok(()), "of another kind");
        let storage = json!([{"resource": "persistentvolumeclaims",
            "matchContains": [".storageclass.storage.k8s.io/requests.storage"]}]);
        let claim = |class: &str| {
            let spec =
                json!({"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}});
            ("persistentvolumeclaims", json!({"spec": spec}))
        };
        assert_eq!(
            check(storage.clone(), claim("gold"), &[], json!([])).unwrap_err(),
            "insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage"
        );
        assert_eq!(check(storage, claim(""), &[], json!([])), Ok(()));
    }

    #[test]
    fn what_is_of_a_limited_scope_needs_a_quota_of_that_scope() {
        let scope = |operator: &str, values: &[&str]| json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        let limit = json!([{"resource": "pods", "matchScopes": [scope("In", &["a", "b"])]}]);
        let missing = "insufficient quota to match these scopes: [{PriorityClass In [a b]}]";
        let tried = |class: &str, scopes: Value| check(limit.clone(), pod(class), &[], scopes);
        assert_eq!(tried("a", json!([])).unwrap_err(), missing);
        assert_eq!(tried("c", json!([])), Ok(()));
        assert_eq!(tried("a", json!([scope("Exists", &[])])), Ok(()));
        let other = json!([scope("In", &["c"])]);
        assert_eq!(
            tried("a", other).unwrap_err(),
            missing,
            "it is not of this quota"
        );
        let exists = json!([{"resource": "pods", "matchScopes": [scope("Exists", &[])]}]);
        assert_eq!(
            check(exists, pod("a"), &[], json!([])).unwrap_err(),
            "insufficient quota to match these scopes: [{PriorityClass Exists []}]"
        );
    }

    #[test]
    fn files_are_read_strictly() {
        for (resources, expect) in [
            (json!([{}]), "limitedResources[0].resource: Required value"),
            (
                json!([{"resource": "pods", "contains": []}]),
                "unknown field `contains`",
            ),
            (
                json!([{"resource": "pods", "matchScopes": [{"scope": "a"}]}]),
                "unknown field `scope`",
            ),
        ] {
            let error = limited(resources).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
        for (version, kind, is_known) in [
            (
                "apiserver.config.k8s.io/v1",
                "ResourceQuotaConfiguration",
                true,
            ),
            (
                "resourcequota.admission.k8s.io/v1beta1",
                "Configuration",
                true,
            ),
            (
                "resourcequota.admission.k8s.io/v1alpha1",
                "Configuration",
                true,
            ),
            ("apiserver.config.k8s.io/v1", "Configuration", false),
        ] {
            let read = Limited::of(json!({"apiVersion": version, "kind": kind}));
            assert_eq!(read.is_ok(), is_known, "{version} {kind}");
        }
    }

    #[test]
    fn only_what_is_limited_is_looked_at() {
        let pods = limited(json!([{"resource": "pods", "matchContains": ["cpu"]}])).unwrap();
        assert!(pods.concerns("", "pods") && !pods.concerns("", "persistentvolumeclaims"));
        let scopes = json!([{"resource": "x", "matchScopes": [{"scopeName": "BestEffort"}]}]);
        let scopes = limited(scopes).unwrap();
        assert!(scopes.concerns("", "pods") && !scopes.concerns("apps", "deployments"));
        assert!(!Limited::default().concerns("", "pods"));
    }
}
