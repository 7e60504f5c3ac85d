//! What is kept of ServiceCIDRs. Pure.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;

/// The ranges of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceCidrPart {
    pub(crate) cidrs: Vec<IpNet>,
}

impl From<ServiceCIDR> for ServiceCidrPart {
    fn from(range: ServiceCIDR) -> Self {
        let cidrs = range.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        Self {
            cidrs: cidrs.iter().filter_map(|cidr| cidr.parse().ok()).collect(),
        }
    }
}
