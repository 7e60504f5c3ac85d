//! What a kernel makes of networks' tables.

use std::process::Command;

use super::*;
use crate::{
    engine::NodeEngine as _,
    ground::{nft, on_ground},
    nftables::Node,
    node::NodePlan,
};

fn network(name: &str, subnet: &str) -> Masquerade {
    Masquerade {
        network: name.to_owned(),
        subnet: subnet.parse().unwrap(),
        translate: true,
        except: vec!["10.244.0.0/16".parse().unwrap()],
    }
}

fn saved(table: &str) -> String {
    Iptables::find().unwrap().save(table).unwrap()
}

fn iptables() -> Option<Iptables> {
    Some(Iptables::find().unwrap())
}

#[test]
fn each_network_has_a_table_and_nft_lists_it() {
    on_ground("networks", || {
        let (a, b) = (network("a", "10.1.0.0/24"), network("b", "10.2.0.0/24"));
        for one in [&a, &b] {
            assert!(ensure(None, one).unwrap());
        }
        let listed = nft("list ruleset");
        for part in [
            "10.1.0.0/24 . 10.244.0.0/16",
            "10.2.0.0/24 . 0.0.0.0/0",
            "masquerade fully-random",
        ] {
            assert!(listed.contains(part), "{part}: {listed}");
        }
        assert_eq!(nft("list tables").lines().count(), 2);
        // Written again as it is, whatever somebody has made of it.
        nft(&format!("flush table ip {}", table_of("a").name));
        ensure(None, &a).unwrap();
        assert_eq!(nft("list ruleset").lines().count(), listed.lines().count());
        remove("a").unwrap();
        remove("a").unwrap();
        assert_eq!(
            nft("list tables"),
            format!("table ip {}\n", table_of("b").name)
        );
        let still = Masquerade {
            translate: false,
            ..b
        };
        assert!(ensure(None, &still).unwrap());
        assert_eq!(nft("list ruleset"), "");
        ensure(None, &a).unwrap();
        remove_all().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn what_iptables_has_of_a_network_goes_and_the_permission_stays_where_it_is_needed() {
    on_ground("network-beside", || {
        let (a, b) = (network("a", "10.1.0.0/24"), network("b", "10.2.0.0/24"));
        for one in [&a, &b] {
            masquerade::ensure(&Iptables::find().unwrap(), one).unwrap();
        }
        ensure(iptables(), &a).unwrap();
        assert!(!saved("nat").contains("10.1.0.0/24"));
        assert!(saved("nat").contains("10.2.0.0/24"), "another's");
        assert!(
            !saved("filter").contains("10.1.0.0/24"),
            "nobody forbids it"
        );
        let forbid = Command::new("iptables")
            .args(["-P", "FORWARD", "DROP"])
            .status();
        assert!(forbid.unwrap().success());
        ensure(iptables(), &a).unwrap();
        assert!(saved("filter").contains("-A CORACLE-CNI -s 10.1.0.0/24 -j ACCEPT"));
    });
}

#[test]
fn an_agent_takes_its_own_network_over_from_the_program() {
    on_ground("network-agent", || {
        let own = network("coracle", "10.1.0.0/24");
        ensure(None, &own).unwrap();
        ensure(None, &network("other", "10.2.0.0/24")).unwrap();
        let plan = NodePlan {
            masquerade: Some(own),
            ..NodePlan::default()
        };
        let mut agent = Node::new(None);
        assert!(agent.reconcile(&plan).unwrap());
        let tables = nft("list tables");
        assert!(!tables.contains(&*table_of("coracle").name), "{tables}");
        assert!(tables.contains(&*table_of("other").name), "{tables}");
        assert!(crate::nftables::node::is_there().unwrap());
        // Its own change is counted.
        assert!(!agent.is_disturbed() && !agent.reconcile(&plan).unwrap());
    });
}
