//! The engine for what is no connection to the kernel, over iptables: see [`crate::untracked`].
//!
//! ```text
//! raw PREROUTING, OUTPUT -> CORACLE-DNS: -d ADDRESS --dport 53 and -s ADDRESS --sport 53 -> CT --notrack
//! ```

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    Iptables, IptablesError,
    plan::{Chain, Desired, Jump},
    writer::Removal,
};
use crate::{
    engine::{EngineError, UntrackedEngine},
    untracked::PORT,
};

/// Where these rules are.
pub const TABLE: &str = "raw";
pub(crate) const CHAIN: &str = "CORACLE-DNS";

/// Keeps the rules. Knows nothing between two calls.
#[derive(Debug)]
pub struct Untracked {
    iptables: Iptables,
    /// Takes away what an engine that is no iptables has left.
    other_engine: Removal,
    /// It has left nothing.
    alone: bool,
}

impl Untracked {
    /// Has written nothing yet. What another engine has left is removed once these rules stand.
    #[must_use]
    pub fn new(iptables: Iptables, other_engine: Removal) -> Self {
        Self {
            iptables,
            other_engine,
            alone: false,
        }
    }
}

impl UntrackedEngine for Untracked {
    fn name(&self) -> &'static str {
        "iptables"
    }

    fn ensure(&mut self, address: IpAddr) -> Result<bool, EngineError> {
        let wrote = ensure(&self.iptables, Some(address)).map_err(EngineError::new)?;
        if !self.alone {
            (self.other_engine)()?;
            self.alone = true;
        }
        Ok(wrote)
    }

    fn is_disturbed(&self) -> bool {
        // A comparison executes a program: who calls says how often.
        false
    }
}

/// Has nothing tracked of what goes to `address` and comes from there: of none, all is. Returns
/// whether it wrote.
///
/// # Errors
/// [`IptablesError`]: also where the kernel cannot do that.
pub(crate) fn ensure(iptables: &Iptables, address: Option<IpAddr>) -> Result<bool, IptablesError> {
    iptables.ensure(TABLE, &plan(address))
}

fn plan(address: Option<IpAddr>) -> Desired {
    let mut desired = Desired {
        owned_prefixes: vec![CHAIN],
        ..Desired::default()
    };
    let Some(host) = address.map(IpNet::from) else {
        return desired;
    };
    let rules = ["udp", "tcp"].iter().flat_map(|protocol| {
        let matches = format!("-p {protocol} -m {protocol}");
        [
            format!("-d {host} {matches} --dport {PORT} -j CT --notrack"),
            format!("-s {host} {matches} --sport {PORT} -j CT --notrack"),
        ]
    });
    desired.chains = BTreeMap::from([(CHAIN.to_owned(), Chain::sequence(rules.collect()))]);
    let jump = |from| Jump {
        from,
        rule: format!("-j {CHAIN}"),
        first: true,
    };
    desired.jumps = vec![jump("PREROUTING"), jump("OUTPUT")];
    desired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::plan::{Chains, reconcile, transaction};

    #[test]
    fn both_directions_of_both_protocols_are_left_alone() {
        let address = Some("10.96.0.10".parse().unwrap());
        let text = transaction(TABLE, &reconcile(&Chains::new(), &plan(address)));
        for rule in [
            "-A CORACLE-DNS -d 10.96.0.10/32 -p udp -m udp --dport 53 -j CT --notrack",
            "-A CORACLE-DNS -s 10.96.0.10/32 -p tcp -m tcp --sport 53 -j CT --notrack",
            "-I PREROUTING 1 -j CORACLE-DNS",
            "-I OUTPUT 1 -j CORACLE-DNS",
        ] {
            assert!(text.contains(rule), "{rule}: {text}");
        }
        let none = transaction(TABLE, &reconcile(&Chains::new(), &plan(None)));
        assert_eq!(none, "");
    }
}
