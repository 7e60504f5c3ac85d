//! Rules for the overlay between nodes. The kernel takes whatever comes at the overlay's port for
//! an envelope, whoever sent it, and what is in it for a packet of whomever it says: a pod could
//! speak for another, past every policy. So pods send nothing there, neither to this node nor,
//! under its address, to others; no Service leads there, as what comes through another node may be
//! a pod's under that node's address; and of what arrives only that of other nodes is taken.
//!
//! ```text
//! raw PREROUTING -> CORACLE-OVERLAY: -s PODS --dport PORT, to this machine -> DROP
//! mangle INPUT -> CORACLE-OVERLAY-IN, FORWARD, not to PODS -> CORACLE-OVERLAY-FWD:
//!     --dport PORT, -s PODS or translated -> DROP
//! CORACLE-OVERLAY-IN: --dport PORT -> CORACLE-OVERLAY-NODES: -s NODE -> RETURN, or DROP
//! ```

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::Ipv4Net;

use super::{
    Iptables, IptablesError,
    other::is_in_legacy,
    plan::{Chain, Desired, Jump},
};
use crate::node::Envelopes;

/// Before and after a packet may be translated to there, by a Service.
pub(crate) const TABLES: [(&str, &[&str]); 2] =
    [("raw", &["PREROUTING"]), ("mangle", &["INPUT", "FORWARD"])];
const CHAIN: &str = "CORACLE-OVERLAY";
/// Each packet between nodes passes these rules one by one: no more in one chain.
const MOST_NODES: usize = 8;

/// Keeps pods and strangers away from the overlay's UDP port; without an overlay, leaves nothing of
/// it. Returns whether it wrote.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, overlay: Option<&Envelopes>) -> Result<bool, IptablesError> {
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

