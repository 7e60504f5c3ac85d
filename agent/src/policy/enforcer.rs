//! What the kernel is told of policies, and asked about. Blocks.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use coracle_cni::{
    CniError,
    bridged::{self, Bridged},
    netlink::{Link, Netlink, NetlinkError},
};
use coracle_netfilter::{
    nftables::policies::{Left, NodeNetwork, Policies, PoliciesError, RefusedPolicies},
    policy::{Change, Plan, Selected},
    refused,
};
use coracle_telemetry::ErrorChain;

use super::selected::SelectedFile;
use crate::node::address::own_addresses;

/// Between two tries to load a module that is not there.
const LOAD_PAUSE: Duration = Duration::from_secs(60);

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
    selected: SelectedFile,
    /// Whether this node's own network has them on a bridge.
    has_bridge: bool,
    /// When the module may be loaded again.
    load_at: Option<Instant>,
}

impl Enforcer {
    /// What a predecessor has left stays until there is a plan. What it had selected of those that
    /// are `attached` is missed if it is not there.
    pub(super) fn begin(
        node: NodeNetwork,
        (selected, attached): (PathBuf, &BTreeSet<IpAddr>),
    ) -> Self {
        let has_bridge = node.bridge.is_some();
        let selected = SelectedFile::open(selected);
        let left = Left::find(node.clone(), selected.among(attached))
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
            engine: Policies::new(node),
            left,
            selected,
            has_bridge,
            load_at: None,
        }
    }

    /// Carries a change out. Without any policy nothing is asked of a kernel that may not be able
    /// to answer.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), EnforceError> {
        // From here on the rules are this one's, also if the kernel takes them in part.
        self.left = None;
        let mut next = Selected::of(self.engine.plan());
        next.apply(change);
        self.selected.take_out(&next);
        let written = match self.engine.apply(change) {
            Err(error @ PoliciesError::List(_)) if self.has_none() => {
                tracing::debug!(error = %ErrorChain(&error), "cannot see whether NetworkPolicy rules are left");
                Ok(())
            }
            written => written,
        };
        if written.is_ok() {
            self.selected.write(next);
        }
        let bridged = self.pass_bridged(!self.has_none());
        written?;
        bridged?;
        Ok(())
    }

    /// Whose rules the kernel has refused since the last call: they let nothing through.
    pub(super) fn take_refused(&mut self) -> Vec<RefusedPolicies> {
        self.engine.take_refused()
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

    /// Sees whether others changed something, and mends it. Rules and settings do not wait for each
    /// other; what the kernel refused last is tried again in its own time.
    pub(super) fn look(&mut self) -> Result<Seen, EnforceError> {
        let (rules, has_rules) = match &mut self.left {
            Some(left) => (left.keep().map(|shut| (shut, Seen::ShutOff)), left.is_any()),
            None => {
                let is_due = !self.engine.is_suspect();
                let has_rules = !self.engine.plan().chains.is_empty();
                let mended = (is_due && has_rules).then(|| self.engine.reconcile());
                let mended = mended.unwrap_or(Ok(false));
                (mended.map(|mended| (mended, Seen::Mended)), has_rules)
            }
        };
        let bridged = self.pass_bridged(has_rules);
        Ok(match (rules?, bridged?) {
            ((true, seen), _) => seen,
            ((false, _), true) => Seen::Mended,
            ((false, _), false) => Seen::AllRight,
        })
    }

    /// Ends connections that policies do not let through any more. Returns how many.
    pub(super) fn cut(&self) -> io::Result<usize> {
        let own: BTreeSet<IpAddr> = own_addresses()?.collect();
        let shut = self.left.as_ref().and_then(Left::plan);
        let plan = shut.unwrap_or_else(|| self.engine.plan());
        refused::cut(plan, |address| own.contains(&address))
    }

    fn has_none(&self) -> bool {
        self.engine.plan().chains.is_empty()
    }

    /// Rules are of use only if packets pass them. Says whether some did not.
    fn pass_bridged(&mut self, has_rules: bool) -> Result<bool, EnforceError> {
        if !has_rules {
            return Ok(false);
        }
        let is_due = self.load_at.is_none_or(|at| at <= Instant::now());
        match bridged::ensure(is_due)? {
            Bridged::Filtered => Ok(false),
            Bridged::Mended => Ok(true),
            Bridged::Unfiltered { why } => {
                if is_due {
                    self.load_at = Some(Instant::now() + LOAD_PAUSE);
                }
                match self.has_bridge || is_any_bridge()? {
                    true => Err(EnforceError::Unfiltered(why)),
                    false => Ok(false),
                }
            }
        }
    }
}

/// Whether a bridge joins anything: Docker's, say, is there on many machines, and mostly empty.
fn is_any_bridge() -> Result<bool, NetlinkError> {
    let links = Netlink::open()?.links()?;
    Ok(is_joined(&links))
}

fn is_joined(links: &[Link]) -> bool {
    let mut bridges = links.iter().filter(|link| link.is_bridge);
    bridges.any(|bridge| {
        links
            .iter()
            .any(|link| link.controller == Some(bridge.index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_without_ports_joins_nobody() {
        let link = |index, is_bridge, controller| Link {
            index,
            name: format!("l{index}"),
            address: Vec::new(),
            mtu: 1500,
            controller,
            is_bridge,
            vxlan_port: None,
            up: true,
        };
        let (docker, routed) = (link(1, true, None), link(2, false, None));
        assert!(!is_joined(&[docker.clone(), routed.clone()]));
        // A port of something else than a bridge.
        assert!(!is_joined(&[
            docker.clone(),
            link(3, false, Some(2)),
            routed.clone()
        ]));
        assert!(is_joined(&[docker, routed, link(3, false, Some(1))]));
    }
}
