//! Source NAT for pod traffic that leaves the cluster, and the permission to be forwarded: a
//! network's configuration as a plan for `coracle-netfilter`.

use coracle_netfilter::{
    iptables::{self, Iptables, IptablesError},
    masquerade::Masquerade,
};

use crate::conf::NetConf;

/// Writes what is missing of the rules of `conf`'s network. Idempotent; takes some milliseconds.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, conf: &NetConf) -> Result<(), IptablesError> {
    iptables::masquerade::ensure(iptables, &plan(conf)).map(drop)
}

/// Removes the rules of `conf`'s network.
///
/// # Errors
/// [`IptablesError`].
pub fn remove(iptables: &Iptables, conf: &NetConf) -> Result<(), IptablesError> {
    iptables::masquerade::remove(iptables, &plan(conf))
}

/// What the network's pods send out, as a plan.
#[must_use]
pub fn plan(conf: &NetConf) -> Masquerade {
    Masquerade {
        network: conf.name.clone(),
        subnet: conf.ipam.subnet.into(),
        translate: conf.ip_masq,
        except: conf.no_masquerade.iter().copied().map(Into::into).collect(),
    }
}
