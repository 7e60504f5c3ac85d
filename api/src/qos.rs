//! The quality-of-service class of a pod, from its requests and limits: one answer for the API
//! server that tells it and for the node that acts on it.
//!
//! Source: `pkg/apis/core/helper/qos/qos.go` at v1.37.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use serde_json::Value;

use crate::{meta, quantity::Quantity};

/// What counts.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// `status.qosClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// Has all it may use for itself.
    Guaranteed,
    /// Asks for some of it.
    Burstable,
    /// Asks for nothing.
    BestEffort,
}

impl QosClass {
    /// As the API has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort]
            .into_iter()
            .find(|class| class.as_str() == name)
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The class of a pod with this `spec`, held as JSON.
#[must_use]
pub fn class_of_json(spec: &Value) -> QosClass {
    let of = |resources: &Value| {
        let list = |list: &str, name: &str| Quantity::parse(resources[list][name].as_str()?).ok();
        Amounts::of(|name| list("requests", name), |name| list("limits", name))
    };
    let whole = &spec["resources"];
    let is_whole = whole["requests"].is_object() || whole["limits"].is_object();
    let lists = ["initContainers", "containers"].into_iter();
    let containers = lists
        .flat_map(|list| meta::get_array(spec, &[list]))
        .map(|container| of(&container["resources"]));
    class(is_whole.then(|| of(whole)), containers)
}

/// The class of a pod with this `spec`.
#[must_use]
pub fn class_of(spec: &PodSpec) -> QosClass {
    fn of(resources: Option<&ResourceRequirements>) -> Amounts {
        let get = |map: Option<&BTreeMap<String, ApiQuantity>>, name: &str| {
            Quantity::parse(&map?.get(name)?.0).ok()
        };
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        Amounts::of(|name| get(requests, name), |name| get(limits, name))
    }
    let whole = spec
        .resources
        .as_ref()
        .filter(|whole| whole.requests.is_some() || whole.limits.is_some());
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    class(
        whole.map(|whole| of(Some(whole))),
        containers.map(|container| of(container.resources.as_ref())),
    )
}

/// What one container, or the pod as a whole, says of each resource; nothing is as good as unsaid.
struct Amounts {
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
}

impl Amounts {
    fn of(
        request: impl Fn(&str) -> Option<Quantity>,
        limit: impl Fn(&str) -> Option<Quantity>,
    ) -> Self {
        let said = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
        Self {
            requests: RESOURCES.map(|name| said(request(name))),
            limits: RESOURCES.map(|name| said(limit(name))),
        }
    }
}

/// What is said for the whole pod stands for all its containers.
fn class(whole: Option<Amounts>, containers: impl Iterator<Item = Amounts>) -> QosClass {
    let mut total = Amounts {
        requests: [None; 2],
        limits: [None; 2],
    };
    let mut all_limited = true;
    let mut add = |amounts: Amounts| {
        for (sum, amount) in total.requests.iter_mut().zip(amounts.requests) {
            *sum = plus(*sum, amount);
        }
        for (sum, amount) in total.limits.iter_mut().zip(amounts.limits) {
            *sum = plus(*sum, amount);
        }
        all_limited &= amounts.limits.iter().all(Option::is_some);
    };
    match whole {
        Some(whole) => add(whole),
        None => containers.for_each(add),
    }
    if total
        .requests
        .iter()
        .chain(&total.limits)
        .all(Option::is_none)
    {
        QosClass::BestEffort
    } else if all_limited && total.requests == total.limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn plus(sum: Option<Quantity>, amount: Option<Quantity>) -> Option<Quantity> {
    match (sum, amount) {
        (Some(sum), Some(amount)) => Some(sum + amount),
        (sum, amount) => sum.or(amount),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(spec: Value, expected: &str) {
        assert_eq!(class_of_json(&spec).as_str(), expected, "as JSON: {spec}");
        let typed: PodSpec = serde_json::from_value(spec.clone()).expect("spec");
        assert_eq!(class_of(&typed).as_str(), expected, "typed: {spec}");
    }

    #[test]
    fn class_follows_requests_and_limits() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (
                json!({"requests": {"ephemeral-storage": "1Gi"}}),
                "BestEffort",
            ),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": both, "requests": both}), "Guaranteed"),
            (
                json!({"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}),
                "Guaranteed",
            ),
            (
                json!({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}),
                "Burstable",
            ),
            (
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
                "Burstable",
            ),
        ] {
            check(
                json!({"containers": [{"name": "a", "resources": resources}]}),
                expected,
            );
        }
        let full = json!({"name": "a", "resources": {"limits": both, "requests": both}});
        check(
            json!({"containers": [full, {"name": "b", "resources": {}}]}),
            "Burstable",
        );
        check(
            json!({"containers": [full], "initContainers": [{"name": "i"}]}),
            "Burstable",
        );
    }

    #[test]
    fn what_is_said_of_the_pod_stands_for_its_containers() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (whole, expected) in [
            (json!({"limits": both, "requests": both}), "Guaranteed"),
            (json!({"requests": both}), "Burstable"),
            (
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
                "Burstable",
            ),
            (json!({}), "BestEffort"),
        ] {
            check(
                json!({"resources": whole, "containers": [{"name": "a"}]}),
                expected,
            );
        }
        let container = json!({"name": "a", "resources": {"limits": both, "requests": both}});
        check(
            json!({"resources": {"requests": {"cpu": "2"}}, "containers": [container]}),
            "Burstable",
        );
    }

    #[test]
    fn classes_have_upstreams_names() {
        for class in [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ] {
            assert_eq!(QosClass::from_name(&class.to_string()), Some(class));
        }
        assert_eq!(QosClass::from_name(""), None);
    }
}
