//! What a ResourceClaim uses: the devices of each class that it may come to have.
//!
//! Not here: devices that are asked for as an extended resource, which no pod can do yet.
//!
//! Source: `pkg/quota/v1/evaluator/core/resource_claims.go` at v1.37.

use std::collections::BTreeMap;

use serde_json::Value;

use super::units;
use crate::{meta, resource_list::Amounts};

/// How the name of what is used of a class ends.
const DEVICES_OF_A_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// As many as a claim can be given, for one that asks for all there are.
///
/// Source: `k8s.io/api/resource/v1/types.go`, `AllocationResultsMaxSize`.
const MOST_DEVICES: usize = 32;

pub(super) fn is_name(name: &str) -> bool {
    name.ends_with(DEVICES_OF_A_CLASS)
}

pub(super) fn usage(amounts: &mut Amounts, claim: &Value) {
    let mut total: BTreeMap<&str, usize> = BTreeMap::new();
    for request in meta::get_array(claim, &["spec", "devices", "requests"]) {
        // Of alternatives each class counts with the one that asks for most of it.
        let mut most: BTreeMap<&str, usize> = BTreeMap::new();
        let alternatives = meta::get_array(request, &["firstAvailable"]).iter();
        for one in alternatives.chain(request.get("exactly")) {
            let asked = most
                .entry(meta::get_str(one, &["deviceClassName"]))
                .or_default();
            *asked = devices(one).max(*asked);
        }
        for (class, devices) in most {
            let sum = total.entry(class).or_default();
            *sum = sum.saturating_add(devices);
        }
    }
    for (class, devices) in total {
        amounts.insert(format!("{class}{DEVICES_OF_A_CLASS}"), units(devices));
    }
}

/// What a mode that is not known asks for is not known either.
fn devices(request: &Value) -> usize {
    match meta::get_str(request, &["allocationMode"]) {
        "ExactCount" => meta::get_i64(request, &["count"])
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or_default(),
        "All" => MOST_DEVICES,
        _ => 0,
    }
}
