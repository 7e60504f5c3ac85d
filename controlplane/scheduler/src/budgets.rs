//! PodDisruptionBudgets: which pods had better not be preempted.
//!
//! Source: `filterPodsWithPDBViolation` in
//! `pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use coracle_api::selector::LabelSelector;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::pod_info::{PodInfo, selector};

/// The budgets of each namespace, by name.
#[derive(Debug, Default)]
pub(crate) struct Budgets(HashMap<String, BTreeMap<String, Budget>>);

/// What a budget says.
#[derive(Debug)]
struct Budget {
    selector: LabelSelector,
    allowed: i64,
    /// Pods whose end is counted already.
    disrupted: BTreeSet<String>,
}

impl Budget {
    fn new(budget: &PodDisruptionBudget) -> Option<Self> {
        let selector = selector(budget.spec.as_ref()?.selector.as_ref(), Vec::new());
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Some(Self {
            selector,
            allowed: status
                .and_then(|status| status.disruptions_allowed)
                .map_or(0, i64::from),
            disrupted: disrupted
                .into_iter()
                .flat_map(BTreeMap::keys)
                .cloned()
                .collect(),
        })
        // One that selects by nothing protects nobody from preemption.
        .filter(|budget| !budget.selector.is_everything())
    }

    fn counts(&self, pod: &PodInfo) -> bool {
        let label = |key: &str| pod.labels.get(key).map(String::as_str);
        !pod.labels.is_empty()
            && self.selector.matches(label)
            && !self.disrupted.contains(&pod.name)
    }
}

impl Budgets {
    /// Takes over a budget, or that it is gone.
    pub(crate) fn set(&mut self, namespace: &str, name: &str, to: Option<&PodDisruptionBudget>) {
        if let Some(budget) = to.and_then(Budget::new) {
            let all = self.0.entry(namespace.to_owned()).or_default();
            all.insert(name.to_owned(), budget);
        } else if let Some(all) = self.0.get_mut(namespace) {
            all.remove(name);
            if all.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// Those whose end a budget does not allow after that of those before them, and the others;
    /// each in the order of `pods`.
    pub(crate) fn split(&self, pods: &[Arc<PodInfo>]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
        let mut left: HashMap<(&str, &str), i64> = HashMap::new();
        pods.iter().cloned().partition(|pod| {
            let mut violates = false;
            let all = self.0.get_key_value(&pod.namespace);
            let all = all.iter().flat_map(|(namespace, all)| {
                all.iter()
                    .map(move |(name, budget)| (namespace, name, budget))
            });
            for (namespace, name, budget) in all.filter(|(.., budget)| budget.counts(pod)) {
                let left = left.entry((namespace, name)).or_insert(budget.allowed);
                *left -= 1;
                violates |= *left < 0;
            }
            violates
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::pod_of;

    fn pod(name: &str, labels: Value) -> Arc<PodInfo> {
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": labels});
        Arc::new(pod_of(
            json!({"metadata": metadata, "spec": {"containers": []}}),
        ))
    }

    fn violating(budgets: &[Value], pods: &[Arc<PodInfo>]) -> Vec<String> {
        let mut all = Budgets::default();
        for (number, budget) in budgets.iter().enumerate() {
            let budget = serde_json::from_value(budget.clone()).unwrap();
            all.set("default", &number.to_string(), Some(&budget));
        }
        let (violating, _) = all.split(pods);
        violating.iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn a_budget_allows_so_many_ends_and_no_more() {
        let web = json!({"matchLabels": {"app": "web"}});
        let pods = ["a", "b", "c"].map(|name| pod(name, json!({"app": "web"})));
        let budget = |status: Value| json!({"spec": {"selector": web}, "status": status});
        let status = |allowed: i32| json!({"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3});
        assert_eq!(violating(&[budget(status(1))], &pods), ["b", "c"]);
        assert_eq!(violating(&[budget(status(3))], &pods), [""; 0]);
        let mut counted = status(1);
        counted["disruptedPods"] = json!({"a": "2026-01-01T00:00:00Z"});
        assert_eq!(
            violating(&[budget(counted)], &pods),
            ["c"],
            "one is counted already"
        );
        assert_eq!(
            violating(&[budget(status(2)), budget(status(0))], &pods),
            ["a", "b", "c"]
        );
    }

    #[test]
    fn a_budget_of_others_or_of_everybody_protects_nobody() {
        let pods = [pod("a", json!({"app": "web"})), pod("b", json!({}))];
        let none = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
        for selector in [
            json!({}),
            json!({"matchLabels": {"app": "db"}}),
            Value::Null,
        ] {
            let budget = json!({"spec": {"selector": selector}, "status": none});
            assert_eq!(violating(&[budget], &pods), [""; 0], "{selector}");
        }
        let absent = json!({"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, "status": none});
        assert_eq!(
            violating(&[absent], &pods),
            [""; 0],
            "pods without labels are in no budget"
        );
    }
}
