//! EndpointSlice: some of the addresses behind a Service.

use std::collections::BTreeSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    kinds::core::endpoints::endpoint_ip,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, items, string},
};

/// The strategy of EndpointSlices.
pub struct EndpointSlice;

static INFO: ResourceInfo = ResourceInfo {
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "AddressType",
        "addressType specifies the type of address carried by this EndpointSlice.",
    ),
    text(
        "Ports",
        "ports specifies the list of network ports exposed by each endpoint in this slice.",
    ),
    text(
        "Endpoints",
        "endpoints is a list of unique endpoints in this slice.",
    ),
    AGE,
];

impl BuiltIn for EndpointSlice {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        fill::each(object, "ports", |port| {
            fill::value(port, "name", "");
            fill::text(port, "protocol", "TCP");
        });
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        ["endpoints", "ports", "addressType"]
            .iter()
            .any(|field| new[*field] != old[*field])
            || new["metadata"]["labels"] != old["metadata"]["labels"]
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::one_of(
            &mut errors,
            "addressType",
            &object["addressType"],
            &["FQDN", "IPv4", "IPv6"],
        );
        endpoints(&mut errors, object);
        ports(&mut errors, &object["ports"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "addressType", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let ports = value::items(&object["ports"])
            .iter()
            .map(port)
            .collect::<Vec<_>>();
        let addresses = value::items(&object["endpoints"])
            .iter()
            .flat_map(|endpoint| value::items(&endpoint["addresses"]))
            .map(|address| value::string(address).to_owned())
            .collect::<Vec<_>>();
        vec![
            cells::name(object),
            value::string(&object["addressType"]).into(),
            at_most_three(&ports).into(),
            at_most_three(&addresses).into(),
            cells::age(object, now_secs),
        ]
    }
}

fn port(port: &Value) -> String {
    match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    }
}

fn at_most_three(list: &[String]) -> String {
    const MAX: usize = 3;
    let shown = list[..list.len().min(MAX)].join(",");
    if list.len() > MAX {
        format!("{shown} + {} more...", list.len() - MAX)
    } else if shown.is_empty() {
        "<unset>".to_owned()
    } else {
        shown
    }
}

const MAX_ADDRESSES: usize = 100;
const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY_KEYS: usize = 16;

fn endpoints(errors: &mut FieldErrors, object: &Value) {
    let endpoints = items(&object["endpoints"]);
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many("endpoints", endpoints.len(), MAX_ENDPOINTS);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{index}]");
        let addresses = items(&endpoint["addresses"]);
        if addresses.is_empty() {
            errors.required(
                format!("{path}.addresses"),
                "must contain at least 1 address",
            );
        } else if addresses.len() > MAX_ADDRESSES {
            errors.too_many(format!("{path}.addresses"), addresses.len(), MAX_ADDRESSES);
        }
        for (index, address) in addresses.iter().enumerate() {
            endpoint_address(
                errors,
                &format!("{path}.addresses[{index}]"),
                address,
                string(&object["addressType"]),
            );
        }
        if endpoint["nodeName"].is_string() {
            check::dns_subdomain(errors, &format!("{path}.nodeName"), &endpoint["nodeName"]);
        }
        let topology = &endpoint["deprecatedTopology"];
        if value::len(topology) > MAX_TOPOLOGY_KEYS {
            errors.too_many(
                format!("{path}.deprecatedTopology"),
                value::len(topology),
                MAX_TOPOLOGY_KEYS,
            );
        }
        check::labels(errors, &format!("{path}.deprecatedTopology"), topology);
        if endpoint["hostname"].is_string() {
            check::dns_label(errors, &format!("{path}.hostname"), &endpoint["hostname"]);
        }
    }
}