pub(crate) fn plan(overlay: Option<&Envelopes>, hooks: &[&'static str]) -> Desired {
    let mut desired = Desired {
        owned_prefixes: vec![CHAIN],
        ..Desired::default()
    };
    let Some(overlay) = overlay else {
        return desired;
    };
    for from in hooks {
        let (chain, mut rules) = rules(from, overlay);
        if let (&"INPUT", Some(nodes)) = (from, &overlay.nodes) {
            let nodes: Vec<Ipv4Addr> = nodes.iter().copied().collect();
            let known = format!("{CHAIN}-NODES");
            rules.push(format!("-p udp -m udp --dport {} -j {known}", overlay.port));
            add_nodes(known, &nodes, &mut desired.chains);
        }
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
fn rules(from: &str, overlay: &Envelopes) -> (String, Vec<String>) {
    let Envelopes { pods, port, .. } = overlay;
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
        // A Service at this port may lead to a pod: what is for others is dropped only after that.
        _ => (
            CHAIN.to_owned(),
            vec![format!(
                "-s {pods} {to_port} -m addrtype --dst-type LOCAL -j DROP"
            )],
        ),
    }
}

/// Chain `name` comes back with packets of `nodes`, which are in order, and drops all others. Many
/// are split by the first bit in which they differ: without sets, a tree is what looks at few
/// rules.
fn add_nodes(name: String, nodes: &[Ipv4Addr], chains: &mut BTreeMap<String, Chain>) {
    let mut rules = Vec::new();
    match nodes {
        [first, .., last] if nodes.len() > MOST_NODES => {
            for half in halves(*first, *last) {
                let begin = nodes.partition_point(|node| *node < half.network());
                let end = nodes.partition_point(|node| *node <= half.broadcast());
                let bits = half.prefix_len();
                let chain = format!("{CHAIN}-{:08x}-{bits}", u32::from(half.network()));
                rules.push(format!("-s {half} -j {chain}"));
                rules.push(format!("-s {half} -j RETURN"));
                add_nodes(chain, &nodes[begin..end], chains);
            }
        }
        few => rules.extend(few.iter().map(|node| format!("-s {node}/32 -j RETURN"))),
    }
    rules.push("-j DROP".to_owned());
    chains.insert(name, Chain::sequence(rules));
}

/// The two of the smallest range that has both, which are not the same.
fn halves(first: Ipv4Addr, last: Ipv4Addr) -> [Ipv4Net; 2] {
    let common = (u32::from(first) ^ u32::from(last)).leading_zeros();
    let bits = u8::try_from(common + 1).unwrap_or(32).min(32);
    [first, last].map(|node| Ipv4Net::new_assert(node, bits).trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::plan::{Chains, reconcile, transaction};

    fn overlay(nodes: impl IntoIterator<Item = u32>) -> Envelopes {
        Envelopes {
            pods: "10.244.0.0/16".parse().unwrap(),
            port: 8472,
            nodes: Some(nodes.into_iter().map(Ipv4Addr::from).collect()),
        }
    }

    #[test]
    fn pods_and_strangers_send_no_envelopes() {
        let overlay = overlay([0xc612_0002, 0xc612_0003]);
        let text = |(table, hooks)| {
            let changes = reconcile(&Chains::new(), &plan(Some(&overlay), hooks));
            transaction(table, &changes)
        };
        let text = TABLES.map(text).concat();
        for rule in [
            "-A CORACLE-OVERLAY -s 10.244.0.0/16 -p udp -m udp --dport 8472 -m addrtype --dst-type LOCAL -j DROP",
            "-I PREROUTING 1 -j CORACLE-OVERLAY",
            "-A CORACLE-OVERLAY-IN -s 10.244.0.0/16 -p udp -m udp --dport 8472 -j DROP",
            "-A CORACLE-OVERLAY-IN -p udp -m udp --dport 8472 -m conntrack --ctstate DNAT --ctdir ORIGINAL -j DROP",
            "-A CORACLE-OVERLAY-IN -p udp -m udp --dport 8472 -j CORACLE-OVERLAY-NODES",
            "-A CORACLE-OVERLAY-NODES -s 198.18.0.2/32 -j RETURN\n-A CORACLE-OVERLAY-NODES -s 198.18.0.3/32 -j RETURN\n-A CORACLE-OVERLAY-NODES -j DROP",
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

    /// Whether a packet comes back from a chain, and after how many rules.
    fn walk(chains: &BTreeMap<String, Chain>, name: &str, from: Ipv4Addr) -> (bool, usize) {
        let mut looked_at = 0;
        for rule in &chains[name].rules {
            looked_at += 1;
            let (matched, target) = rule.rsplit_once("-j ").unwrap();
            let range = matched.strip_prefix("-s ").map(|range| range.trim());
            let range = range.map(|range| range.parse::<Ipv4Net>().unwrap());
            if range.is_some_and(|range| !range.contains(&from)) {
                continue;
            }
            match target {
                "RETURN" => return (true, looked_at),
                "DROP" => return (false, looked_at),
                chain => {
                    let (is_back, more) = walk(chains, chain, from);
                    looked_at += more;
                    if !is_back {
                        return (false, looked_at);
                    }
                }
            }
        }
        panic!("{name} ends without a verdict");
    }

    #[test]
    fn each_of_many_nodes_is_found_after_few_rules_and_nobody_else() {
        // In one subnet, far apart, and at both ends of all there is.
        let near = (0..1_000).map(|number| 0xc612_0000 + 3 * number);
        let far = (0..1_000).map(|number| 0x0a00_0001_u32.wrapping_add(number << 20));
        for nodes in [
            near.chain([0, u32::MAX]).collect(),
            far.collect(),
            vec![7],
            Vec::new(),
        ] {
            let nodes: Vec<u32> = nodes;
            let wanted = overlay(nodes.clone());
            let chains = plan(Some(&wanted), &["INPUT"]).chains;
            assert!(chains.keys().all(|name| name.len() <= 28));
            for node in nodes {
                for address in [node, node.wrapping_add(1), node.wrapping_sub(1)] {
                    let address = Ipv4Addr::from(address);
                    let (is_back, rules) = walk(&chains, "CORACLE-OVERLAY-NODES", address);
                    let is_node = wanted.nodes.as_ref().unwrap().contains(&address);
                    assert_eq!(is_back, is_node, "{address}");
                    assert!(rules <= 60, "{rules} for {address}");
                }
            }
        }
    }
}
