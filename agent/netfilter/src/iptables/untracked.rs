//! Rules for the address at which this node answers names itself: what goes there and comes from
//! there is no connection to the kernel. Thousands of questions a second would fill its table of
//! these, and each datagram would be looked up in it.
//!
//! ```text
//! raw PREROUTING, OUTPUT -> CORACLE-DNS: -d ADDRESS --dport 53 and -s ADDRESS --sport 53 -> CT --notrack
//! ```

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    Iptables, IptablesError,
    plan::{Chain, Desired, Jump},
};

/// Where these rules are.
pub const TABLE: &str = "raw";
const CHAIN: &str = "CORACLE-DNS";

/// Has nothing tracked of what goes to `address` and comes from there: of none, all is.
///
/// # Errors
/// [`IptablesError`]: also where the kernel cannot do that.
pub fn ensure(iptables: &Iptables, address: Option<IpAddr>) -> Result<(), IptablesError> {
    iptables.ensure(TABLE, &plan(address)).map(drop)
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
            format!("-d {host} {matches} --dport 53 -j CT --notrack"),
            format!("-s {host} {matches} --sport 53 -j CT --notrack"),
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
