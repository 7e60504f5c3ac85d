//! What has to be known of Services to answer for their names. Whoever has them implements
//! [`Directory`]; a lookup is for one name and takes microseconds.

use std::{net::IpAddr, sync::Arc};

/// Where names are looked up. Names are in lower case.
pub trait Directory: Send + Sync + 'static {
    /// Whether all there is has been seen once: before, what is not there may be all the same.
    fn is_complete(&self) -> bool;

    /// The Service of that name.
    fn service(&self, namespace: &str, name: &str) -> Option<Service>;

    /// Whether there is such a namespace, or may be.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// The endpoints of a Service that are ready, or count as such.
    fn endpoints(&self, namespace: &str, service: &str) -> Vec<Endpoint>;

    /// The Service with that address.
    fn service_at(&self, address: IpAddr) -> Option<ServiceName>;

    /// The endpoints with that address that are ready, or count as such, each with its Service.
    fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)>;

    /// The namespace of the pod with that address, if it is one of this node's.
    fn namespace_of(&self, asker: IpAddr) -> Option<String>;
}

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    /// Where it is.
    pub namespace: String,
    /// Its own.
    pub name: String,
}

/// What of a Service names speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// It has addresses of its own.
    Addresses {
        /// Of either family.
        addresses: Vec<IpAddr>,
        /// All of its ports.
        ports: Vec<Port>,
    },
    /// Its addresses are its endpoints'.
    Headless,
    /// Another name.
    External(String),
}

/// A port by which others find it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Empty where it is the only one.
    pub name: String,
    /// In lower case, as names have it: `tcp`.
    pub protocol: &'static str,
    /// The number.
    pub number: u16,
}

/// One address behind a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub address: IpAddr,
    /// The pod's, if it has chosen one.
    pub hostname: Option<String>,
    /// Of its slice.
    pub ports: Arc<[Port]>,
}

impl Endpoint {
    /// The first label of its name: the hostname, or the address in dashes.
    pub fn label(&self) -> String {
        match &self.hostname {
            Some(hostname) => hostname.to_lowercase(),
            None => self.address.to_string().replace(['.', ':'], "-"),
        }
    }
}
