//! Endpoints: the addresses behind a Service, in the form that EndpointSlices replaced.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of Endpoints.
pub struct Endpoints;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, text("Endpoints", "The set of all endpoints is the union of all subsets."), AGE];

impl Strategy for Endpoints {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), addresses(&object["subsets"]).into(), cells::age(object, now_secs)]
    }
}

/// At most three of `address:port`, and how many there are besides.
fn addresses(subsets: &Value) -> String {
    const MAX: usize = 3;
    let subsets = cells::items(subsets);
    if subsets.is_empty() {
        return cells::NONE.to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || cells::items(&subset["addresses"]).iter().map(|address| cells::string(&address["ip"]));
        let ports = cells::items(&subset["ports"]);
        // A headless service may have no ports.
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = cells::number(&port["port"]);
            all.extend(ips().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }));
        }
    }
    let shown = all.iter().take(MAX).map(String::as_str).collect::<Vec<_>>().join(",");
    if all.len() > MAX { format!("{shown} + {} more...", all.len() - MAX) } else { shown }
}
