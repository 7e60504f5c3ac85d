//! The quality-of-service class of a pod, from its requests and limits.
//!
//! Source: `pkg/apis/core/helper/qos/qos.go` at v1.37.

use std::collections::BTreeMap;

use coracle_api::quantity::Quantity;
use serde_json::Value;

use crate::registry::cells::{items, string};

type Amounts = BTreeMap<String, Quantity>;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut is_guaranteed = true;
    let whole_pod = &spec["resources"];
    let mut add = |resources: &Value| {
        sum(&mut requests, &resources["requests"]);
        is_guaranteed &= sum(&mut limits, &resources["limits"]) == 2;
    };
    if whole_pod["requests"].is_object() || whole_pod["limits"].is_object() {
        add(whole_pod);
    } else {
        for list in ["initContainers", "containers"] {
            items(&spec[list]).iter().for_each(|container| add(&container["resources"]));
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if is_guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds up cpu and memory; says how many of the two are there.
fn sum(total: &mut Amounts, amounts: &Value) -> usize {
    let mut found = 0;
    for resource in ["cpu", "memory"] {
        let Ok(amount) = Quantity::parse(string(&amounts[resource])) else { continue };
        if amount.is_zero() {
            continue;
        }
        found += 1;
        match total.get_mut(resource) {
            Some(sum) => *sum += amount,
            None => {
                total.insert(resource.to_owned(), amount);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn class_follows_requests_and_limits() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, expect) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": both, "requests": both}), "Guaranteed"),
            (json!({"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), "Guaranteed"),
            (json!({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}), "Burstable"),
            (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
        ] {
            assert_eq!(class(&json!({"containers": [{"resources": resources}]})), expect, "{resources}");
        }
        let mixed = json!({"containers": [{"resources": {"limits": both, "requests": both}}, {"resources": {}}]});
        assert_eq!(class(&mixed), "Burstable");
    }
}
