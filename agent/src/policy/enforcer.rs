//! What the kernel is told of policies, and asked about. Blocks.

use std::{collections::BTreeSet, io, net::IpAddr};

use coracle_cni::{
    CniError,
    bridged::{self, Bridged},
    netlink::{Netlink, NetlinkError},
};
use coracle_netfilter::{
    nftables::policies::{Left, Policies, PoliciesError},
    policy::{Change, Plan},
    refused,
};
use coracle_telemetry::ErrorChain;

use crate::node::address::own_addresses;

/// Why pods are not held to their policies.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnforceError {
    #[error(transparent)]
    Rules(#[from] PoliciesError),
    #[error("see whether pods are on a bridge")]
    Links(#[from] NetlinkError),
    #[error("have what pods of one bridge send each other pass the node's rules")]
    Setting(#[from] CniError),
    #[error(
        "what pods of one bridge send each other does not pass the node's rules, for which it takes the kernel's module br_netfilter: {0}"
    )]
    Unfiltered(String),
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    AllRight,
    /// Others had changed something.
    Mended,
    /// Others have removed rules that only a predecessor knew: whom they selected is shut off.
    ShutOff,
}

/// What is enforced, in the calling thread's namespace.
#[derive(Debug)]
pub(super) struct Enforcer {
    engine: Policies,
    /// Until this one has written a plan of its own.
    left: Option<Left>,
    /// Whether this node's own network has them on a bridge.
    has_bridge: bool,
}

impl Enforcer {
    /// What a predecessor has left stays until there is a plan.
    pub(super) fn begin(own_service_ips: Vec<IpAddr>, has_bridge: bool) -> Self {
        let left = Left::find(own_service_ips.clone())
            .inspect_err(|error| {
                tracing::debug!(error = %ErrorChain(error), "cannot see whether NetworkPolicy rules are left");
            })
            .ok();
        if left.as_ref().is_some_and(Left::is_any) {
            tracing::info!(
                "NetworkPolicy rules are kept as they were left until it is known what there is"
            );
        }
        Self {
            engine: Policies::new(own_service_ips),
            left,
            has_bridge,
        }
    }

    /// Carries a change out. Without any policy nothing is asked of a kernel that may not be able
    /// to answer.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), EnforceError> {
        match self.engine.apply(change) {
            Err(error @ PoliciesError::List(_)) if self.has_none() => {
                tracing::debug!(error = %ErrorChain(&error), "cannot see whether NetworkPolicy rules are left");
            }
            outcome => outcome?,
        }
        self.left = None;
        self.pass_bridged()?;
        Ok(())
    }

    /// What is written, or shall be.
    pub(super) fn plan(&self) -> &Plan {
        self.engine.plan()
    }

    /// Whether a policy decides on what one of these gets or sends.
    pub(super) fn selects(&self, addresses: &[IpAddr]) -> bool {
        let plan = self.engine.plan();
        addresses
            .iter()
            .any(|ip| plan.to.contains_key(ip) || plan.from.contains_key(ip))
    }

    /// Sees whether others changed something, and mends it; after a failure (`is_failing`) all is
    /// written anew anyway.
    pub(super) fn look(&mut self, is_failing: bool) -> Result<Seen, EnforceError> {
        if let Some(left) = &mut self.left {
            return Ok(match left.keep()? {
                true => Seen::ShutOff,
                false => Seen::AllRight,
            });
        }
        if is_failing || self.has_none() {
            return Ok(Seen::AllRight);
        }
        let is_mended = self.pass_bridged()? | self.engine.reconcile()?;
        Ok(match is_mended {
            true => Seen::Mended,
            false => Seen::AllRight,
        })
    }

    /// Ends connections that policies do not let through any more. Returns how many.
    pub(super) fn cut(&self) -> io::Result<usize> {
        let own: BTreeSet<IpAddr> = own_addresses()?.collect();
        refused::cut(self.engine.plan(), |address| own.contains(&address))
    }

    fn has_none(&self) -> bool {
        self.engine.plan().chains.is_empty()
    }

    /// Rules are of use only if packets pass them. Says whether some did not.
    fn pass_bridged(&self) -> Result<bool, EnforceError> {
        if self.has_none() {
            return Ok(false);
        }
        match bridged::ensure()? {
            Bridged::Filtered => Ok(false),
            Bridged::Mended => Ok(true),
            Bridged::Unfiltered { why } if self.has_bridge || is_any_bridge()? => {
                Err(EnforceError::Unfiltered(why))
            }
            Bridged::Unfiltered { .. } => Ok(false),
        }
    }
}

fn is_any_bridge() -> Result<bool, NetlinkError> {
    let links = Netlink::open()?.links()?;
    Ok(links.iter().any(|link| link.is_bridge))
}
