//! Rules for what pods send out of the cluster: see [`crate::masquerade`].
//!
//! ```text
//! nat    POSTROUTING -> CORACLE-MASQ: -s SUBNET -> CORACLE-MASQ-<network>: -d CLUSTER RETURN... MASQUERADE
//! filter FORWARD -> CORACLE-CNI: -s SUBNET ACCEPT, -d SUBNET ACCEPT   (hosts that drop forwarded packets by policy)
//! ```
//!
//! One chain a network, not a rule a pod: attaching a pod touches no rule. Pods reach pods and
//! nodes without NAT.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{
    Iptables, IptablesError,
    plan::{self, Chain, Chains, Desired, Jump},
};
use crate::masquerade::Masquerade;

const MASQ: &str = "CORACLE-MASQ";
const FORWARD: &str = "CORACLE-CNI";

/// Writes what is missing of a network's rules. Idempotent; takes some milliseconds. Returns
/// whether anything was.
///
/// # Errors
/// [`IptablesError`].
pub fn ensure(iptables: &Iptables, wanted: &Masquerade) -> Result<bool, IptablesError> {
    let nat = plan::parse(&iptables.save("nat")?);
    let filter = plan::parse(&iptables.save("filter")?);
    let translated = plan::reconcile(&nat, &translation(wanted, &nat));
    let permitted = plan::reconcile(&filter, &permission(wanted, &filter));
    let text = plan::transaction("nat", &translated) + &plan::transaction("filter", &permitted);
    if text.is_empty() {
        return Ok(false);
    }
    iptables.restore(&text).map(|()| true)
}

/// Removes a network's rules.
///
/// # Errors
/// [`IptablesError`].
pub fn remove(iptables: &Iptables, wanted: &Masquerade) -> Result<(), IptablesError> {
    let mut text = String::new();
    for table in ["nat", "filter"] {
        let actual = plan::parse(&iptables.save(table)?);
        text += &plan::transaction(table, &plan_removal(wanted, &actual));
    }
    if text.is_empty() {
        Ok(())
    } else {
        iptables.restore(&text)
    }
}

fn chain_name(network: &str) -> String {
    format!("{MASQ}-{}", digest(network))
}

