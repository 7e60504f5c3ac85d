//! `matchLabelKeys` and `mismatchLabelKeys`: what a pod is to have in common with others, and what
//! not, by its own labels.
//!
//! A new pod's labels become part of its selectors, so that a later change of a label does not
//! change them, and so that whoever reads a stored pod needs its selectors alone.
//!
//! Source: `mutatePodAffinity` and `mutateTopologySpreadConstraints` in
//! `pkg/registry/core/pod/strategy.go`, `ValidateMatchLabelKeysAndMismatchLabelKeys` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::{HashMap, HashSet};

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::scheduling::{PREFERRED, REQUIRED};
use crate::{
    check, fill,
    value::{items, keys, string},
};

/// Puts the labels of a new pod into its selectors.
pub fn merge(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let spec = &mut pod["spec"];
    fill::each(spec, "topologySpreadConstraints", |constraint| {
        merge_term(constraint, &labels);
    });
    fill::within(spec, "affinity", |affinity| {
        for kind in ["podAffinity", "podAntiAffinity"] {
            fill::within(affinity, kind, |kind| {
                fill::each(kind, REQUIRED, |term| merge_term(term, &labels));
                fill::each(kind, PREFERRED, |term| {
                    fill::within(term, "podAffinityTerm", |term| merge_term(term, &labels));
                });
            });
        }
    });
}

/// A term without a selector selects nothing: there is nothing to narrow.
fn merge_term(term: &mut Value, labels: &Value) {
    let requirements: Vec<Value> = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")]
        .into_iter()
        .flat_map(|(field, operator)| {
            let of_pod = move |key: &Value| {
                let value = labels[string(key)].as_str()?;
                Some(json!({"key": key, "operator": operator, "values": [value]}))
            };
            items(&term[field]).iter().filter_map(of_pod)
        })
        .collect();
    if requirements.is_empty() || !term["labelSelector"].is_object() {
        return;
    }
    let selector = &mut term["labelSelector"];
    fill::value(selector, "matchExpressions", Vec::<Value>::new());
    if let Some(present) = selector["matchExpressions"].as_array_mut() {
        present.extend(requirements);
    }
}

/// Checks both lists of keys of a term with a selector, which the labels may be part of already.
pub(super) fn validate(errors: &mut FieldErrors, path: &str, term: &Value) {
    let selector = &term["labelSelector"];
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = format!("{path}.{field}");
        let list = items(&term[field]);
        if !list.is_empty() && !selector.is_object() {
            let message = "must not be specified when labelSelector is not set";
            errors.forbidden(path, message);
            continue;
        }
        for (index, key) in list.iter().enumerate() {
            check::qualified_name(errors, &format!("{path}[{index}]"), key);
        }
    }
    let same = items(&term["matchLabelKeys"]);
    let indexes: HashMap<&str, usize> = same.iter().map(string).zip(0..).collect();
    let mut selected: HashSet<&str> = keys(&selector["matchLabels"]).collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = string(&expression["key"]);
        if !selected.insert(key)
            && let Some(index) = indexes.get(key)
        {
            // Upstream's path, without the name of the list.
            let message = "exists in both matchLabelKeys and labelSelector";
            errors.invalid(format!("{path}[{index}]"), &key.into(), message);
        }
    }
    let other: HashSet<_> = items(&term["mismatchLabelKeys"]).iter().collect();
    for (index, key) in same.iter().enumerate() {
        if other.contains(key) {
            let message = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(format!("{path}.matchLabelKeys[{index}]"), key, message);
        }
    }
}
