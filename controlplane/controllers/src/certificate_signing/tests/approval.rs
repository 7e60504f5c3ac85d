//! Who gets a certificate, and for which names.

use k8s_openapi::api::core::v1::NodeCondition;

use super::*;

/// A node at these addresses.
fn node_at(name: &str, addresses: &[&str], is_ready: bool) -> Node {
    let mut node = node();
    node.metadata.name = Some(name.into());
    let status = node.status.get_or_insert_default();
    let address = |address: &&str| NodeAddress {
        type_: "InternalIP".into(),
        address: (*address).into(),
    };
    status.addresses = Some(addresses.iter().map(address).collect());
    let ready = NodeCondition {
        type_: "Ready".into(),
        status: if is_ready { "True" } else { "Unknown" }.into(),
        ..NodeCondition::default()
    };
    status.conditions = Some(vec![ready]);
    node
}

#[test]
fn what_has_to_be_allowed_depends_on_who_asks_for_whom() {
    let asked = |ask: Ask| match ask.judge() {
        Ok(Approval::Ask(permissions)) => permissions
            .iter()
            .map(|one| one.subresource)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let renewing = Ask {
        user: NODE,
        groups: &["system:nodes"],
        ..client()
    };
    let cases: [(Ask, Vec<&str>); 6] = [
        (client(), vec!["nodeclient"]),
        (renewing, vec!["selfnodeclient", "nodeclient"]),
        (
            Ask {
                user: "system:node:n2",
                groups: &["system:nodes"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (
            Ask {
                user: "alice",
                groups: &["developers"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (
            Ask {
                usages: &["digital signature", "key encipherment", "client auth"],
                ..client()
            },
            vec!["nodeclient"],
        ),
        (serving(), vec!["selfnodeserver"]),
    ];
    for (ask, expected) in cases {
        assert_eq!(asked(ask), expected);
    }
    let left_alone: [(&str, Ask); 3] = [
        (
            "another node's serving certificate",
            Ask {
                user: "system:node:n2",
                ..serving()
            },
        ),
        (
            "a user with a node's name",
            Ask {
                groups: &["developers"],
                ..serving()
            },
        ),
        (
            "a serving certificate for a bootstrap token",
            Ask {
                user: "system:bootstrap:abcdef",
                groups: &["system:bootstrappers"],
                ..serving()
            },
        ),
    ];
    for (who, ask) in left_alone {
        assert_eq!(ask.judge(), Ok(Approval::LeaveAlone), "{who}");
    }
}

#[test]
fn a_node_serves_under_no_name_but_its_own() {
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let every = [
        "192.0.2.1",
        "127.0.0.1",
        "169.254.169.254",
        "10.96.0.1",
        "10.42.0.7",
        "::ffff:192.0.2.1",
        "0.0.0.0",
    ];
    let cases: [(Vec<SanType>, NotItsOwn); 9] = [
        (
            vec![dns("n1"), ip("192.0.2.99")],
            NotItsOwn::NotReported(address("192.0.2.99")),
        ),
        (
            vec![ip("127.0.0.1")],
            NotItsOwn::Special(address("127.0.0.1")),
        ),
        (
            vec![ip("169.254.169.254")],
            NotItsOwn::Special(address("169.254.169.254")),
        ),
        (vec![ip("0.0.0.0")], NotItsOwn::Special(address("0.0.0.0"))),
        (
            vec![ip("::ffff:192.0.2.1")],
            NotItsOwn::Special(address("::ffff:192.0.2.1")),
        ),
        (
            vec![ip("10.96.0.1")],
            NotItsOwn::Reserved(address("10.96.0.1"), "10.96.0.0/16".parse().unwrap()),
        ),
        (
            vec![ip("10.42.0.7")],
            NotItsOwn::Reserved(address("10.42.0.7"), "10.42.0.0/16".parse().unwrap()),
        ),
        (
            vec![dns("kubernetes.default.svc")],
            NotItsOwn::Name("kubernetes.default.svc".into()),
        ),
        (vec![dns("host-1")], NotItsOwn::Name("host-1".into())),
    ];
    for (names, expected) in cases {
        let mut node = node_at("n1", &every, true);
        let hostname = ["kubernetes.default.svc", "host-1"].map(|name| NodeAddress {
            type_: "Hostname".into(),
            address: name.into(),
        });
        node.status
            .as_mut()
            .unwrap()
            .addresses
            .as_mut()
            .unwrap()
            .extend(hostname);
        let judged = Ask { names, ..serving() }.judge_among(node, Vec::new());
        assert_eq!(judged, Ok(Approval::Wait(expected)));
    }
    for name in ["kubernetes.default.svc", "localhost"] {
        let user: &'static str = if name == "localhost" {
            "system:node:localhost"
        } else {
            "system:node:kubernetes.default.svc"
        };
        let ask = Ask {
            user,
            common_name: user,
            names: vec![dns(name)],
            ..serving()
        };
        let judged = ask.judge_among(node_at(name, &["192.0.2.1"], true), Vec::new());
        assert_eq!(
            judged,
            Ok(Approval::Wait(NotItsOwn::Name(name.into()))),
            "a node of that name"
        );
    }
}

#[test]
fn an_address_is_one_nodes() {
    let taken = |is_ready| {
        let other = node_at("n2", &["192.0.2.1"], is_ready);
        Ask {
            names: vec![ip("192.0.2.1")],
            ..serving()
        }
        .judge_among(node(), vec![other])
        .unwrap()
    };
    assert_eq!(
        taken(true),
        Approval::Wait(NotItsOwn::Shared("192.0.2.1".parse().unwrap(), "n2".into()))
    );
    assert!(
        matches!(taken(false), Approval::Ask(_)),
        "the old name of a machine that got another"
    );
}
