//! Amounts by resource name, such as `requests` and `limits` of a container: upstream's
//! `ResourceList`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by resource name, such as `cpu` or `example.com/gpu`.
pub type Amounts = BTreeMap<String, Quantity>;

/// A list of the API as amounts; what cannot be read is left out, for the API server admits no such
/// thing.
#[must_use]
pub fn amounts(list: &BTreeMap<String, ApiQuantity>) -> Amounts {
    let one = |(name, amount): (&String, &ApiQuantity)| {
        Some((name.clone(), Quantity::parse(&amount.0).ok()?))
    };
    list.iter().filter_map(one).collect()
}

/// The same of a list that is held as JSON.
#[must_use]
pub fn amounts_of_json(list: &Value) -> Amounts {
    let one = |(name, amount): (&String, &Value)| {
        Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?))
    };
    list.as_object()
        .into_iter()
        .flatten()
        .filter_map(one)
        .collect()
}

/// Adds `more` to `total`.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => *sum += *amount,
            None => drop(total.insert(name.clone(), *amount)),
        }
    }
}

/// Raises what `total` has less of to what `other` has.
pub fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if total.get(name).is_none_or(|present| present < amount) {
            total.insert(name.clone(), *amount);
        }
    }
}
