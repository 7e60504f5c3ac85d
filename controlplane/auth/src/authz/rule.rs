//! A policy rule: which verbs on which resources or paths. Pure; matching allocates nothing.
//!
//! Source: `pkg/apis/rbac/v1/evaluation_helpers.go` and `plugin/pkg/auth/authorizer/rbac/rbac.go`
//! at v1.37.

use std::{collections::HashSet, sync::Arc};

use coracle_api::meta;
use serde_json::{Map, Value};

use super::{ResourceTarget, Target};

/// Stands for all verbs, groups, resources or paths.
const ALL: &str = "*";

/// One list of a rule. Equal strings of many rules share their bytes.
pub type Names = Box<[Arc<str>]>;

/// A `PolicyRule`, taken apart once.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Such as `get`; `*` for all.
    pub verbs: Names,
    /// API groups; empty for the core group.
    pub groups: Names,
    /// Plurals, with `/status` and the like; `*` for all.
    pub resources: Names,
    /// Of single objects; none for all.
    pub names: Names,
    /// Paths of what is no resource; a last `*` for all below.
    pub urls: Names,
}

/// Strings that rules share.
#[derive(Debug, Default)]
pub struct Pool(HashSet<Arc<str>>);

impl Pool {
    /// The text, shared with whoever has an equal one.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }

    /// The texts of a list.
    pub fn names(&mut self, list: &[Value]) -> Names {
        list.iter()
            .filter_map(Value::as_str)
            .map(|text| self.share(text))
            .collect()
    }
}

impl Rule {
    /// From its JSON form.
    pub fn parse(value: &Value, pool: &mut Pool) -> Self {
        let mut list = |field: &str| pool.names(meta::get_array(value, &[field]));
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// All rules of a Role or ClusterRole.
    pub fn parse_all(role: &Value, pool: &mut Pool) -> Box<[Self]> {
        meta::get_array(role, &["rules"])
            .iter()
            .map(|rule| Self::parse(rule, pool))
            .collect()
    }

    /// Its JSON form, without empty lists.
    pub fn to_value(&self) -> Value {
        let lists = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        let filled = lists.into_iter().filter(|(_, list)| !list.is_empty());
        filled
            .map(|(field, list)| (field.to_owned(), list.iter().map(|text| &**text).collect()))
            .collect::<Map<_, _>>()
            .into()
    }

    /// Whether this rule alone allows `verb` on `target`.
    pub fn allows(&self, verb: &str, target: &Target<'_>) -> bool {
        has(&self.verbs, verb)
            && match target {
                Target::Path(path) => self.urls.iter().any(|url| url_covers(url, path)),
                Target::Resource(resource) => self.allows_resource(resource),
            }
    }

    fn allows_resource(&self, target: &ResourceTarget<'_>) -> bool {
        has(&self.groups, target.group)
            && self
                .resources
                .iter()
                .any(|resource| resource_matches(resource, target))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *target.name))
    }
}

fn has(list: &Names, wanted: &str) -> bool {
    list.iter().any(|one| **one == *ALL || **one == *wanted)
}

fn resource_matches(rule: &str, target: &ResourceTarget<'_>) -> bool {
    if rule == ALL {
        return true;
    }
    if target.subresource.is_empty() {
        return rule == target.resource;
    }
    let Some((resource, subresource)) = rule.split_once('/') else {
        return false;
    };
    (resource == ALL || resource == target.resource) && subresource == target.subresource
}

/// Whether the path of a rule, perhaps with a `*` at its end, covers `path`.
pub fn url_covers(rule: &str, path: &str) -> bool {
    rule == ALL
        || rule == path
        || rule
            .strip_suffix('*')
            .is_some_and(|start| path.starts_with(start.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::parse(&value, &mut Pool::default())
    }

    fn on<'a>(
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Target<'a> {
        Target::Resource(ResourceTarget {
            group,
            resource,
            subresource,
            name,
            ..ResourceTarget::default()
        })
    }

    #[test]
    fn rules_allow_what_upstream_allows() {
        let pods = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let log = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]});
        let scales = json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]});
        let named = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a", "b"]});
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/api/*", "/version"]});
        let every_url = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
        let table: &[(&Value, &str, Target<'_>, bool)] = &[
            (&pods, "get", on("", "pods", "", "p"), true),
            (&pods, "list", on("", "pods", "", ""), true),
            (&pods, "watch", on("", "pods", "", ""), false),
            (&pods, "get", on("metrics.k8s.io", "pods", "", ""), false),
            (&pods, "get", on("", "pods", "log", "p"), false),
            (&log, "get", on("", "pods", "log", "p"), true),
            (&log, "get", on("", "pods", "", "p"), false),
            // As upstream: an access review may name the subresource within the resource.
            (&log, "get", on("", "pods/log", "", "p"), true),
            (
                &scales,
                "get",
                on("apps", "deployments", "scale", "d"),
                true,
            ),
            (
                &scales,
                "get",
                on("apps", "deployments", "status", "d"),
                false,
            ),
            (&scales, "get", on("apps", "deployments", "", "d"), false),
            (&named, "get", on("", "configmaps", "", "b"), true),
            (&named, "get", on("", "configmaps", "", "c"), false),
            (&named, "create", on("", "configmaps", "", ""), false),
            (&all, "frobnicate", on("g", "things", "part", "n"), true),
            (&all, "get", Target::Path("/metrics"), false),
            (&urls, "get", Target::Path("/api/v1"), true),
            (&urls, "get", Target::Path("/api"), false),
            (&urls, "get", Target::Path("/version"), true),
            (&urls, "get", Target::Path("/version/x"), false),
            (&urls, "post", Target::Path("/version"), false),
            (&urls, "get", on("", "pods", "", ""), false),
            (&every_url, "put", Target::Path("/anything"), true),
        ];
        for (value, verb, target, expect) in table {
            assert_eq!(
                rule((*value).clone()).allows(verb, target),
                *expect,
                "{value} {verb} {target:?}"
            );
        }
    }

    #[test]
    fn json_form_comes_back() {
        let value = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert_eq!(rule(value.clone()).to_value(), value);
    }
}
