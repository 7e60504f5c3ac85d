//! What a pod may try with the frames that it puts on its link.

use std::{
    io::Write as _,
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket},
    process::{Command, Stdio},
    time::Duration,
};

use coracle_cni::bridge::mac;
use coracle_netfilter::{
    ProxyMode,
    nftables::policies::{NodeNetwork, Policies},
};
use coracle_netns::NetNs;
use serde_json::json;

use super::{
    raw::{Ipv4, Sniffer, UDP, heard, mac_of, send, udp},
    repair::whole,
    world::{Cluster, PATIENCE, deny, of},
};
use crate::{
    harness::{Lab, Node, ip, lab, lab_by, wait_for},
    routes::{object, told},
};

const PORT: u16 = 9000;
const QUIET: Duration = Duration::from_millis(200);

#[test]
fn what_goes_to_everybody_goes_past_no_policy() {
    let Some(lab) = lab("np-cast") else { return };
    let mut cluster = Cluster::new(&lab);
    let hears = |cluster: &Cluster<'_>, to: [u8; 4]| {
        let (a, b) = (cluster.pod("a"), cluster.pod("b"));
        let by_socket = heard(&a.ns, PORT, || {
            let sent = b.ns.run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                socket.set_broadcast(true).unwrap();
                socket.send_to(b"x", (Ipv4Addr::from(to), PORT))
            });
            sent.unwrap().unwrap();
        });
        // To one only, below.
        let packet = Ipv4 {
            from: b.address,
            to: to.into(),
            protocol: UDP,
            fragment: 0,
            options: &[],
            payload: &udp(PORT, b"x"),
        };
        let by_frame = heard(&a.ns, PORT, || packet.send(&b.ns, a.address));
        [by_socket.is_some(), by_frame.is_some()]
    };
    let everybody = [[255, 255, 255, 255], [10, 244, 1, 255], [224, 0, 0, 1]];
    for to in everybody {
        assert_eq!(hears(&cluster, to), [true, true], "{to:?}");
    }
    cluster.policy("deny", deny("a"));
    for to in everybody {
        assert_eq!(hears(&cluster, to), [false, false], "{to:?}");
    }
}

/// Two machines on a bridge of somebody else, beside pods that a policy selects.
#[test]
fn what_others_bridges_carry_to_everybody_is_none_of_our_business() {
    let Some(lab) = lab("np-others") else { return };
    let mut cluster = Cluster::new(&lab);
    cluster.policy("deny", deny("a"));
    let machines = ["vm1", "vm2"].map(|name| cluster.nodes[0].request(name).0);
    cluster.nodes[0]
        .ns
        .run(|| ip(&["link", "add", "br9", "up", "type", "bridge"]))
        .unwrap();
    for (number, machine) in (1..).zip(&machines) {
        let (port, peer) = (format!("vm{number}"), format!("eth{number}"));
        let path = machine.path().to_str().unwrap();
        cluster.nodes[0]
            .ns
            .run(|| {
                ip(&["link", "add", &port, "type", "veth", "peer", "name", &peer]);
                ip(&["link", "set", &port, "master", "br9", "up"]);
                ip(&["link", "set", &peer, "netns", path]);
            })
            .unwrap();
        machine
            .run(|| {
                ip(&["link", "set", &peer, "up"]);
                ip(&[
                    "addr",
                    "add",
                    &format!("192.0.2.{number}/24"),
                    "brd",
                    "+",
                    "dev",
                    &peer,
                ]);
            })
            .unwrap();
    }
    let hears = || {
        let heard = heard(&machines[0], PORT, || {
            let sent = machines[1].run(|| {
                let socket = UdpSocket::bind("192.0.2.2:0").unwrap();
                socket.set_broadcast(true).unwrap();
                socket.send_to(b"x", (Ipv4Addr::BROADCAST, PORT))
            });
            sent.unwrap().unwrap();
        });
        heard.is_some()
    };
    wait_for("the machines", hears);
    assert!(hears());
    // Where pods may be on any bridge, it ends.
    let mut anywhere = Policies::new(NodeNetwork::default());
    let node = &cluster.nodes[0];
    let change = whole(cluster.enforcers[0].engine.plan());
    node.ns.run(|| anywhere.apply(&change).unwrap()).unwrap();
    assert!(!hears());
}

