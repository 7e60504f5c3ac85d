//! Lease: who holds something, and since when: node heartbeats and leader election.

use coracle_api::{
    meta::{self, NODE_LEASE_NAMESPACE},
    status::FieldErrors,
};
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value,
};

/// The strategy of Leases.
pub struct Lease;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    create_on_update: true,
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Holder",
        "holderIdentity contains the identity of the holder of a current lease.",
    ),
    AGE,
];

impl BuiltIn for Lease {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let seconds = &spec["leaseDurationSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(
                "spec.leaseDurationSeconds",
                seconds,
                "must be greater than 0",
            );
        }
        let transitions = &spec["leaseTransitions"];
        if transitions
            .as_i64()
            .is_some_and(|transitions| transitions < 0)
        {
            errors.invalid(
                "spec.leaseTransitions",
                transitions,
                "must be greater than or equal to 0",
            );
        }
        if spec["preferredHolder"].is_string() && spec["strategy"].is_null() {
            errors.forbidden(
                "spec.preferredHolder",
                "may only be specified if `strategy` is defined",
            );
        }
        errors
    }

    /// A node that cannot renew its own is taken for dead.
    fn may_use_disk_reserve(&self, object: &Value) -> bool {
        meta::namespace(object) == NODE_LEASE_NAMESPACE
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let holder = value::string(&object["spec"]["holderIdentity"]);
        vec![
            cells::name(object),
            holder.into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn leases_are_checked() {
        for (spec, expect) in [
            (
                json!({"leaseDurationSeconds": 40, "holderIdentity": "n"}),
                "",
            ),
            (
                json!({"leaseDurationSeconds": 0}),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                json!({"leaseTransitions": -1}),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
        ] {
            assert_eq!(create_errors(&Lease, json!({"spec": spec})), expect);
        }
    }

    #[test]
    fn nodes_leases_alone_may_use_the_reserve() {
        for (namespace, expect) in [("kube-node-lease", true), ("kube-system", false)] {
            let lease = json!({"metadata": {"name": "n1", "namespace": namespace}});
            assert_eq!(Lease.may_use_disk_reserve(&lease), expect, "{namespace}");
        }
    }

    #[test]
    fn rows_show_the_holder() {
        let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
        assert_eq!(
            json!(Lease.row(&lease, 0)),
            json!(["n1", "n1", "<unknown>"])
        );
    }
}
