//! `RuleWithOperations`, and with names `NamedRuleWithOperations`.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go` at v1.37.

use coracle_registry::value::{items, string};
use serde_json::Value;

const ALL: &str = "*";

/// What a rule is asked about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// `CREATE` and so on.
    pub operation: &'a str,
    /// Of the resource; empty for core.
    pub group: &'a str,
    /// Of the resource.
    pub version: &'a str,
    /// Its plural.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Whether the object is in a namespace. A Namespace is in none.
    pub is_namespaced: bool,
    /// The object's; perhaps not known yet.
    pub name: &'a str,
}

/// Which requests something is about.
#[derive(Debug, Clone)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// With what is below them; empty for the object itself.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Empty for all.
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
    /// Written as what nobody knows.
    None,
}

impl Rule {
    /// Reads a rule.
    #[must_use]
    pub fn read(rule: &Value) -> Self {
        let texts = |field: &str| items(&rule[field]).iter().map(string);
        let owned = |field: &str| texts(field).map(str::to_owned).collect();
        let resources = texts("resources").map(|resource| match resource.split_once('/') {
            Some((resource, below)) => (resource.to_owned(), below.to_owned()),
            None => (resource.to_owned(), String::new()),
        });
        Self {
            operations: owned("operations"),
            groups: owned("apiGroups"),
            versions: owned("apiVersions"),
            resources: resources.collect(),
            scope: match rule["scope"].as_str() {
                None | Some(ALL) => Scope::All,
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                Some(_) => Scope::None,
            },
            names: owned("resourceNames"),
        }
    }

    /// Reads a list of rules.
    #[must_use]
    pub fn read_all(rules: &Value) -> Vec<Self> {
        items(rules).iter().map(Self::read).collect()
    }

    /// Whether the rule is about it.
    #[must_use]
    pub fn matches(&self, about: &About<'_>) -> bool {
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !about.is_namespaced,
            Scope::Namespaced => about.is_namespaced,
            Scope::None => false,
        };
        scope
            && has(&self.operations, about.operation)
            && has(&self.groups, about.group)
            && has(&self.versions, about.version)
            && self.has_resource(about)
            && (self.names.is_empty() || self.names.iter().any(|name| name == about.name))
    }

    fn has_resource(&self, about: &About<'_>) -> bool {
        let is = |said: &str, found: &str| said == ALL || said == found;
        self.resources
            .iter()
            .any(|(resource, below)| is(resource, about.resource) && is(below, about.subresource))
    }
}

fn has(list: &[String], found: &str) -> bool {
    list.iter().any(|one| one == ALL || one == found)
}
