//! What a look has found, in upstream's words. Pure.

use std::net::IpAddr;

use serde_json::Value;

use super::super::allocation::Allocation;
use crate::{
    value::{items, string},
    watch_cache::Entry,
};

const OF_ADDRESSES: &str = "ipallocator-repair-controller";
const OF_RANGES: &str = "kubernetes-service-cidr-controller";
const OF_PORTS: &str = "portallocator-repair-controller";
const PLEASE: &str = "please recreate service";

/// Something that is not as it should be: a warning about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object.
    pub about: About,
    /// Who says so.
    pub component: &'static str,
    /// For programs: one word in CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A Service, an IPAddress or a ServiceCIDR.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// Such as `v1`.
    pub api_version: &'static str,
    /// Such as `Service`.
    pub kind: &'static str,
    /// Empty for what is no Service.
    pub namespace: String,
    /// The object's.
    pub name: String,
    /// The object's.
    pub uid: String,
}

impl About {
    fn service(entry: &Entry) -> Self {
        Self {
            api_version: "v1",
            kind: "Service",
            ..Self::address(entry)
        }
    }

    fn range(entry: &Entry) -> Self {
        Self {
            kind: "ServiceCIDR",
            ..Self::address(entry)
        }
    }

    fn address(entry: &Entry) -> Self {
        Self {
            api_version: "networking.k8s.io/v1",
            kind: "IPAddress",
            namespace: entry.namespace().unwrap_or_default().to_owned(),
            name: entry.name().to_owned(),
            uid: entry.uid().to_owned(),
        }
    }
}

fn of(
    service: &Entry,
    allocation: Allocation,
    reasons: [&'static str; 2],
    message: String,
) -> Finding {
    let [of_address, of_port] = reasons;
    let (component, reason) = match allocation {
        Allocation::Address(_) => (OF_ADDRESSES, of_address),
        Allocation::Port(_) => (OF_PORTS, of_port),
    };
    Finding {
        about: About::service(service),
        component,
        reason,
        message,
    }
}

/// Its entry was not there.
pub(super) fn not_allocated(service: &Entry, allocation: Allocation) -> Finding {
    let message = match allocation {
        Allocation::Address(ip) => format!("Cluster IP [IPv4]: {ip} is not allocated; repairing"),
        Allocation::Port(port) => format!("Port {port} is not allocated; repairing"),
    };
    let reasons = ["ClusterIPNotAllocated", "PortNotAllocated"];
    of(service, allocation, reasons, message)
}

/// Its entry said that it was another's, which has it not.
pub(super) fn wrong_reference(service: &Entry, allocation: Allocation) -> Finding {
    let Allocation::Address(ip) = allocation else {
        return not_allocated(service, allocation);
    };
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name());
    Finding {
        message: format!(
            "the ClusterIP [IPv4]: {ip} for Service {namespace}/{name} has a wrong reference; repairing"
        ),
        ..not_allocated(service, allocation)
    }
}

/// It is another's.
pub(super) fn already_allocated(service: &Entry, allocation: Allocation) -> Finding {
    let what = match allocation {
        Allocation::Address(ip) => format!("Cluster IP [IPv4]:{ip}"),
        Allocation::Port(port) => format!("Port {port}"),
    };
    let message = format!("{what} was assigned to multiple services; {PLEASE}");
    let reasons = ["ClusterIPAlreadyAllocated", "PortAlreadyAllocated"];
    of(service, allocation, reasons, message)
}

/// No node has that port for Services. `range` is such as `30000-32767`.
pub(super) fn port_out_of_range(service: &Entry, port: u16, range: &str) -> Finding {
    let message = format!("Port {port} is not within the port range {range}; {PLEASE}");
    let reasons = ["", "PortOutOfRange"];
    of(service, Allocation::Port(port), reasons, message)
}

/// It is in no range of the cluster.
pub(super) fn ip_out_of_range(service: &Entry, ip: IpAddr) -> Finding {
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    Finding {
        about: About::service(service),
        component: OF_ADDRESSES,
        reason: "ClusterIPOutOfRange",
        message: format!(
            "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; {PLEASE}"
        ),
    }
}

/// It is no address. Upstream, which has not parsed it, has nothing to say in its place.
pub(super) fn ip_not_valid(service: &Entry, text: &str) -> Finding {
    Finding {
        about: About::service(service),
        component: OF_ADDRESSES,
        reason: "ClusterIPNotValid",
        message: format!("Cluster IP {text} is not a valid IP; please recreate Service"),
    }
}

/// Its Service, `namespace/name`, has gone, or has another address.
pub(super) fn stray(address: &Entry, service: &str, is_gone: bool) -> Finding {
    let ip = address.name();
    let (reason, how) = if is_gone {
        ("IPAddressNotAllocated", "appears to have leaked:")
    } else {
        ("IPAddressWrongReference", "has a wrong reference;")
    };
    Finding {
        about: About::address(address),
        component: OF_ADDRESSES,
        reason,
        message: format!("IPAddress: {ip} for Service {service} {how} cleaning up"),
    }
}

/// The server's own range is not what it was started with.
pub(super) fn another_range(range: &Entry, found: &Value, own: &str) -> Finding {
    let found: Vec<_> = items(found).iter().map(string).collect();
    let found = found.join(" ");
    Finding {
        about: About::range(range),
        component: OF_RANGES,
        reason: "KubernetesDefaultServiceCIDRInconsistent",
        message: format!(
            "The default ServiceCIDR [{found}] does not match the controller flag configurations [{own}]"
        ),
    }
}

/// Somebody says that the server's own range gives out nothing. Upstream's reason is the
/// condition's, whatever that is.
pub(super) fn range_not_ready(range: &Entry, condition: &Value) -> Finding {
    let reason = match string(&condition["reason"]) {
        "Terminating" => "Terminating",
        _ => "KubernetesDefaultServiceCIDRError",
    };
    Finding {
        about: About::range(range),
        component: OF_RANGES,
        reason,
        message: format!(
            "Configuration matches, but {}",
            string(&condition["message"])
        ),
    }
}