#[test]
fn neighbours_are_not_told_of_others_addresses_nor_reached_by_another_family() {
    const ARP: [u8; 2] = [0x08, 0x06];
    let Some(lab) = lab("np-link") else { return };
    let cluster = Cluster::new(&lab);
    let (a, b) = (cluster.pod("a"), cluster.pod("b"));
    let gets = |claimed: [u8; 4]| {
        let sniffer = Sniffer::new(&a.ns);
        // An answer that nobody has asked for.
        let kind = [0, 1, 8, 0, 6, 4, 0, 2];
        let (sender, target) = (mac(b.address), mac(a.address));
        let arp = [&kind[..], &sender, &claimed, &target, &a.address.octets()].concat();
        send(&b.ns, &[&target[..], &sender, &ARP, &arp].concat());
        let frames = sniffer.frames(QUIET);
        let is_it = |frame: &Vec<u8>| frame[12..14] == ARP && frame[28..32] == claimed;
        frames.iter().any(is_it)
    };
    assert!(gets(b.address.octets()));
    assert!(!gets([10, 244, 1, 1]), "the gateway's");
    assert!(!gets(a.address.octets()), "the receiver's own");
    // A kernel gives a link an address of its own in IPv6.
    let link_local = |ns: &NetNs| {
        let find = || {
            let mut all = nix::ifaddrs::getifaddrs().unwrap();
            all.find_map(|one| {
                let is_it = one.interface_name == "eth0";
                let address = *one.address.filter(|_| is_it)?.as_sockaddr_in6()?;
                address.ip().is_unicast_link_local().then_some(address)
            })
        };
        ns.run(find).unwrap()
    };
    wait_for("link-local addresses", || link_local(&b.ns).is_some());
    let any = (Ipv6Addr::UNSPECIFIED, PORT);
    let listener = a.ns.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let (to, own) = (link_local(&a.ns).unwrap(), link_local(&b.ns).unwrap());
    // By the kernel, and without asking for a neighbour.
    let to = SocketAddrV6::new(to.ip(), PORT, 0, own.scope_id());
    let socket = b.ns.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    let _ = socket.send_to(b"x", to);
    let packet = super::raw::ipv6_options(own.ip(), *to.ip(), 0, PORT);
    let addresses = [mac_of(&a.ns, "eth0"), mac_of(&b.ns, "eth0")].concat();
    send(&b.ns, &[&addresses[..], &[0x86, 0xdd], &packet].concat());
    assert!(listener.recv(&mut [0]).is_err());
}

/// Registers a node that others reach over the overlay, at this port.
fn tell_overlay(lab: &Lab, node: &Node, port: u16) {
    let registered = object(&node.name, &node.address.to_string(), &node.pod_cidr());
    lab.api.put("nodes", told(registered, "overlay", port));
}

for_each_engine!(the_overlay_takes_packets_from_nodes_alone);

