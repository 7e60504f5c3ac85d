//! Nobody gives what they do not have: whether a user's rules cover those of a role. Pure.
//!
//! Source: `pkg/registry/rbac/validation/{rule,policy_comparator,policy_compact}.go` and
//! `k8s.io/component-helpers/auth/rbac/validation` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::rule::{Names, Rule, url_covers};
use crate::user::UserInfo;

/// Most single permissions of what is handed out: a rule's verbs, groups, resources and names are
/// multiplied, so a short one may ask for millions of comparisons.
const MOST: usize = 10_000;

/// Whether somebody with the rules `own` may hand out the rules `wanted`.
///
/// # Errors
/// What is missing, in upstream's words.
pub fn confirm(
    user: &UserInfo,
    own: &[Rule],
    missing_roles: &[String],
    wanted: &[Rule],
) -> Result<(), String> {
    let count = wanted
        .iter()
        .map(permissions)
        .fold(0, usize::saturating_add);
    if count > MOST && !holds_everything(own) {
        return Err(format!(
            "user {:?} is attempting to grant {count} single permissions (verbs x groups x resources x names), and not \
             more than {MOST} can be compared with those held: split the role",
            user.name
        ));
    }
    let missing = uncovered(own, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let mut message = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(user.groups.iter().map(String::as_str)),
        lines.join("\n")
    );
    if !missing_roles.is_empty() {
        message.push_str(&format!(
            "; resolution errors: [{}]",
            missing_roles.join(" ")
        ));
    }
    Err(message)
}

/// The single permissions in `wanted` that no rule of `own` gives.
pub fn uncovered(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    if holds_everything(own) {
        return Vec::new();
    }
    wanted
        .iter()
        .flat_map(break_down)
        .filter(|one| !own.iter().any(|rule| covers(rule, one)))
        .collect()
}

/// How many rules [`break_down`] gives.
fn permissions(rule: &Rule) -> usize {
    let named = [
        rule.groups.len(),
        rule.resources.len(),
        rule.names.len().max(1),
    ];
    let of_resources = named.into_iter().fold(1, usize::saturating_mul);
    rule.verbs
        .len()
        .saturating_mul(of_resources.saturating_add(rule.urls.len()))
}

/// Whether nothing is missing, whatever is asked for.
fn holds_everything(own: &[Rule]) -> bool {
    let has_any = |list: &Names| list.iter().any(|one| &**one == "*");
    let resources =
        |rule: &Rule| has_any(&rule.groups) && has_any(&rule.resources) && rule.names.is_empty();
    own.iter()
        .any(|rule| has_any(&rule.verbs) && resources(rule))
        && own
            .iter()
            .any(|rule| has_any(&rule.verbs) && has_any(&rule.urls))
}

/// One rule a verb, group, resource and name, or a verb and path.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let one = |text: &Arc<str>| -> Names { [Arc::clone(text)].into() };
    let mut single = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.groups {
            for resource in &rule.resources {
                let base = Rule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                if rule.names.is_empty() {
                    single.push(base.clone());
                }
                single.extend(rule.names.iter().map(|name| Rule {
                    names: one(name),
                    ..base.clone()
                }));
            }
        }
        single.extend(rule.urls.iter().map(|url| Rule {
            verbs: one(verb),
            urls: one(url),
            ..Rule::default()
        }));
    }
    single
}

fn covers(own: &Rule, single: &Rule) -> bool {
    let has_all = |list: &Names, wanted: &Names| {
        list.iter().any(|one| &**one == "*") || wanted.iter().all(|one| list.contains(one))
    };
    let names = if single.names.is_empty() {
        own.names.is_empty()
    } else {
        own.names.is_empty() || single.names.iter().all(|name| own.names.contains(name))
    };
    names
        && has_all(&own.verbs, &single.verbs)
        && has_all(&own.groups, &single.groups)
        && single.resources.iter().all(|resource| {
            own.resources
                .iter()
                .any(|rule| resource_covers(rule, resource))
        })
        && single
            .urls
            .iter()
            .all(|url| own.urls.iter().any(|rule| url_covers(rule, url)))
}

fn resource_covers(rule: &str, resource: &str) -> bool {
    let subresource = |text: &str| {
        text.split_once('/')
            .map(|(_, subresource)| subresource.to_owned())
    };
    rule == "*"
        || rule == resource
        || (rule.starts_with("*/")
            && subresource(rule).is_some()
            && subresource(rule) == subresource(resource))
}

/// The verbs of each resource together.
fn compact(single: Vec<Rule>) -> Vec<Rule> {
    let (of_urls, of_resources): (Vec<Rule>, Vec<Rule>) = single
        .into_iter()
        .partition(|rule| rule.resources.is_empty());
    let mut verbs: BTreeMap<(Names, Names, Names), Vec<Arc<str>>> = BTreeMap::new();
    for rule in of_resources {
        let known = verbs
            .entry((rule.groups, rule.resources, rule.names))
            .or_default();
        known.extend(
            rule.verbs
                .into_iter()
                .filter(|verb| !known.contains(verb))
                .collect::<Vec<_>>(),
        );
    }
    let together = verbs
        .into_iter()
        .map(|((groups, resources, names), verbs)| Rule {
            groups,
            resources,
            names,
            verbs: verbs.into(),
            ..Rule::default()
        });
    together.chain(of_urls).collect()
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(field, list)| format!("{field}:{}", quoted(list.iter().map(|text| &**text))))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// As Go's `%q` shows a list of strings.
fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::authz::rule::Pool;

    fn rules(value: &Value) -> Vec<Rule> {
        let mut pool = Pool::default();
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| Rule::parse(rule, &mut pool))
            .collect()
    }

    #[test]
    fn only_what_is_held_may_be_given() {
        let pods = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}]);
        let get = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let get_one = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        let logs = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}]);
        let log = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}]);
        let path = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]);
        let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/met*"]}]);
        let split = json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
        ]);
        let table: &[(&Value, &Value, bool)] = &[
            (&pods, &get, true),
            (&get, &pods, false),
            (&get, &get_one, true),
            (&get_one, &get, false),
            (&all, &pods, true),
            (&pods, &all, false),
            (&logs, &log, true),
            (&log, &logs, false),
            (&logs, &get, false),
            (&paths, &path, true),
            (&path, &paths, false),
            (&get, &path, false),
            (&split, &pods, true),
        ];
        for (own, wanted, expect) in table {
            assert_eq!(
                uncovered(&rules(own), &rules(wanted)).is_empty(),
                *expect,
                "{own} covers {wanted}"
            );
        }
    }

    #[test]
    fn a_short_rule_cannot_ask_for_endless_comparisons() {
        let many: Vec<String> = (0..30).map(|at| at.to_string()).collect();
        let wanted = rules(
            &json!([{"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}]),
        );
        let user = UserInfo::new("bob", &[]);
        let own = rules(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        assert!(
            confirm(&user, &own, &[], &wanted)
                .unwrap_err()
                .contains("810000 single permissions")
        );
        let all = rules(
            &json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        );
        assert_eq!(confirm(&user, &all, &[], &wanted), Ok(()));
    }

    #[test]
    fn message_is_upstreams() {
        let wanted = rules(&json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets", "pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]));
        let user = UserInfo::new("bob", &["dev"]);
        let own = rules(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        assert_eq!(
            confirm(&user, &own, &[], &wanted).unwrap_err(),
            "user \"bob\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
             {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
             {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
        );
    }
}
