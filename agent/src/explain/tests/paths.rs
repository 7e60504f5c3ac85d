//! Where packets go, and why.

use super::*;

#[test]
fn packets_go_where_services_and_routes_lead() {
    let mut world = world(&[]);
    world.pods[1].host_ports = vec![HostPort {
        protocol: Protocol::Udp,
        host_ip: None,
        host_port: 5353,
        container_port: 53,
    }];
    let arrives = Verdict::Arrives;
    check(
        &world,
        &[
            (
                "default/a",
                "default/b:80",
                arrives,
                &["by coracle0", "no policy selects the pod"],
            ),
            (
                "default/a",
                "default/c:80",
                arrives,
                &["to node n2 by eth0 through 198.18.0.2"],
            ),
            (
                "default/b",
                "svc/web",
                arrives,
                &["to one of 2 endpoints", "1 of 2", "pod default/c, node n2"],
            ),
            ("default/b", "svc/web:http", arrives, &["cluster IP"]),
            (
                "default/a",
                "svc/web",
                arrives,
                &["seen as this node: the pod reaches itself"],
            ),
            ("node", "svc/web", arrives, &["no policy is asked"]),
            (
                "192.0.2.7",
                "node:30080",
                arrives,
                &["its node port", "externalTrafficPolicy is Cluster"],
            ),
            (
                "default/a",
                "node:10250",
                arrives,
                &["the node itself takes it"],
            ),
            (
                "default/a",
                "192.0.2.7:443",
                arrives,
                &[
                    "out of the cluster by eth0 through 198.18.0.254",
                    "it leaves the cluster",
                ],
            ),
            ("default/a", "node/n2:22", arrives, &["to node n2 by eth0"]),
            (
                "192.0.2.7",
                "node:5353/udp",
                arrives,
                &["pod default/b, hostPort 5353/udp: to its port 53"],
            ),
            (
                "default/a",
                "svc/empty",
                Verdict::Refused,
                &["no endpoint that is ready"],
            ),
            (
                "default/a",
                "svc/web:81",
                Verdict::Refused,
                &["has no port 81/tcp"],
            ),
            (
                "default/a",
                "10.96.9.9:80",
                Verdict::Refused,
                &["no Service has the address"],
            ),
            (
                "default/a",
                "10.244.1.99:80",
                Verdict::Dropped,
                &["no pod of this node has the address"],
            ),
        ],
    );
    let path = ask(&world, "default/a", "default/b:80").unwrap();
    assert_eq!(path.ends[0].seen_as, None);
}

#[test]
fn policies_decide_on_the_node_of_their_pod() {
    let from_b = json!([{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}]}]);
    let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
    let world = world(&[
        (
            "only-b",
            json!({"podSelector": of("c"), "policyTypes": ["Ingress"], "ingress": from_b}),
        ),
        (
            "also-b",
            json!({"podSelector": of("a"), "policyTypes": ["Ingress"], "ingress": from_b}),
        ),
        (
            "quiet",
            json!({"podSelector": of("c"), "policyTypes": ["Egress"]}),
        ),
    ]);
    check(
        &world,
        &[
            (
                "default/b",
                "default/a:80",
                Verdict::Arrives,
                &["ingress allowed by default/also-b spec.ingress[0]"],
            ),
            (
                "default/b",
                "default/c:80",
                Verdict::Arrives,
                &["default/only-b spec.ingress[0] (node n2 decides)"],
            ),
            (
                "default/a",
                "default/c:80",
                Verdict::Dropped,
                &["denied: no rule of default/only-b names it (node n2 decides)"],
            ),
            // c sends nothing, to nobody: its node decides.
            (
                "default/c",
                "default/b:80",
                Verdict::Dropped,
                &["egress", "default/quiet", "(node n2 decides)"],
            ),
            (
                "default/b",
                "svc/web",
                Verdict::Arrives,
                &["default/also-b", "default/only-b"],
            ),
            // Under the node's address it is no pod that the policy names.
            (
                "192.0.2.7",
                "node:30080",
                Verdict::Dropped,
                &["default/also-b", "default/only-b"],
            ),
            (
                "node",
                "default/a:80",
                Verdict::Arrives,
                &["a node reaches its pods"],
            ),
            (
                "node",
                "default/c:80",
                Verdict::Dropped,
                &["default/only-b"],
            ),
        ],
    );
}

#[test]
fn of_an_endpoint_that_denies_it_depends() {
    let none = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"]});
    let denying = world(&[("none", none)]);
    let says: &[&str] = &["1 of 2 endpoints", "is dropped: ingress"];
    check(
        &denying,
        &[("default/b", "svc/web", Verdict::Depends, says)],
    );
    // A pod reaches itself, whatever policies say.
    check(
        &denying,
        &[(
            "default/a",
            "svc/web",
            Verdict::Arrives,
            &["always reaches itself"],
        )],
    );
}

