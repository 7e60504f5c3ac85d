//! Lease: who holds something, and since when: node heartbeats and leader election.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of Leases.
pub struct Lease;

static INFO: ResourceInfo = ResourceInfo { kind: "Lease", plural: "leases", singular: "lease", ..super::V1 };

static COLUMNS: &[Column] =
    &[NAME, text("Holder", "holderIdentity contains the identity of the holder of a current lease."), AGE];

impl Strategy for Lease {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let holder = cells::string(&object["spec"]["holderIdentity"]);
        vec![cells::name(object), holder.into(), cells::age(object, now_secs)]
    }
}
