//! Fills in the rules of ClusterRoles that are made from others: `admin`, `edit`, `view` and
//! people's own.
//!
//! Source: `pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go` at v1.37.

use std::sync::Arc;

use coracle_api::selector::LabelSelector;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Client;
use serde_json::json;

use crate::{
    Manager,
    builder::{Builder, Queue},
    cache::{Cache, Change, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    writes::Write,
};

/// A label that every role of a new cluster has: nobody aggregates by it.
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// The controller; its state is in the cache.
pub(crate) struct ClusterRoleAggregation {
    client: Client,
    roles: Arc<Cache<ClusterRole>>,
}

impl ClusterRoleAggregation {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let name = "clusterrole-aggregation-controller";
        let mut controller = Builder::managed_by(manager, name, "ClusterRoleAggregator");
        let this = Arc::new(Self {
            client: context.client.clone(),
            roles: controller.reads(),
        });
        controller.on_change(&this, Self::role_changed);
        controller.complete(this);
    }

    /// Any role may be a source of any aggregated one.
    fn role_changed(&self, change: &Change<'_, ClusterRole>, queue: &Queue) {
        let aggregated = self.roles.filter(|role| role.aggregation_rule.is_some());
        aggregated
            .iter()
            .for_each(|role| queue.add(Key::of(role.as_ref())));
        if change.latest().aggregation_rule.is_some() {
            queue.add(Key::of(change.latest().as_ref()));
        }
    }
}

impl Reconciler for ClusterRoleAggregation {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(role) = self.roles.get(&key) else {
            return Ok(None);
        };
        let Some(rules) = plan(&role, self.roles.all()) else {
            return Ok(None);
        };
        let write = Write::to(&self.client, &*role, "aggregate ClusterRole");
        write.patch(json!({"rules": rules})).await?;
        Ok(None)
    }
}

/// The rules that `role` should have; `None` if it has them, or is not made from others.
fn plan(role: &ClusterRole, mut all: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
    let selectors = role
        .aggregation_rule
        .as_ref()?
        .cluster_role_selectors
        .as_deref()
        .unwrap_or_default();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        // A selector that cannot be read selects nothing.
        let Some(selector) = serde_json::to_value(selector)
            .ok()
            .and_then(|value| LabelSelector::from_object(&value).ok())
        else {
            continue;
        };
        let selected = all
            .iter()
            .filter(|source| source.metadata.name != role.metadata.name)
            .filter(|source| {
                let labels = source.metadata.labels.as_ref();
                selector.matches(|key| labels?.get(key).map(String::as_str))
            });
        for rule in selected.flat_map(|source| source.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules.as_slice()).then_some(rules)
}

/// Drops the rules that nobody aggregates.
pub(crate) fn trim(role: &mut ClusterRole) {
    role.metadata.annotations = None;
    let is_source = role
        .metadata
        .labels
        .iter()
        .flatten()
        .any(|(label, _)| label != BOOTSTRAPPING);
    if !is_source && role.aggregation_rule.is_none() {
        role.rules = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(value: serde_json::Value) -> Arc<ClusterRole> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn source(name: &str, label: &str, verb: &str) -> Arc<ClusterRole> {
        role(
            json!({"metadata": {"name": name, "labels": {label: "true"}},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]}),
        )
    }

    #[test]
    fn rules_come_from_the_selected_roles_by_name() {
        let aggregated = role(
            json!({"metadata": {"name": "all", "labels": {"a": "true"}}, "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"a": "true"}}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}]}}),
        );
        let all = vec![
            source("z", "a", "get"),
            source("y", "a", "list"),
            source("x", "b", "watch"),
            source("w", "b", "get"),
            source("v", "c", "delete"),
            aggregated.clone(),
        ];
        let rules = plan(&aggregated, all.clone()).unwrap();
        let verbs: Vec<&str> = rules.iter().map(|rule| rule.verbs[0].as_str()).collect();
        assert_eq!(verbs, ["list", "get", "watch"]);
        let mut done = (*aggregated).clone();
        done.rules = Some(rules);
        assert_eq!(plan(&done, all.clone()), None);
        assert_eq!(plan(&all[0], all.clone()), None);
    }
}
