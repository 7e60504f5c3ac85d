//! Endpoints: the addresses behind a Service, in the form that EndpointSlices replaced.

use std::net::IpAddr;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, items, string},
};

/// The strategy of Endpoints.
pub struct Endpoints;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Endpoints",
        "The set of all endpoints is the union of all subsets.",
    ),
    AGE,
];

impl BuiltIn for Endpoints {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        fill::each(object, "subsets", |subset| {
            fill::each(subset, "ports", |port| fill::text(port, "protocol", "TCP"));
        });
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for (index, one) in items(&object["subsets"]).iter().enumerate() {
            subset(&mut errors, &format!("subsets[{index}]"), one);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            addresses(&object["subsets"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// At most three of `address:port`, and how many there are besides.
fn addresses(subsets: &Value) -> String {
    const MAX: usize = 3;
    let subsets = value::items(subsets);
    if subsets.is_empty() {
        return cells::NONE.to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || {
            value::items(&subset["addresses"])
                .iter()
                .map(|address| value::string(&address["ip"]))
        };
        let ports = value::items(&subset["ports"]);
        // A headless service may have no ports.
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = value::number(&port["port"]);
            all.extend(ips().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    let shown = all
        .iter()
        .take(MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",");
    if all.len() > MAX {
        format!("{shown} + {} more...", all.len() - MAX)
    } else {
        shown
    }
}

fn subset(errors: &mut FieldErrors, path: &str, subset: &Value) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| items(&subset[*list]).is_empty()) {
        errors.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in lists {
        for (index, address) in items(&subset[list]).iter().enumerate() {
            endpoint_address(errors, &format!("{path}.{list}[{index}]"), address);
        }
    }
    let ports = items(&subset["ports"]);
    for (index, port) in ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        if !string(&port["name"]).is_empty() {
            check::dns_label(errors, &format!("{path}.name"), &port["name"]);
        } else if ports.len() > 1 {
            errors.required(format!("{path}.name"), "");
        }
        check::port_number(
            errors,
            &format!("{path}.port"),
            &port["port"].as_i64().unwrap_or(0).into(),
        );
        check::one_of(
            errors,
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if port["appProtocol"].is_string() {
            check::qualified_name(errors, &format!("{path}.appProtocol"), &port["appProtocol"]);
        }
    }
}

fn endpoint_address(errors: &mut FieldErrors, path: &str, address: &Value) {
    endpoint_ip(errors, &format!("{path}.ip"), &address["ip"]);
    if !string(&address["hostname"]).is_empty() {
        check::dns_label(errors, &format!("{path}.hostname"), &address["hostname"]);
    }
    if address["nodeName"].is_string() {
        check::dns_subdomain(errors, &format!("{path}.nodeName"), &address["nodeName"]);
    }
}

/// An address that traffic may be sent to: not one that means something else on every machine.
pub(crate) fn endpoint_ip(errors: &mut FieldErrors, path: &str, value: &Value) {
    match string(value).parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical() == ip => {
            if let Some(message) = check::special_ip_error(ip) {
                errors.invalid(path, value, message);
            }
        }
        _ => check::ip(errors, path, value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created};

    #[test]
    fn endpoints_are_checked() {
        for (subset, expect) in [
            (
                json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}),
                "",
            ),
            (
                json!({}),
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
            ),
            (
                json!({"addresses": [{"ip": "x"}]}),
                "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                json!({"addresses": [{"ip": "127.0.0.1"}]}),
                "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ),
            (
                json!({"addresses": [{"ip": "::ffff:127.0.0.1"}]}),
                "subsets[0].addresses[0].ip: Invalid value: \"::ffff:127.0.0.1\": must not be an IPv4-mapped IPv6 address",
            ),
            (
                json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0}]}),
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}, {"port": 2, "name": "b"}]}),
                "subsets[0].ports[0].name: Required value",
            ),
        ] {
            assert_eq!(
                create_errors(&Endpoints, json!({"subsets": [subset]})),
                expect
            );
        }
    }

    #[test]
    fn rows_show_three_addresses() {
        let ips = |count: usize| {
            (1..=count)
                .map(|n| json!({"ip": format!("10.0.0.{n}")}))
                .collect::<Vec<_>>()
        };
        let endpoints = |count| {
            created(
                &Endpoints,
                json!({"subsets": [{"addresses": ips(count), "ports": [{"port": 80}]}]}),
            )
        };
        assert_eq!(
            Endpoints.row(&endpoints(2), 0)[1],
            "10.0.0.1:80,10.0.0.2:80"
        );
        assert_eq!(
            Endpoints.row(&endpoints(5), 0)[1],
            "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more..."
        );
        assert_eq!(Endpoints.row(&json!({}), 0)[1], "<none>");
        assert_eq!(
            Endpoints.row(&json!({"subsets": [{"addresses": ips(1)}]}), 0)[1],
            "10.0.0.1"
        );
    }
}
