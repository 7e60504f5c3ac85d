//! EndpointSlice: some of the addresses behind a Service.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

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
    text("AddressType", "addressType specifies the type of address carried by this EndpointSlice."),
    text("Ports", "ports specifies the list of network ports exposed by each endpoint in this slice."),
    text("Endpoints", "endpoints is a list of unique endpoints in this slice."),
    AGE,
];

impl Strategy for EndpointSlice {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let ports = cells::items(&object["ports"]).iter().map(port).collect::<Vec<_>>();
        let addresses = cells::items(&object["endpoints"])
            .iter()
            .flat_map(|endpoint| cells::items(&endpoint["addresses"]))
            .map(|address| cells::string(address).to_owned())
            .collect::<Vec<_>>();
        vec![
            cells::name(object),
            cells::string(&object["addressType"]).into(),
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
