//! What one Service alone may have: its cluster address, ports of the nodes. Each has an entry in
//! the store that says whose it is: an address an IPAddress object, a port one that only servers
//! see.
//!
//! Entries are written and removed in the Service's own transactions, and made only where there is
//! none. So nothing is given out twice and nothing left behind, through whichever server, and
//! whoever hangs up in between. What other ways have brought out of step is set right by
//! [`super::repair`].
//!
//! Source: `pkg/registry/core/service/ipallocator/ipallocator.go`,
//! `pkg/registry/core/service/portallocator` (one object with all ports of a cluster) at v1.37.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use coracle_api::meta;
use coracle_store::Op;
use serde_json::{Value, json};

use super::node_ports;
use crate::{encode, object_meta, resource::Resource, store::companions::Companions};

const ADDRESSES: &str = "/registry/networking.k8s.io/ipaddresses/";
pub(crate) const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "ipallocator.k8s.io";
/// Most of what a write takes, and of what it frees: with all else its transaction has to be one
/// that the store carries out.
pub(crate) const MOST_AT_ONCE: usize = 100;

/// One thing that one Service alone may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Allocation {
    /// In the cluster.
    Address(Ipv4Addr),
    /// Of every node, whatever the protocol.
    Port(u16),
}

impl Allocation {
    /// Where its entry is.
    pub(crate) fn key(self) -> Arc<str> {
        match self {
            Self::Address(address) => format!("{ADDRESSES}{address}").into(),
            Self::Port(port) => format!("{}{port}", node_ports::PREFIX).into(),
        }
    }

    /// What the entry at this key is of.
    pub(crate) fn at(key: &str) -> Option<Self> {
        let address = || Some(Self::Address(key.strip_prefix(ADDRESSES)?.parse().ok()?));
        let port = || {
            Some(Self::Port(
                key.strip_prefix(node_ports::PREFIX)?.parse().ok()?,
            ))
        };
        address().or_else(port)
    }

    /// Makes the entry.
    pub(crate) fn put(self, namespace: &str, service: &str) -> Op {
        let parent = json!({"resource": "services", "namespace": namespace, "name": service});
        let mut entry = match self {
            Self::Address(address) => json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
                "metadata": {"name": address.to_string(),
                    "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4", MANAGED_BY: MANAGER}},
            }),
            Self::Port(port) => json!({
                "apiVersion": "coracle.dev/v1", "kind": "ServiceNodePort",
                "metadata": {"name": port.to_string()},
            }),
        };
        entry["spec"] = json!({"parentRef": parent});
        object_meta::fill_new(&mut entry);
        Op::Put {
            key: self.key(),
            value: encode::encode(&entry).expect("it is a few levels deep"),
        }
    }
}

/// All that a Service has.
pub(crate) fn of(service: &Value) -> BTreeSet<Allocation> {
    let address = meta::get_str(service, &["spec", "clusterIP"]).parse().ok();
    let ports = meta::get_array(service, &["spec", "ports"])
        .iter()
        .map(|port| &port["nodePort"]);
    let ports = ports
        .chain([&service["spec"]["healthCheckNodePort"]])
        .filter_map(|port| u16::try_from(port.as_u64()?).ok())
        .filter(|port| *port > 0);
    let address = address.map(Allocation::Address);
    address
        .into_iter()
        .chain(ports.map(Allocation::Port))
        .collect()
}

/// What has to be written with a Service that is made (`old` is `None`), changed, or removed (`new`
/// is `None`).
pub(crate) fn companions(
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Companions {
    let mut companions = Companions::default();
    if !resource.is_core("services") {
        return companions;
    }
    let (before, after) = (
        old.map(of).unwrap_or_default(),
        new.map(of).unwrap_or_default(),
    );
    if let Some(service) = new {
        for allocation in after.difference(&before) {
            companions.claims.push(allocation.key());
            let (namespace, name) = (meta::namespace(service), meta::name(service));
            companions.ops.push(allocation.put(namespace, name));
        }
    }
    // A Service of before there was a bound can go all the same: what does not fit is a leak, and
    // repaired.
    let room = (MOST_AT_ONCE + 2).saturating_sub(companions.ops.len());
    let freed = before.difference(&after).take(room);
    companions.ops.extend(freed.map(|allocation| Op::Delete {
        key: allocation.key(),
    }));
    companions
}