/// What tells networks apart where names are short: ten hexadecimal digits.
pub(crate) fn digest(network: &str) -> String {
    let digest = Sha256::digest(network);
    digest[..5]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// What the nat table shall have, beside what it has of other networks.
fn translation(wanted: &Masquerade, actual: &Chains) -> Desired {
    let own = chain_name(&wanted.network);
    let subnet = wanted.subnet.trunc();
    let mut nat = Desired::default();
    if wanted.translate {
        // Several networks share the first chain: rules of others in it stay.
        let mut dispatch = others(actual, MASQ, |rule| {
            plan::target(rule) == Some(own.as_str())
        });
        dispatch.push(format!("-s {subnet} -j {own}"));
        let mut rules = vec![format!("-d {subnet} -j RETURN")];
        rules.extend(
            wanted
                .except
                .iter()
                .map(|cidr| format!("-d {} -j RETURN", cidr.trunc())),
        );
        rules.dedup();
        rules.push("-d 224.0.0.0/4 -j RETURN".into());
        rules.push("-j MASQUERADE --random-fully".into());
        nat.chains = BTreeMap::from([
            (MASQ.to_owned(), Chain::set(dispatch)),
            (own, Chain::sequence(rules)),
        ]);
        nat.jumps.push(Jump {
            from: "POSTROUTING",
            rule: format!("-j {MASQ}"),
            first: false,
        });
    }
    nat
}

/// What the filter table shall have, beside what it has of other networks.
pub(crate) fn permission(wanted: &Masquerade, actual: &Chains) -> Desired {
    let subnet = wanted.subnet.trunc();
    let wanted = [
        format!("-s {subnet} -j ACCEPT"),
        format!("-d {subnet} -j ACCEPT"),
    ];
    let mut accepted = others(actual, FORWARD, |rule| wanted.iter().any(|w| w == rule));
    accepted.extend(wanted);
    Desired {
        chains: BTreeMap::from([(FORWARD.to_owned(), Chain::set(accepted))]),
        jumps: vec![Jump {
            from: "FORWARD",
            rule: format!("-j {FORWARD}"),
            first: false,
        }],
        owned_prefixes: Vec::new(),
    }
}

/// What takes a network's rules out of a table.
pub(crate) fn plan_removal(wanted: &Masquerade, actual: &Chains) -> plan::Changes {
    let own = chain_name(&wanted.network);
    let subnet = format!("{}", wanted.subnet.trunc());
    let mut changes = plan::Changes::default();
    for (shared, hook) in [(MASQ, "POSTROUTING"), (FORWARD, "FORWARD")] {
        let Some(rules) = actual.get(shared) else {
            continue;
        };
        let ours = |rule: &str| {
            plan::target(rule) == Some(own.as_str())
                || (shared == FORWARD && rule.split(' ').nth(1) == Some(subnet.as_str()))
        };
        let left = others(actual, shared, ours);
        if left.is_empty() {
            let jump = format!("-j {shared}");
            let present = actual.get(hook).map_or(0, |rules| {
                rules.iter().filter(|rule| **rule == jump).count()
            });
            changes
                .rules
                .extend((0..present).map(|_| format!("-D {hook} {jump}")));
            changes.delete_chain(shared);
        } else {
            changes.edit_set(shared, rules, &left);
        }
    }
    if actual.contains_key(&own) {
        changes.delete_chain(&own);
    }
    changes
}

fn others(actual: &Chains, chain: &str, ours: impl Fn(&str) -> bool) -> Vec<String> {
    actual
        .get(chain)
        .map(|rules| rules.iter().filter(|rule| !ours(rule)).cloned().collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str, subnet: &str) -> Masquerade {
        Masquerade {
            network: name.to_owned(),
            subnet: subnet.parse().unwrap(),
            translate: true,
            except: ["10.244.0.0/16", "192.168.7.2/32"]
                .map(|cidr| cidr.parse().unwrap())
                .to_vec(),
        }
    }

    #[test]
    fn cluster_and_nodes_are_left_alone_and_the_rest_is_masqueraded() {
        let nat = translation(&network("a", "10.244.1.0/24"), &Chains::new());
        let own = chain_name("a");
        assert!(own.len() <= 28, "chain names are at most 28 characters");
        assert_eq!(
            nat.chains[MASQ].rules,
            [format!("-s 10.244.1.0/24 -j {own}")]
        );
        assert_eq!(
            nat.chains[&own].rules,
            [
                "-d 10.244.1.0/24 -j RETURN",
                "-d 10.244.0.0/16 -j RETURN",
                "-d 192.168.7.2/32 -j RETURN",
                "-d 224.0.0.0/4 -j RETURN",
                "-j MASQUERADE --random-fully",
            ]
        );
    }

    #[test]
    fn two_networks_do_not_disturb_each_other() {
        let (mut nat, mut filter) = (Chains::new(), Chains::new());
        for (name, subnet) in [("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")] {
            let network = network(name, subnet);
            let translated = translation(&network, &nat);
            let permitted = permission(&network, &filter);
            for (table, desired) in [(&mut nat, translated), (&mut filter, permitted)] {
                for jump in desired.jumps {
                    table
                        .entry(jump.from.into())
                        .or_insert_with(|| vec![jump.rule]);
                }
                table.extend(
                    desired
                        .chains
                        .into_iter()
                        .map(|(name, chain)| (name, chain.rules)),
                );
            }
        }
        assert_eq!(nat[MASQ].len(), 2);
        assert_eq!(filter[FORWARD].len(), 4);
        let first = plan_removal(&network("a", "10.244.1.0/24"), &nat);
        assert_eq!(first.deleted, [chain_name("a")]);
        nat.get_mut(MASQ).unwrap().remove(0);
        let last = plan_removal(&network("b", "10.244.2.0/24"), &nat);
        assert_eq!(last.deleted, [MASQ.to_owned(), chain_name("b")]);
    }
}
