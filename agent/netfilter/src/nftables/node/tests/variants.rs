//! What is in the variant of iptables that is not the machine's own.

use std::process::Command;

use super::plan;
use crate::{
    engine::NodeEngine as _,
    ground::{nft, on_ground},
    iptables::{Iptables, NodeRules},
    nftables::Node,
    other_variant::NodeVariants,
    over_iptables,
    service::ServiceNetwork,
};

/// Whoever uses the variant that is not the machine's own, as an older Docker, decides as well.
#[test]
fn the_permission_is_in_the_variant_of_iptables_that_decides() {
    on_ground("node-variants", || {
        let variant = |nft| Iptables::variant(nft).unwrap();
        let plan = plan();
        let left = |table: &str| variant(false).save(table).unwrap().contains("CORACLE-");
        let mut former = NodeRules::new(variant(false), |_| Ok(()));
        former.reconcile(&plan).unwrap();
        assert!(left("nat") && left("raw"));
        let mut engine = Node::new(Some(variant(true)));
        engine.reconcile(&plan).unwrap();
        for table in ["nat", "filter", "raw", "mangle"] {
            assert!(!left(table), "{table}");
        }
        let legacy = |words: &[&str]| {
            let status = Command::new("iptables-legacy").args(words).status();
            assert!(status.unwrap().success(), "{words:?}");
        };
        let is_permitted = || {
            let saved = variant(false).save("filter").unwrap();
            saved.contains("-A CORACLE-CNI -s 10.244.1.0/24 -j ACCEPT")
        };
        legacy(&["-P", "FORWARD", "DROP"]);
        assert!(engine.reconcile(&plan).unwrap());
        assert!(is_permitted());
        assert!(!engine.reconcile(&plan).unwrap());
        legacy(&["-P", "FORWARD", "ACCEPT"]);
        assert!(engine.reconcile(&plan).unwrap());
        assert!(!is_permitted());
        assert!(!nft("list tables").contains("table ip filter"));
    });
}

/// The same beside the engine over iptables, whichever variant the machine's own is; also for what
/// Services lead to, and whichever of the two engines writes first.
#[test]
fn the_permission_is_in_the_other_variant_beside_iptables_too() {
    for is_nft in [false, true] {
        on_ground(&format!("node-beside-{is_nft}"), || {
            let variant = |nft| Iptables::variant(nft).unwrap();
            let (own, other) = (variant(is_nft), variant(!is_nft));
            let program = if is_nft {
                "iptables-legacy"
            } else {
                "iptables-nft"
            };
            let policy = |verdict: &str| {
                let status = Command::new(program)
                    .args(["-P", "FORWARD", verdict])
                    .status();
                assert!(status.unwrap().success(), "{verdict}");
            };
            let has = |part: &str| other.save("filter").unwrap().contains(part);
            let permitted = "-A CORACLE-CNI -s 10.244.1.0/24 -j ACCEPT";
            let plan = plan();
            // An earlier run of it was that variant's.
            NodeRules::new(other.clone(), |_| Ok(()))
                .reconcile(&plan)
                .unwrap();
            policy("DROP");
            let engine = NodeRules::new(own.clone(), |_| Ok(()));
            let mut node = NodeVariants::new(engine, &own);
            let mut services = over_iptables(own.clone(), ServiceNetwork::default());
            node.reconcile(&plan).unwrap();
            services.apply(Vec::new()).unwrap();
            assert!(
                has(permitted) && has("-A FORWARD -j CORACLE-FORWARD"),
                "{is_nft}"
            );
            for table in ["nat", "raw", "mangle"] {
                let saved = other.save(table).unwrap();
                assert!(!saved.contains("CORACLE-"), "{is_nft} {table}: {saved}");
            }
            assert!(!node.reconcile(&plan).unwrap() && !services.reconcile().unwrap());
            policy("ACCEPT");
            assert!(node.reconcile(&plan).unwrap() && services.reconcile().unwrap());
            assert!(!has("CORACLE-"), "{is_nft}");
        });
    }
}
