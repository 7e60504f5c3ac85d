//! Rules for the overlay between nodes. The kernel takes whatever comes at the overlay's port for
//! an envelope, whoever sent it, and what is in it for a packet of whomever it says: a pod could
//! speak for another, past every policy. So pods send nothing there, neither to this node nor,
//! under its address, to others.
//!
//! ```text
//! raw PREROUTING, mangle INPUT, FORWARD -> CORACLE-OVERLAY:
//!     -s PODS --dport PORT, to this machine or not to PODS -> DROP
//! ```

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{
    Iptables, IptablesError,
    other::is_in_legacy,
    plan::{Chain, Desired, Jump},
};

/// Before and after a packet may be translated to there, by a Service.
pub(crate) const TABLES: [(&str, &[&str]); 2] =
    [("raw", &["PREROUTING"]), ("mangle", &["INPUT", "FORWARD"])];
const CHAIN: &str = "CORACLE-OVERLAY";

/// Keeps what has addresses of `pods` away from the overlay's UDP `port`; without an overlay,
/// leaves nothing of it. Returns whether it wrote.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, overlay: Option<(IpNet, u16)>) -> Result<bool, IptablesError> {
    let mut wrote = false;
    for (table, hooks) in TABLES {
        // Asking for a table of the legacy variant would load its modules.
        if overlay.is_none() && !iptables.is_nft() && !is_in_legacy(table) {
            continue;
        }
        wrote |= iptables.ensure(table, &plan(overlay, hooks))?;
    }
    Ok(wrote)
}

pub(crate) fn plan(overlay: Option<(IpNet, u16)>, hooks: &[&'static str]) -> Desired {
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
    let jumps = hooks.iter().map(|from| Jump {
        from,
        rule: format!("-j {CHAIN}"),
        first: false,
    });
    desired.jumps = jumps.collect();
    desired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::plan::{Chains, reconcile, transaction};

    #[test]
    fn pods_send_no_envelopes() {
        let overlay = Some(("10.244.0.0/16".parse().unwrap(), 8472));
        let text = |(table, hooks)| {
            let changes = reconcile(&Chains::new(), &plan(overlay, hooks));
            transaction(table, &changes)
        };
        let text = TABLES.map(text).concat();
        for rule in [
            "-A CORACLE-OVERLAY -s 10.244.0.0/16 -p udp -m udp --dport 8472 -m addrtype --dst-type LOCAL -j DROP",
            "-A CORACLE-OVERLAY -s 10.244.0.0/16 ! -d 10.244.0.0/16 -p udp -m udp --dport 8472 -j DROP",
            "-A PREROUTING -j CORACLE-OVERLAY",
            "-A INPUT -j CORACLE-OVERLAY",
            "-A FORWARD -j CORACLE-OVERLAY",
        ] {
            assert!(text.contains(rule), "{rule}: {text}");
        }
        let (table, hooks) = TABLES[0];
        let none = transaction(table, &reconcile(&Chains::new(), &plan(None, hooks)));
        assert_eq!(none, "");
    }
}
