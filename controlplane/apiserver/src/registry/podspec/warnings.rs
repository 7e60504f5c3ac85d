//! What is allowed in a pod spec and yet hardly meant.
//!
//! Source: `pkg/api/pod/warnings.go` at v1.37, of which this is the part that users meet.

use coracle_api::quantity::Quantity;
use serde_json::Value;

use super::defaults::CONTAINER_LISTS;
use crate::registry::cells::{items, string};

/// Warnings about a pod spec at `path`.
#[must_use]
pub fn spec(path: &str, spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, secret) in items(&spec["imagePullSecrets"]).iter().enumerate() {
        if string(&secret["name"]).is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|grace| grace < 0) {
        warnings.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for list in CONTAINER_LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            hidden_variables(&mut warnings, &path, container);
            fractions_of_bytes(&mut warnings, &path, container);
            repeated_ports(&mut warnings, &path, container);
        }
    }
    warnings
}

fn hidden_variables(warnings: &mut Vec<String>, path: &str, container: &Value) {
    let variables = items(&container["env"]);
    for (index, variable) in variables.iter().enumerate() {
        let name = string(&variable["name"]);
        // A later one may refer to an earlier one of the same name; that is no mistake.
        let refers = string(&variable["value"]).contains(&format!("$({name})"));
        if !refers && variables[..index].iter().any(|earlier| earlier["name"] == variable["name"]) {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn fractions_of_bytes(warnings: &mut Vec<String>, path: &str, container: &Value) {
    for list in ["limits", "requests"] {
        for resource in ["memory", "ephemeral-storage"] {
            let text = string(&container["resources"][list][resource]);
            if Quantity::parse(text).is_ok_and(|amount| amount.milli_value() % 1000 != 0) {
                warnings.push(format!(
                    "{path}.resources.{list}[{resource}]: fractional byte value {text:?} is invalid, must be an integer"
                ));
            }
        }
    }
}

fn repeated_ports(warnings: &mut Vec<String>, path: &str, container: &Value) {
    let ports = items(&container["ports"]);
    for (index, port) in ports.iter().enumerate() {
        let same = |earlier: &Value| {
            ["containerPort", "protocol", "hostPort", "hostIP"].iter().all(|field| earlier[*field] == port[*field])
        };
        if let Some(earlier) = ports[..index].iter().position(same) {
            warnings.push(format!("{path}.ports[{index}]: duplicate port definition with {path}.ports[{earlier}]"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn oddities_are_pointed_out() {
        for (container, expect) in [
            (
                json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                json!({"resources": {"limits": {"memory": "100m"}}}),
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ),
            (
                json!({"ports": [{"containerPort": 1}, {"containerPort": 1}]}),
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ),
        ] {
            assert_eq!(spec("spec", &json!({"containers": [container]})), [expect]);
        }
        assert!(
            spec("spec", &json!({"containers": [{"env": [{"name": "A"}, {"name": "A", "value": "$(A):x"}]}]}))
                .is_empty()
        );
    }
}