fn endpoint_address(errors: &mut FieldErrors, path: &str, address: &Value, kind: &str) {
    let text = string(address);
    match kind {
        "IPv4" if text.parse::<std::net::Ipv4Addr>().is_err() => {
            errors.invalid(path, address, "must be a valid IPv4 address");
        }
        "IPv6" if text.parse::<std::net::Ipv6Addr>().is_err() => {
            errors.invalid(path, address, "must be a valid IPv6 address");
        }
        "IPv4" | "IPv6" => endpoint_ip(errors, path, address),
        "FQDN" => check::dns_subdomain(errors, path, address),
        _ => {}
    }
}

fn ports(errors: &mut FieldErrors, ports: &Value) {
    let ports = items(ports);
    if ports.len() > MAX_PORTS {
        errors.too_many("ports", ports.len(), MAX_PORTS);
        return;
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("ports[{index}]");
        let name_path = format!("{path}.name");
        if !string(&port["name"]).is_empty() {
            check::dns_label(errors, &name_path, &port["name"]);
        }
        if !names.insert(string(&port["name"])) {
            errors.duplicate(name_path, &port["name"]);
        }
        check::one_of(
            errors,
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if port["port"].is_i64() {
            check::port_number(errors, &format!("{path}.port"), &port["port"]);
        }
        if port["appProtocol"].is_string() {
            check::qualified_name(errors, &format!("{path}.appProtocol"), &port["appProtocol"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, updated, with};

    fn slice() -> Value {
        json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]})
    }

    #[test]
    fn slices_are_checked() {
        for (pointer, value, expect) in [
            ("/addressType", json!("IPv4"), ""),
            (
                "/addressType",
                json!("X"),
                "addressType: Unsupported value: \"X\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
            ),
            (
                "/endpoints",
                json!([{"addresses": []}]),
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
            (
                "/endpoints",
                json!([{"addresses": ["::1"]}]),
                "endpoints[0].addresses[0]: Invalid value: \"::1\": must be a valid IPv4 address",
            ),
            (
                "/endpoints",
                json!([{"addresses": ["127.0.0.1"]}]),
                "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ),
            (
                "/ports",
                json!([{"port": 1}, {"port": 2}]),
                "ports[1].name: Duplicate value: \"\"",
            ),
            (
                "/ports",
                json!([{"port": 1, "protocol": "X"}]),
                "ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
        ] {
            assert_eq!(
                create_errors(&EndpointSlice, with(&slice(), pointer, value)),
                expect
            );
        }
    }

    #[test]
    fn address_type_is_immutable() {
        let old = created(&EndpointSlice, slice());
        let mut new = with(&old, "/addressType", json!("FQDN"));
        new["endpoints"] = json!([]);
        assert_eq!(
            update_errors(&EndpointSlice, new, &old),
            "addressType: Invalid value: \"FQDN\": field is immutable"
        );
    }

    #[test]
    fn generation_counts_endpoints() {
        let old = created(&EndpointSlice, slice());
        assert_eq!(
            updated(&EndpointSlice, old.clone(), &old)["metadata"]["generation"],
            1
        );
        assert_eq!(
            updated(&EndpointSlice, with(&old, "/endpoints", json!([])), &old)["metadata"]["generation"],
            2
        );
    }

    #[test]
    fn rows_show_three_of_each() {
        let mut slice = slice();
        assert_eq!(
            json!(EndpointSlice.row(&slice, 0)),
            json!(["s", "IPv4", "80", "10.0.0.1", "<unknown>"])
        );
        slice["endpoints"] =
            json!([{"addresses": ["a", "b"]}, {"addresses": ["c"]}, {"addresses": ["d"]}]);
        slice["ports"] = json!([{"name": "web"}, {}]);
        let row = EndpointSlice.row(&slice, 0);
        assert_eq!(
            (&row[2], &row[3]),
            (&json!("web,*"), &json!("a,b,c + 1 more..."))
        );
        assert_eq!(EndpointSlice.row(&json!({}), 0)[3], "<unset>");
    }
}