/// What a pod's policies drop is not refused, although nobody would take it.
#[test]
fn egress_is_asked_before_services_refuse() {
    let quiet = json!({"podSelector": {"matchLabels": {"pod": "b"}}, "policyTypes": ["Egress"]});
    let world = world(&[("quiet", quiet)]);
    let says: &[&str] = &["egress of the sender", "default/quiet"];
    check(
        &world,
        &[("default/b", "svc/empty", Verdict::Dropped, says)],
    );
    check(&world, &[("default/a", "svc/empty", Verdict::Refused, &[])]);
}

#[test]
fn facts_of_the_node_change_the_answer() {
    let none = json!({"podSelector": {"matchLabels": {"pod": "b"}}, "policyTypes": ["Ingress"]});
    let mut world = world(&[("none", none)]);
    check(
        &world,
        &[(
            "default/a",
            "default/b:80",
            Verdict::Dropped,
            &["default/none"],
        )],
    );
    world.kernel.bridge_netfilter = false;
    check(
        &world,
        &[
            // The frames do not come by the policies...
            (
                "default/a",
                "default/b:80",
                Verdict::Arrives,
                &["br_netfilter"],
            ),
            // ...nor do answers by the translation, but where the node is in between.
            ("default/b", "svc/web", Verdict::Depends, &["br_netfilter"]),
            (
                "default/a",
                "svc/web",
                Verdict::Arrives,
                &["the pod reaches itself"],
            ),
        ],
    );
    world.kernel.bridge_netfilter = true;
    world.kernel.forwards = false;
    check(
        &world,
        &[(
            "default/a",
            "default/c:80",
            Verdict::Dropped,
            &["ip_forward"],
        )],
    );
    world.kernel.forwards = true;
    world.kernel.hops.clear();
    check(
        &world,
        &[(
            "default/a",
            "default/c:80",
            Verdict::Refused,
            &["no route to 10.244.2.2"],
        )],
    );
}

#[test]
fn what_only_nodes_send_is_dropped_from_pods() {
    let mut world = world(&[]);
    let guarded = |to: &str| {
        let mut tunnel = service("10.96.0.12", &[(to, true)]);
        let port = &mut tunnel.ports[0];
        port.port.protocol = Protocol::Udp;
        port.port.node_port = Some(30081);
        port.cluster[0].address.set_port(8472);
        tunnel
    };
    world.services.insert(key("tunnel"), guarded("198.18.0.2"));
    let cases = |pods: Verdict, others: Verdict, pods_say, others_say| {
        let [pods_say, others_say]: [&'static [&str]; 2] = [pods_say, others_say];
        [
            ("default/a", "node:8472/udp", pods, pods_say),
            ("default/a", "10.244.1.1:8472/udp", pods, pods_say),
            ("default/a", "node/n2:8472/udp", pods, pods_say),
            ("default/a", "192.0.2.7:8472/udp", pods, pods_say),
            ("default/a", "svc/tunnel", pods, pods_say),
            // Under this node's address the other would take it for this node's.
            ("192.0.2.7", "node:30081/udp", others, others_say),
        ]
    };
    let arrives = Verdict::Arrives;
    check(&world, &cases(arrives, arrives, &[], &[]));
    let overlay = |node: [u8; 4]| {
        Overlay::Port(Envelopes {
            pods: "10.244.0.0/16".parse().unwrap(),
            port: 8472,
            nodes: Some([node.into()].into()),
        })
    };
    world.overlay = overlay([198, 18, 0, 2]);
    let pods: &[&str] = &["pods send nothing to the overlay between nodes, UDP port 8472"];
    let others: &[&str] = &[
        "nothing that is translated gets to the overlay",
        "no policy is asked",
    ];
    check(
        &world,
        &cases(Verdict::Dropped, Verdict::Dropped, pods, others),
    );
    check(
        &world,
        &[
            ("default/a", "default/c:8472/udp", arrives, &[]),
            ("default/a", "node:8472", arrives, &[]),
            ("default/a", "node:8473/udp", arrives, &[]),
            ("node", "node/n2:8472/udp", arrives, &[]),
            ("198.18.0.2", "node:8472/udp", arrives, &[]),
        ],
    );
    // Whoever is no other node, under whichever address.
    let strangers: &[&str] = &["takes packets from other nodes alone"];
    world.overlay = overlay([198, 18, 0, 9]);
    let dropped = Verdict::Dropped;
    check(
        &world,
        &[
            ("198.18.0.2", "node:8472/udp", dropped, strangers),
            ("192.0.2.7", "node:8472/udp", dropped, strangers),
            ("node", "node:8472/udp", dropped, strangers),
            ("192.0.2.7", "node:8472", arrives, &[]),
            ("192.0.2.7", "node:8473/udp", arrives, &[]),
        ],
    );
    world.overlay = Overlay::Unknown;
    let says: &[&str] = &["no server has told yet"];
    check(&world, &[("default/a", "node:8472/udp", arrives, says)]);
}
