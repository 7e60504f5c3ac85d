//! What is left to iptables' tables where nftables keeps rules.
//!
//! Packets pass both. So what an engine over iptables has left there goes, once the table of
//! nftables is there; and only the permission to be forwarded comes, where iptables decides on
//! that: a rule of another's table cannot overrule `iptables -P FORWARD DROP`, one in that table
//! can. Where nobody uses iptables nothing is asked of it.

use coracle_telemetry::ErrorChain;

use super::{kernel, table::Table};
use crate::{
    OWN_CHAINS,
    iptables::{
        Iptables, IptablesError,
        other::is_in_legacy,
        plan::{self, Chains, Changes},
    },
    netlink::Family,
};

const FILTER: &str = "filter";

/// Whose rules are beside: what takes them from a table, and what permits.
pub(crate) trait Beside {
    /// Where an engine over iptables may have left something.
    fn tables(&self) -> &'static [&'static str];

    /// What takes that away.
    fn removal(&self, table: &str, actual: &Chains) -> Changes;

    /// What makes the filter table permit what is to be forwarded; or takes the permission back.
    fn permission(&self, actual: &Chains, is_needed: bool) -> Changes;
}

/// What was done in the tables of both variants of iptables: the kernel follows whichever is used.
#[derive(Debug)]
pub(crate) struct Iptabled(Vec<Variant>);

#[derive(Debug)]
struct Variant {
    iptables: Iptables,
    /// Nothing of the other engine is left, and the permission is as it should be.
    settled: bool,
}

impl Iptabled {
    /// One that is not installed is not used.
    pub(super) fn new(iptables: Option<Iptables>) -> Self {
        let other = iptables.as_ref().and_then(other_variant);
        Self::of(iptables.into_iter().chain(other))
    }

    /// Beside an engine over `iptables` itself.
    pub(crate) fn other_than(iptables: &Iptables) -> Self {
        Self::of(other_variant(iptables))
    }

    fn of(variants: impl IntoIterator<Item = Iptables>) -> Self {
        let variant = |iptables| Variant {
            iptables,
            settled: false,
        };
        Self(variants.into_iter().map(variant).collect())
    }

    /// Has all looked at again.
    pub(super) fn unsettle(&mut self) {
        for variant in &mut self.0 {
            variant.settled = false;
        }
    }

    /// Looks, and writes what is missing. Returns whether it wrote. What fails is tried again with
    /// the next comparison: nftables' rules do not wait for it.
    pub(crate) fn ensure(&mut self, beside: &dyn Beside) -> bool {
        let each = self.0.iter_mut();
        each.fold(false, |wrote, variant| variant.ensure(beside) | wrote)
    }

    /// The same where the kernel's count does not tell whether somebody has changed it.
    pub(super) fn ensure_uncounted(&mut self, beside: &dyn Beside) -> bool {
        let each = self.0.iter_mut();
        let uncounted = each.filter(|variant| !(variant.settled && variant.iptables.is_nft()));
        uncounted.fold(false, |wrote, variant| variant.ensure(beside) | wrote)
    }
}

/// One that is not installed is not used.
fn other_variant(iptables: &Iptables) -> Option<Iptables> {
    Iptables::variant(!iptables.is_nft()).ok()
}

impl Variant {
    fn ensure(&mut self, beside: &dyn Beside) -> bool {
        match try_ensure(&self.iptables, beside, self.settled) {
            Ok(wrote) => {
                self.settled = true;
                wrote
            }
            Err(error) => {
                self.settled = false;
                tracing::error!(error = %ErrorChain(&error), "cannot write what nftables' rules need in iptables' tables");
                false
            }
        }
    }
}

fn try_ensure(
    iptables: &Iptables,
    beside: &dyn Beside,
    is_settled: bool,
) -> Result<bool, IptablesError> {
    let mut text = String::new();
    let left = beside.tables().iter().filter(|_| !is_settled);
    for table in left.filter(|table| has(iptables, table)) {
        let changes = beside.removal(table, &plan::parse(&iptables.save(table)?));
        text += &plan::transaction(table, &changes);
    }
    if has(iptables, FILTER) {
        let saved = iptables.save(FILTER)?;
        let changes = beside.permission(&plan::parse(&saved), is_guarded(&saved));
        text += &plan::transaction(FILTER, &changes);
    }
    if text.is_empty() {
        return Ok(false);
    }
    iptables.restore(&text).map(|()| true)
}

/// Whether somebody has used this table: asking the tool for one that is not there makes it.
pub(crate) fn has(iptables: &Iptables, table: &str) -> bool {
    if !iptables.is_nft() {
        return is_in_legacy(table);
    }
    let table = Table {
        family: Family::Ipv4,
        name: table.to_owned().into(),
    };
    // Where that cannot be told the tool has to.
    kernel::is_there(&table).unwrap_or(true)
}

/// Whether iptables may keep a packet from being forwarded: by the policy, or by anybody's rule.
fn is_guarded(saved: &str) -> bool {
    saved.lines().any(|line| {
        let policy = line.strip_prefix(":FORWARD ");
        let rule = line.strip_prefix("-A FORWARD ");
        let is_ours =
            |rule: &str| plan::target(rule).is_some_and(|target| target.starts_with(OWN_CHAINS));
        policy.is_some_and(|rest| !rest.starts_with("ACCEPT"))
            || rule.is_some_and(|rule| !is_ours(rule))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forbids_or_decides_guards() {
        for (saved, expected) in [
            ("", false),
            (":FORWARD ACCEPT [0:0]\n", false),
            (":FORWARD ACCEPT [0:0]\n-A FORWARD -j CORACLE-CNI\n", false),
            (
                ":INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -j DROP\n",
                false,
            ),
            (":FORWARD DROP [0:0]\n", true),
            (":FORWARD ACCEPT [0:0]\n-A FORWARD -i eth0 -j DROP\n", true),
            (":FORWARD ACCEPT [0:0]\n-A FORWARD -j DOCKER-USER\n", true),
        ] {
            assert_eq!(is_guarded(saved), expected, "{saved}");
        }
    }
}
