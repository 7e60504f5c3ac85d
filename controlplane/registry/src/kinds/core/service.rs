//! Service: one stable address for many pods.

mod defaults;
mod load_balancer;
mod validate;
mod warnings;

use std::collections::BTreeSet;

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

pub(crate) use self::{defaults::needs_node_ports, load_balancer::needs_health_check};
use crate::{
    cells::{self, AGE, NAME, NONE, UNKNOWN, text, wide},
    fill,
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value,
};

/// The strategy of Services.
pub struct Service;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[Subresource::Proxy, Subresource::Status],
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Type", "type determines how the Service is exposed."),
    text(
        "Cluster-IP",
        "clusterIP is the IP address of the service and is usually assigned randomly.",
    ),
    text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.",
    ),
    text(
        "Port(s)",
        "The list of ports that are exposed by this service.",
    ),
    AGE,
    wide(
        "Selector",
        "Route service traffic to pods with label keys and values matching this selector.",
    ),
];

impl BuiltIn for Service {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::within(object, "spec", defaults::spec);
        fill::object(object, "status");
        fill::value(&mut object["status"], "loadBalancer", json!({}));
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"loadBalancer": {}})
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        defaults::update(&mut new["spec"], &old["spec"]);
        lifecycle::update(self, new, old);
        if old["spec"]["type"] == "LoadBalancer" && new["spec"]["type"] != "LoadBalancer" {
            new["status"]["loadBalancer"] = json!({});
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate::spec(&mut errors, &object["spec"]);
        load_balancer::source_ranges(&mut errors, object, &Value::Null);
        validate::configured_families(&mut errors, &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate::update(&mut errors, &new["spec"], &old["spec"]);
        validate::spec(&mut errors, &new["spec"]);
        load_balancer::source_ranges(&mut errors, new, old);
        let is_same = |field: &str| new["spec"][field] == old["spec"][field];
        // One that is stored from before this was checked can still be labelled and let go.
        if !["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]
            .into_iter()
            .all(is_same)
        {
            validate::configured_families(&mut errors, &new["spec"]);
        }
        errors
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings::of(object)
    }

    fn name_error(&self, name: &str) -> Option<String> {
        name::dns_label_error(name)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let value = match path {
            "spec.clusterIP" => &object["spec"]["clusterIP"],
            "spec.type" => &object["spec"]["type"],
            _ => &Value::Null,
        };
        value::string(value).to_owned()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let ports: Vec<_> = value::items(&spec["ports"]).iter().map(port).collect();
        vec![
            cells::name(object),
            value::string(&spec["type"]).into(),
            value::string_or(&spec["clusterIPs"][0], NONE).into(),
            external_ip(object).into(),
            if ports.is_empty() {
                NONE.into()
            } else {
                ports.join(",").into()
            },
            cells::age(object, now_secs),
            cells::labels(&spec["selector"]).into(),
        ]
    }
}

/// `80/TCP`, or `80:30080/TCP` with a node port.
fn port(port: &Value) -> String {
    let (number, protocol) = (
        value::number(&port["port"]),
        value::string(&port["protocol"]),
    );
    match value::number(&port["nodePort"]) {
        node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let externals: Vec<_> = value::items(&spec["externalIPs"])
        .iter()
        .map(value::string)
        .collect();
    match value::string(&spec["type"]) {
        "ClusterIP" | "NodePort" => {
            if externals.is_empty() {
                NONE.to_owned()
            } else {
                externals.join(",")
            }
        }
        "LoadBalancer" => {
            let mut all: Vec<&str> = balancer_addresses(&object["status"]["loadBalancer"])
                .into_iter()
                .collect();
            all.extend(externals);
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => value::string(&spec["externalName"]).to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// The addresses or host names of a load balancer's ingress points, sorted.
pub(crate) fn balancer_addresses(status: &Value) -> BTreeSet<&str> {
    value::items(&status["ingress"])
        .iter()
        .map(|ingress| value::string_or(&ingress["ip"], value::string(&ingress["hostname"])))
        .filter(|address| !address.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
