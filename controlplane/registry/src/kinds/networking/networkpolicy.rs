//! NetworkPolicy: which traffic pods may send and receive.
//!
//! Source: `pkg/registry/networking/networkpolicy/strategy.go`, `pkg/apis/networking/validation` at
//! v1.37.

use coracle_api::{name, status::FieldErrors};
use ipnet::IpNet;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{items, number, string},
};

/// The strategy of NetworkPolicies.
pub struct NetworkPolicy;

static INFO: ResourceInfo = ResourceInfo {
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Pod-Selector",
        "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
    ),
    AGE,
];

impl BuiltIn for NetworkPolicy {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::object(spec, "podSelector");
        for direction in ["ingress", "egress"] {
            fill::each(spec, direction, |rule| {
                fill::each(rule, "ports", |port| fill::text(port, "protocol", "TCP"));
            });
        }
        if items(&spec["policyTypes"]).is_empty() {
            let mut types = vec!["Ingress"];
            if !items(&spec["egress"]).is_empty() {
                types.push("Egress");
            }
            spec["policyTypes"] = types.into();
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::label_selector(&mut errors, "spec.podSelector", &spec["podSelector"]);
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (index, rule) in items(&spec[direction]).iter().enumerate() {
                let path = format!("spec.{direction}[{index}]");
                for (index, one) in items(&rule["ports"]).iter().enumerate() {
                    port(&mut errors, &format!("{path}.ports[{index}]"), one);
                }
                for (index, one) in items(&rule[peers]).iter().enumerate() {
                    peer(&mut errors, &format!("{path}.{peers}[{index}]"), one);
                }
            }
        }
        let types = items(&spec["policyTypes"]);
        if types.len() > 2 {
            errors.invalid(
                "spec.policyTypes",
                &spec["policyTypes"],
                "may not specify more than two policyTypes",
            );
            return errors;
        }
        for (index, one) in types.iter().enumerate() {
            let path = format!("spec.policyTypes[{index}]");
            if !matches!(string(one), "Ingress" | "Egress") {
                errors.not_supported(path, one, &["Egress", "Ingress"]);
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            cells::label_selector(&object["spec"]["podSelector"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

fn port(errors: &mut FieldErrors, path: &str, port: &Value) {
    check::optional_one_of(
        errors,
        &format!("{path}.protocol"),
        &port["protocol"],
        &["SCTP", "TCP", "UDP"],
    );
    let (first, last) = (&port["port"], &port["endPort"]);
    let last_path = format!("{path}.endPort");
    match first {
        Value::Null => {
            if !last.is_null() {
                errors.required(
                    format!("{path}.port"),
                    "must be specified when `endPort` is specified",
                );
            }
        }
        Value::String(text) => {
            if !last.is_null() {
                errors.invalid(
                    last_path,
                    last,
                    "may not be specified when `port` is non-numeric",
                );
            }
            check::invalid_all(
                errors,
                &format!("{path}.port"),
                first,
                name::port_name_errors(text),
            );
        }
        _ => {
            check::port_number(errors, &format!("{path}.port"), first);
            if !last.is_null() {
                if number(last) < number(first) {
                    errors.invalid(&last_path, last, "must be greater than or equal to `port`");
                }
                check::port_number(errors, &last_path, last);
            }
        }
    }
}

fn peer(errors: &mut FieldErrors, path: &str, peer: &Value) {
    let mut count = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if peer[selector].is_object() {
            count += 1;
            check::label_selector(errors, &format!("{path}.{selector}"), &peer[selector]);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        ip_block(errors, &format!("{path}.ipBlock"), block);
        if count > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if count == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn ip_block(errors: &mut FieldErrors, path: &str, block: &Value) {
    if string(&block["cidr"]).is_empty() {
        errors.required(format!("{path}.cidr"), "");
        return;
    }
    let Some(whole) = check::cidr(errors, &format!("{path}.cidr"), &block["cidr"]) else {
        return;
    };
    for (index, except) in items(&block["except"]).iter().enumerate() {
        let path = format!("{path}.except[{index}]");
        let Some(part) = check::cidr(errors, &path, except) else {
            continue;
        };
        let is_part =
            whole.trunc().contains(&IpNet::trunc(&part)) && whole.prefix_len() < part.prefix_len();
        if !is_part {
            errors.invalid(path, except, "must be a strict subset of `cidr`");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created};

    #[test]
    fn defaults_are_upstreams() {
        let object = created(
            &NetworkPolicy,
            json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
        );
        assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(
            json!(NetworkPolicy.row(&object, 0)),
            json!(["", "<none>", "<unknown>"])
        );
    }

    #[test]
    fn policies_are_checked() {
        let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
        let ports = |port: Value| json!({"podSelector": {}, "ingress": [{"ports": [port]}]});
        for (spec, expect) in [
            (json!({"podSelector": {}}), ""),
            (
                from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}})),
                "",
            ),
            (
                from(json!({})),
                "spec.ingress[0].from[0]: Required value: must specify a peer",
            ),
            (
                from(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
                "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
            ),
            (
                from(json!({"ipBlock": {"cidr": "x"}})),
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (
                from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}})),
                "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
            ),
            (
                ports(json!({"port": 5, "endPort": 3})),
                "spec.ingress[0].ports[0].endPort: Invalid value: 3: must be greater than or equal to `port`",
            ),
            (
                ports(json!({"port": 5, "protocol": "x"})),
                "spec.ingress[0].ports[0].protocol: Unsupported value: \"x\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
            (
                json!({"policyTypes": ["x"]}),
                "spec.policyTypes[0]: Unsupported value: \"x\": supported values: \"Egress\", \"Ingress\"",
            ),
        ] {
            assert_eq!(create_errors(&NetworkPolicy, json!({"spec": spec})), expect);
        }
    }
}
