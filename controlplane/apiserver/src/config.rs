//! What a server is made from.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    sync::Arc,
};

use coracle_admission::AdmissionConfig;
use coracle_auth::user::UserInfo;
use ipnet::IpNet;

use crate::pki::Pki;

/// Where node ports come from, unless told otherwise.
pub const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;

/// What an [`ApiServer`](crate::ApiServer) is made from. All values are validated by who builds it.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    /// Certificates and keys.
    pub pki: Arc<Pki>,
    /// Where ClusterIPs come from.
    pub service_cidr: IpNet,
    /// Where node ports come from.
    pub node_ports: RangeInclusive<u16>,
    /// The address clients reach this server at, as published in the `kubernetes` Endpoints.
    pub advertise: SocketAddr,
    /// Bearer tokens known from the start.
    pub static_tokens: HashMap<String, UserInfo>,
    /// What plugins of admission are told.
    pub admission: AdmissionConfig,
    /// Requests in flight, watches and streams not counted, before 429: of all who have no share of
    /// their own.
    pub max_in_flight: usize,
    /// Whether the StorageClass for directories of nodes is made where it is missing.
    pub local_storage: bool,
    /// Whether nodes answer names, at the address of a Service that is made for that.
    pub dns: bool,
    /// Connections at once. Beyond, those go first whose client has not said who it is.
    pub max_connections: usize,
}

impl ApiServerConfig {
    /// Upstream's defaults around what has no default.
    pub fn new(pki: Arc<Pki>, service_cidr: IpNet, advertise: SocketAddr) -> Self {
        Self {
            pki,
            service_cidr,
            node_ports: NODE_PORTS,
            advertise,
            static_tokens: HashMap::new(),
            admission: AdmissionConfig::default(),
            max_in_flight: 600,
            local_storage: false,
            dns: false,
            max_connections: 4096,
        }
    }
}

/// The first address of `service_cidr`: the `kubernetes` Service's.
pub fn first_service_ip(service_cidr: &IpNet) -> IpAddr {
    match service_cidr.trunc() {
        IpNet::V4(net) => Ipv4Addr::from(u32::from(net.addr()).saturating_add(1)).into(),
        IpNet::V6(net) => Ipv6Addr::from(u128::from(net.addr()).saturating_add(1)).into(),
    }
}
