//! Rules for the overlay between nodes. The kernel takes whatever comes at the overlay's port for
//! an envelope, whoever sent it, and what is in it for a packet of whomever it says: a pod could
//! speak for another, past every policy. So pods send nothing there, neither to this node nor,
//! under its address, to others; and no Service leads there, as what comes through another node
//! may be a pod's under that node's address.
//!
//! ```text
//! raw PREROUTING -> CORACLE-OVERLAY: -s PODS --dport PORT, to this machine or not to PODS -> DROP
//! mangle INPUT -> CORACLE-OVERLAY-IN, FORWARD, not to PODS -> CORACLE-OVERLAY-FWD:
//!     --dport PORT, -s PODS or translated -> DROP
//! ```

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
    for from in hooks {
        let (chain, rules) = rules(from, pods, port);
        desired.chains.insert(chain.clone(), Chain::sequence(rules));
        desired.jumps.push(Jump {
            from,
            rule: format!("-j {chain}"),
            first: true,
        });
    }
    desired
}

/// The chain of one of the kernel's, and its rules. What is delivered here is sent to this machine,
/// whichever kind of address it has.
fn rules(from: &str, pods: IpNet, port: u16) -> (String, Vec<String>) {
    let to_port = format!("-p udp -m udp --dport {port}");
    let translated = "-m conntrack --ctstate DNAT --ctdir ORIGINAL";
    let to_no_pod = format!("! -d {pods} {to_port}");
    match from {
        "INPUT" => (
            format!("{CHAIN}-IN"),
            vec![
                format!("-s {pods} {to_port} -j DROP"),
                format!("{to_port} {translated} -j DROP"),
            ],
        ),
        "FORWARD" => (
            format!("{CHAIN}-FWD"),
            vec![
                format!("-s {pods} {to_no_pod} -j DROP"),
                format!("{to_no_pod} {translated} -j DROP"),
            ],
        ),
        _ => (
            CHAIN.to_owned(),
            vec![
                format!("-s {pods} {to_port} -m addrtype --dst-type LOCAL -j DROP"),
                format!("-s {pods} {to_no_pod} -j DROP"),
            ],
        ),
    }
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
            "-I PREROUTING 1 -j CORACLE-OVERLAY",
            "-A CORACLE-OVERLAY-IN -s 10.244.0.0/16 -p udp -m udp --dport 8472 -j DROP",
            "-A CORACLE-OVERLAY-IN -p udp -m udp --dport 8472 -m conntrack --ctstate DNAT --ctdir ORIGINAL -j DROP",
            "-A CORACLE-OVERLAY-FWD ! -d 10.244.0.0/16 -p udp -m udp --dport 8472 -m conntrack --ctstate DNAT --ctdir ORIGINAL -j DROP",
            "-I INPUT 1 -j CORACLE-OVERLAY-IN",
            "-I FORWARD 1 -j CORACLE-OVERLAY-FWD",
        ] {
            assert!(text.contains(rule), "{rule}: {text}");
        }
        let (table, hooks) = TABLES[0];
        let none = transaction(table, &reconcile(&Chains::new(), &plan(None, hooks)));
        assert_eq!(none, "");
    }
}
