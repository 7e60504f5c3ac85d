//! Source NAT for pod traffic that leaves the cluster, and the permission to be forwarded: a
//! network's configuration as a plan for `coracle-netfilter`, and for the plugin as a program the
//! choice of what it is written over.

use coracle_netfilter::{
    engine::EngineError,
    iptables::{self, Iptables, IptablesError},
    masquerade::Masquerade,
    nftables::node::{self, network},
};

use crate::{
    conf::{MasqueradeBackend, NetConf},
    error::CniError,
};

/// Writes what is missing of the rules of `conf`'s network over what fits this machine, and takes
/// away what is of the other. Idempotent; takes some milliseconds.
///
/// # Errors
/// [`CniError::Iptables`], [`CniError::Rules`].
pub fn keep(conf: &NetConf) -> Result<(), CniError> {
    let iptables = Iptables::find();
    let is_installed = iptables.is_ok();
    // What cannot be asked is told when it is written to.
    let backend = backend(conf, is_installed, || node::is_there().unwrap_or(false));
    match backend {
        MasqueradeBackend::Nftables => {
            let written = network::ensure(iptables.ok(), &plan(conf));
            written.map(drop).map_err(EngineError::new)?;
        }
        MasqueradeBackend::Iptables => {
            ensure(&iptables?, conf)?;
            network::remove(&conf.name).map_err(EngineError::new)?;
        }
    }
    Ok(())
}

/// What the configuration says. Else nftables where the node's agent keeps its rules so, or where
/// there is nothing else; else iptables, as upstream's plugins prefer.
fn backend(
    conf: &NetConf,
    has_iptables: bool,
    agent_is_over_nftables: impl FnOnce() -> bool,
) -> MasqueradeBackend {
    match conf.ip_masq_backend {
        Some(asked) => asked,
        None if !has_iptables || agent_is_over_nftables() => MasqueradeBackend::Nftables,
        None => MasqueradeBackend::Iptables,
    }
}

/// Writes what is missing of the rules of `conf`'s network over iptables. Idempotent.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, conf: &NetConf) -> Result<(), IptablesError> {
    iptables::masquerade::ensure(iptables, &plan(conf)).map(drop)
}

/// Removes the rules of `conf`'s network, whatever they were written over.
///
/// # Errors
/// [`CniError::Iptables`], [`CniError::Rules`].
pub fn remove(conf: &NetConf) -> Result<(), CniError> {
    network::remove(&conf.name).map_err(EngineError::new)?;
    // Where it is not installed it has left nothing.
    if let Ok(iptables) = Iptables::find() {
        iptables::masquerade::remove(&iptables, &plan(conf))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nftables_is_chosen_where_the_agent_has_it_or_nothing_else_is_there() {
        use MasqueradeBackend::{Iptables, Nftables};
        let mut conf = NetConf::parse(
            br#"{"cniVersion":"1.0.0","name":"n","type":"coracle-cni","ipam":{"subnet":"10.1.0.0/24"}}"#,
        )
        .unwrap();
        for (asked, installed, agent, expected) in [
            (None, true, false, Iptables),
            (None, true, true, Nftables),
            (None, false, false, Nftables),
            (Some(Iptables), false, true, Iptables),
            (Some(Nftables), true, false, Nftables),
        ] {
            conf.ip_masq_backend = asked;
            let chosen = backend(&conf, installed, || agent);
            assert_eq!(chosen, expected, "{asked:?} {installed} {agent}");
        }
    }
}
