//! ServiceAccount: who the processes of a pod are to the API.

use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value,
};

/// The strategy of ServiceAccounts.
pub struct ServiceAccount;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    subresources: &[Subresource::Token],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Secrets",
        "Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use.",
    ),
    AGE,
];

impl BuiltIn for ServiceAccount {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ServiceAccount {
    fn warnings(&self, object: &Value) -> Vec<String> {
        const ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";
        let says =
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        let is_set = object["metadata"]["annotations"][ANNOTATION].is_string();
        is_set
            .then(|| format!("metadata.annotations[{ANNOTATION}]: {says}"))
            .into_iter()
            .collect()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::len(&object["secrets"]).into(),
            cells::age(object, now_secs),
        ]
    }
}
