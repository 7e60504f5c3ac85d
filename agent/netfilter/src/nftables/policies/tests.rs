//! Sets of policies that are more than one transaction takes.

use std::net::Ipv4Addr;

use super::*;
use crate::{
    ground::{nft, on_ground},
    policy::{Chain, Direction, IpRange, Peer, PolicyKey, Ports, Rule},
};

const MOST: usize = 64 * 1024;

/// Every second address, so that none joins another.
fn ranges(count: u32) -> Vec<IpRange> {
    let one = |at: u32| {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + 2 * at));
        IpRange {
            first: address,
            last: address,
        }
    };
    (0..count).map(one).collect()
}

fn rule(ranges: Vec<IpRange>) -> Rule {
    Rule {
        peer: Peer::Blocks(ranges),
        ports: Ports::Any,
    }
}

/// Pods of one chain each.
fn change(rules: &[Vec<Rule>]) -> Change {
    let mut change = Change::default();
    for (at, rules) in rules.iter().enumerate() {
        let id = ChainId::new(&format!("{at:020}"));
        let last = u8::try_from(at + 2).unwrap();
        let pod = Ipv4Addr::new(10, 244, 1, last);
        let key = PolicyKey {
            namespace: "ns".to_owned(),
            name: format!("p{at}"),
        };
        let chain = Chain {
            direction: Direction::Ingress,
            policies: vec![key],
            rules: rules.clone(),
        };
        change.chains_made.insert(id.clone(), chain);
        change.to.insert(pod.into(), Some(id));
    }
    change
}

fn policies() -> Policies {
    Policies {
        most: MOST,
        ..Policies::new(NodeNetwork::default())
    }
}

/// Elements and rules are what the plan says.
#[track_caller]
fn assert_kernel_has(policies: &Policies) {
    let table = Packets(Family::Ipv4).table();
    let present = kernel::present(&table).unwrap().unwrap();
    let layout = layout::layout(Family::Ipv4, &policies.plan, &policies.node);
    for (chain, _, rules) in &layout.chains {
        assert_eq!(present.chains[chain].len(), rules.len(), "{chain}");
    }
    assert_eq!(present.chains.len(), layout.chains.len());
    for (set, wanted) in layout::elements(Family::Ipv4, &policies.plan) {
        assert_eq!(kernel::elements(&table, &set).unwrap(), wanted, "{set}");
    }
}

#[test]
fn new_chains_come_in_transactions_of_a_bounded_size() {
    let change = change(&vec![vec![rule(ranges(20_000))]; 3]);
    let parts = made::parts(Family::Ipv4, &change, First::Table, MOST);
    // At most one more group of elements than the bound.
    let longest = parts.iter().map(|part| part.batch.len()).max().unwrap();
    assert!(longest < MOST + (400 << 10), "{longest}");
    let whole = made::parts(Family::Ipv4, &change, First::Table, usize::MAX);
    let [whole] = &whole[..] else {
        panic!("{} parts", whole.len())
    };
    assert!(whole.batch.len() > 20 * MOST && parts.len() > 8);
    // Who is to blame for each.
    assert_eq!(whole.chains.len(), 3);
    assert!(
        parts
            .iter()
            .all(|part| (1..=2).contains(&part.chains.len()))
    );
}

#[test]
fn a_set_beyond_the_bound_is_written_and_repaired() {
    on_ground("policies-large", || {
        let mut policies = policies();
        let large = vec![rule(ranges(3_000)), rule(ranges(20))];
        let before = crate::generation::read().unwrap();
        policies.apply(&change(&vec![large.clone(); 5])).unwrap();
        let transactions = crate::generation::read().unwrap() - before;
        assert!(transactions >= 5, "{transactions}");
        assert_kernel_has(&policies);
        assert!(!policies.is_disturbed() && !policies.reconcile().unwrap());
        for damage in [
            "flush ruleset",
            "flush chain ip coracle-policy c-00000000000000000003",
            "delete element ip coracle-policy to { 10.244.1.3 }",
        ] {
            nft(damage);
            assert!(policies.reconcile().unwrap(), "{damage}");
            assert_kernel_has(&policies);
            assert!(!policies.reconcile().unwrap(), "{damage}");
        }
        // Others come beside them; and a successor knows none of it.
        let mut more = change(&vec![large; 8]);
        let known = &policies.plan;
        more.chains_made
            .retain(|id, _| !known.chains.contains_key(id));
        more.to.retain(|pod, _| !known.to.contains_key(pod));
        policies.apply(&more).unwrap();
        assert_kernel_has(&policies);
        let mut successor = self::policies();
        successor.plan = policies.plan.clone();
        successor.reconcile().unwrap();
        assert_kernel_has(&successor);
    });
}

#[test]
fn what_is_too_large_beside_the_others_is_refused_alone() {
    on_ground("policies-too-large", || {
        let small = || vec![rule(ranges(10))];
        // Each rule has a set of its own, so that the chain by itself is longer than a part.
        let large = vec![rule(ranges(1)); 1_000];
        let mut policies = Policies {
            room: 2 * MOST,
            ..policies()
        };
        policies.apply(&change(&[small(), large, small()])).unwrap();
        let refused = policies.take_refused();
        let named: Vec<String> = refused
            .iter()
            .flat_map(|one| &one.policies)
            .map(ToString::to_string)
            .collect();
        assert_eq!(named, ["ns/p1"], "{refused:?}");
        // It lets nothing through, the others what they say.
        let rules: Vec<usize> = policies
            .plan
            .chains
            .values()
            .map(|one| one.rules.len())
            .collect();
        assert_eq!(rules, [1, 0, 1]);
        assert_kernel_has(&policies);
        assert!(!policies.reconcile().unwrap());
    });
}