fn the_overlay_takes_packets_from_nodes_alone(mode: ProxyMode) {
    const OVERLAY: u16 = 8472;
    let Some(lab) = lab_by(mode, "np-overlay") else {
        return;
    };
    let mut cluster = Cluster::new(&lab);
    let register = |node: &Node| tell_overlay(&lab, node, OVERLAY);
    cluster.nodes.iter().for_each(register);
    let links = |node: &Node| {
        let list = || crate::harness::output("ip", &["route"]);
        node.ns.run(list).unwrap().contains("coracle-vxlan")
    };
    wait_for("the overlay", || cluster.nodes.iter().all(links));
    wait_for("the way over it", || cluster.reaches("c", "a", 8080));
    let from_c = json!([{"from": [{"podSelector": of("c")}]}]);
    cluster.policy(
        "only-c",
        Some(json!({"podSelector": of("a"), "ingress": from_c})),
    );
    let (a, b, c) = (cluster.pod("a"), cluster.pod("b"), cluster.pod("c"));
    let [near, far] = [0, 1].map(|at| cluster.nodes[at].address);
    // As the other node would send what c has sent to a.
    let packet = Ipv4 {
        from: c.address,
        to: a.address,
        protocol: UDP,
        fragment: 0,
        options: &[],
        payload: &udp(PORT, b"x"),
    };
    let inner = [&mac(near)[..], &mac(far), &[8, 0], &packet.bytes()].concat();
    // Flags, number of the network.
    let envelope = [&[8, 0, 0, 0, 0, 0, 67, 0][..], &inner].concat();
    let sent = |from: &NetNs, to: (Ipv4Addr, u16)| {
        heard(&a.ns, PORT, || {
            let socket = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(&envelope, to).unwrap();
        })
    };
    // A Service leads there, too, from a port that is no overlay's.
    let ports = json!([{"port": 80, "protocol": "UDP", "nodePort": 30080}]);
    let kind = json!({"type": "NodePort"});
    let service = crate::fake_api::service("tunnel", "10.96.0.44", &ports, &kind);
    lab.api.put("services", service);
    let target = json!([{"name": "", "port": OVERLAY, "protocol": "UDP"}]);
    let endpoint = near.to_string();
    let slice = crate::fake_api::slice("tunnel", &target, &[(&endpoint, "n1")]);
    lab.api.put("endpointslices", slice);
    let proxy = |at: usize| cluster.nodes[at].proxy(std::time::Duration::from_secs(3600));
    let _proxies = [proxy(0), proxy(1)];
    wait_for("the Service", || {
        cluster.nodes.iter().all(|node| node.count_services() > 0)
    });
    let everybody = Ipv4Addr::from([10, 244, 1, 255]);
    for from in [b, c] {
        for to in [
            (near, OVERLAY),
            (everybody, OVERLAY),
            ([10, 96, 0, 44].into(), 80),
            (near, 30080),
            (far, 30080),
        ] {
            assert_eq!(sent(&from.ns, to), None, "from {} to {to:?}", from.address);
        }
    }
    // What comes through another node may be a pod's, under the node's address.
    let [near_node, far_node] = [0, 1].map(|at| &cluster.nodes[at].ns);
    assert_eq!(sent(far_node, (near, 30080)), None, "translated to here");
    assert_eq!(sent(near_node, (far, 30080)), None, "translated to others");
    // Nobody but other nodes: no machine beside them, nor a program of the node itself.
    let stranger = lab.node(9);
    assert_eq!(sent(&stranger.ns, (near, OVERLAY)), None, "no node");
    assert_eq!(sent(near_node, (near, OVERLAY)), None, "itself");
    // The envelope is as it should be: it is who sends it that matters.
    assert!(sent(far_node, (near, OVERLAY)).is_some());
    assert!(cluster.reaches("c", "a", 8080));
    register(&stranger);
    wait_for("a third node", || {
        sent(&stranger.ns, (near, OVERLAY)).is_some()
    });
    lab.api.delete("nodes", "", &stranger.name);
    wait_for("it is none any more", || {
        sent(&stranger.ns, (near, OVERLAY)).is_none()
    });
    // A Service at that port is the pods' as any other.
    let ports = json!([{"port": OVERLAY, "protocol": "UDP"}]);
    let service = crate::fake_api::service("same", "10.96.0.45", &ports, &json!({}));
    lab.api.put("services", service);
    let target = json!([{"name": "", "port": PORT, "protocol": "UDP"}]);
    let endpoint = a.address.to_string();
    let slice = crate::fake_api::slice("same", &target, &[(&endpoint, "n1")]);
    lab.api.put("endpointslices", slice);
    wait_for("the Service at the overlay's port", || {
        sent(&c.ns, ([10, 96, 0, 45].into(), OVERLAY)).is_some()
    });
}

/// The agent follows the server to another port, and the guard cannot: the table is another
/// program's own by now.
#[test]
fn no_link_listens_at_a_port_that_is_not_guarded() {
    let Some(lab) = lab_by(ProxyMode::Nftables, "np-port") else {
        return;
    };
    let (node, other) = (lab.node(1), lab.node(2));
    let tell = |port: u16| {
        for node in [&node, &other] {
            tell_overlay(&lab, node, port);
        }
    };
    tell(8472);
    let _running = node.routes(Some(node.ready_network()));
    let links = || {
        let list = || crate::harness::output("ip", &["-d", "link", "show", "type", "vxlan"]);
        node.ns.run(list).unwrap()
    };
    wait_for("the overlay", || links().contains("dstport 8472"));
    let begin = || Command::new("nft").arg("-i").stdin(Stdio::piped()).spawn();
    let mut owner = node.ns.run(begin).unwrap().unwrap();
    let mut input = owner.stdin.take().unwrap();
    let take = "delete table ip coracle-overlay; add table ip coracle-overlay { flags owner; }\n";
    input.write_all(take.as_bytes()).unwrap();
    wait_for("the table is another's", || {
        let listed = node.nft(&["list", "table", "ip", "coracle-overlay"]);
        listed.is_ok_and(|table| !table.contains("chain"))
    });
    tell(8473);
    wait_for("nothing listens", || links().is_empty());
    drop(input);
    owner.wait().unwrap();
    wait_for("the other port", || links().contains("dstport 8473"));
    let guard = node
        .nft(&["list", "table", "ip", "coracle-overlay"])
        .unwrap();
    assert!(guard.contains(". 8473"), "{guard}");
}
