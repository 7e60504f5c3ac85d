//! The roles and bindings that every cluster has, as objects. Pure: reads `bootstrap_policy.txt`
//! and nothing else.
//!
//! Source: `plugin/pkg/auth/authorizer/rbac/bootstrappolicy` at v1.37.

use serde_json::{Map, Value, json};

const TEXT: &str = include_str!("bootstrap_policy.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// Everything, in the order of the text.
#[derive(Debug, Default)]
pub struct Policy {
    /// ClusterRoles and Roles.
    pub roles: Vec<Value>,
    /// ClusterRoleBindings and RoleBindings.
    pub bindings: Vec<Value>,
}

/// Reads the text.
pub fn read() -> Policy {
    let mut policy = Policy::default();
    for line in TEXT
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(head) = line.strip_prefix("role ") {
            policy.roles.push(role(head));
        } else if let Some(rest) = line.strip_prefix("bind ") {
            policy.bindings.push(binding(rest));
        } else if let Some(Value::Array(rules)) = policy
            .roles
            .last_mut()
            .and_then(|role| role.get_mut("rules"))
        {
            rules.push(rule(line.trim_start()));
        }
    }
    bind_controllers(&mut policy);
    aggregate(&mut policy.roles);
    policy
}

/// One ClusterRole of the text.
pub fn cluster_role(name: &str) -> Option<Value> {
    read()
        .roles
        .into_iter()
        .find(|role| role["kind"] == "ClusterRole" && role["metadata"]["name"] == name)
}

/// Every controller's role goes to the service account of its name.
fn bind_controllers(policy: &mut Policy) {
    const PREFIX: &str = "system:controller:";
    for role in policy
        .roles
        .iter()
        .filter(|role| role["kind"] == "ClusterRole")
    {
        if let Some(account) = role["metadata"]["name"]
            .as_str()
            .and_then(|name| name.strip_prefix(PREFIX))
        {
            policy.bindings.push(binding(&format!(
                "{PREFIX}{account} {PREFIX}{account} s:kube-system/{account}"
            )));
        }
    }
}

fn metadata(name: &str) -> (Option<&str>, Value) {
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    };
    let mut metadata = json!({
        "name": name,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    (namespace, metadata)
}

fn role(head: &str) -> Value {
    let mut words = head.split(' ');
    let (namespace, mut metadata) = metadata(words.next().unwrap_or_default());
    let mut aggregation = None;
    for word in words {
        let label = |name: &str| format!("{GROUP}/aggregate-to-{name}");
        if let Some(name) = word.strip_prefix('>') {
            metadata["labels"][label(name)] = "true".into();
        } else if let Some(name) = word.strip_prefix('<') {
            aggregation =
                Some(json!({"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]}));
        }
    }
    let kind = if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let mut role =
        json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "rules": []});
    if let Some(aggregation) = aggregation {
        role["aggregationRule"] = aggregation;
    }
    role
}

fn rule(line: &str) -> Value {
    if line == "EVENTS" {
        return rule("create,patch,update core,events.k8s.io events");
    }
    let mut words = line
        .split(' ')
        .map(|word| word.split(',').collect::<Vec<_>>());
    let mut next = || words.next().unwrap_or_default();
    let mut verbs: Vec<&str> = Vec::new();
    for verb in next() {
        match verb {
            "read" => verbs.extend(READ),
            "write" => verbs.extend(WRITE),
            verb => verbs.push(verb),
        }
    }
    verbs.sort_unstable();
    let groups = next();
    if groups == ["urls"] {
        return json!({"verbs": verbs, "nonResourceURLs": next()});
    }
    let groups: Vec<&str> = groups
        .into_iter()
        .map(|group| if group == "core" { "" } else { group })
        .collect();
    let mut rule = Map::new();
    rule.insert("verbs".to_owned(), verbs.into());
    rule.insert("apiGroups".to_owned(), groups.into());
    rule.insert("resources".to_owned(), next().into());
    let names = next();
    if !names.is_empty() {
        rule.insert("resourceNames".to_owned(), names.into());
    }
    rule.into()
}

fn binding(line: &str) -> Value {
    let mut words = line.split(' ');
    let (namespace, metadata) = metadata(words.next().unwrap_or_default());
    let role = words.next().unwrap_or_default();
    let subjects: Vec<Value> = words
        .filter_map(|word| {
            let (kind, name) = word.split_once(':')?;
            Some(match kind {
                "s" => {
                    let (namespace, name) = name.split_once('/')?;
                    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
                }
                kind => {
                    json!({"apiGroup": GROUP, "kind": if kind == "g" { "Group" } else { "User" }, "name": name})
                }
            })
        })
        .collect();
    let (kind, role_kind) = if namespace.is_some() {
        ("RoleBinding", "Role")
    } else {
        ("ClusterRoleBinding", "ClusterRole")
    };
    let mut binding = json!({
        "apiVersion": API_VERSION, "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role},
    });
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    binding
}

/// Fills in the aggregated roles, as the controller does later: they are right from the first
/// moment on.
fn aggregate(roles: &mut [Value]) {
    // `edit` is aggregated from `view`: one round for each step of that ladder.
    for _ in 0..3 {
        for at in 0..roles.len() {
            let Some(wanted) =
                roles[at]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"].as_object()
            else {
                continue;
            };
            let Some(label) = wanted.keys().next().cloned() else {
                continue;
            };
            let mut sources: Vec<&Value> = roles
                .iter()
                .filter(|role| role["metadata"]["labels"][&label] == "true")
                .collect();
            sources.sort_by_key(|role| role["metadata"]["name"].as_str());
            let mut rules: Vec<Value> = Vec::new();
            for rule in sources
                .into_iter()
                .flat_map(|role| role["rules"].as_array().into_iter().flatten())
            {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            roles[at]["rules"] = rules.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_meant() {
        let policy = read();
        let role = |name: &str| {
            policy
                .roles
                .iter()
                .find(|role| role["metadata"]["name"] == name)
                .unwrap()
        };
        assert_eq!(
            role("cluster-admin")["rules"][0],
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        );
        assert_eq!(
            role("cluster-admin")["rules"][1],
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]})
        );
        let signer = role("system:certificates.k8s.io:kubelet-serving-approver");
        assert_eq!(
            signer["rules"][0]["resourceNames"],
            json!(["kubernetes.io/kubelet-serving"])
        );
        let binding = |name: &str| {
            policy
                .bindings
                .iter()
                .find(|one| one["metadata"]["name"] == name)
                .unwrap()
        };
        assert_eq!(
            binding("cluster-admin")["subjects"][0]["name"],
            "system:masters"
        );
        let job = binding("system:controller:job-controller");
        assert_eq!(
            job["subjects"],
            json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": "job-controller"}])
        );
        assert!(
            policy.roles.len() > 65 && policy.bindings.len() > 50,
            "{} {}",
            policy.roles.len(),
            policy.bindings.len()
        );
    }

    #[test]
    fn aggregated_roles_have_what_they_aggregate() {
        let policy = read();
        let rules = |name: &str| {
            policy
                .roles
                .iter()
                .find(|role| role["metadata"]["name"] == name)
                .unwrap()["rules"]
                .to_string()
        };
        assert!(rules("view").contains("pods/log") && !rules("view").contains("secrets"));
        assert!(rules("edit").contains("secrets") && rules("edit").contains("pods/log"));
        assert!(rules("admin").contains("rolebindings") && rules("admin").contains("pods/log"));
    }
}
