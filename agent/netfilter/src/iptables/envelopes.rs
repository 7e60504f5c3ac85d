//! Rules for the overlay between nodes. The kernel takes whatever comes at the overlay's port for
//! an envelope, whoever sent it, and what is in it for a packet of whomever it says: a pod could
//! speak for another, past every policy. So pods send nothing there, neither to this node nor,
//! under its address, to others.
//!
//! ```text
//! raw PREROUTING -> CORACLE-OVERLAY: -s PODS --dport PORT, to this machine or not to PODS -> DROP
//! ```

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{
    Iptables, IptablesError,
    plan::{Chain, Desired, Jump},
};

const TABLE: &str = "raw";
const CHAIN: &str = "CORACLE-OVERLAY";

/// Keeps what has addresses of `pods` away from the overlay's UDP `port`; without an overlay,
/// leaves nothing of it.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, overlay: Option<(IpNet, u16)>) -> Result<(), IptablesError> {
    iptables.ensure(TABLE, &plan(overlay)).map(drop)
}

fn plan(overlay: Option<(IpNet, u16)>) -> Desired {
    let mut desired = Desired {
        owned_prefixes: vec![CHAIN],
        ..Desired::default()
    };
    let Some((pods, port)) = overlay else {
        return desired;
    };
    let to_port = format!("-p udp -m udp --dport {port}");
    let rules = vec![
        format!("-s {pods} {to_port} -m addrtype --dst-type LOCAL -j DROP"),
        format!("-s {pods} ! -d {pods} {to_port} -j DROP"),
    ];
    desired.chains = BTreeMap::from([(CHAIN.to_owned(), Chain::sequence(rules))]);
    desired.jumps = vec![Jump {
        from: "PREROUTING",
        rule: format!("-j {CHAIN}"),
        first: false,
    }];
    desired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::plan::{Chains, reconcile, transaction};

    #[test]
    fn pods_send_no_envelopes() {
        let overlay = Some(("10.244.0.0/16".parse().unwrap(), 8472));
        let text = transaction(TABLE, &reconcile(&Chains::new(), &plan(overlay)));
        for rule in [
            "-A CORACLE-OVERLAY -s 10.244.0.0/16 -p udp -m udp --dport 8472 -m addrtype --dst-type LOCAL -j DROP",
            "-A CORACLE-OVERLAY -s 10.244.0.0/16 ! -d 10.244.0.0/16 -p udp -m udp --dport 8472 -j DROP",
            "-A PREROUTING -j CORACLE-OVERLAY",
        ] {
            assert!(text.contains(rule), "{rule}: {text}");
        }
        let none = transaction(TABLE, &reconcile(&Chains::new(), &plan(None)));
        assert_eq!(none, "");
    }
}
