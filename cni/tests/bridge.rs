//! The plugin against a real kernel: a node namespace with pod namespaces, no uplink. Needs root.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use coracle_cni::{
    Attachment, NetConf, bridge, masquerade,
    netlink::Netlink,
    skel::{Output, dispatch},
    veth,
};
use coracle_netfilter::iptables::{Iptables, plan};
use coracle_netns::{NetNs, unpin};

/// Namespaces and reservations of one test; gone with it.
struct Node {
    dir: PathBuf,
    ns: NetNs,
}

impl Node {
    fn new(name: &str) -> Option<Self> {
        let root = nix::unistd::geteuid().is_root();
        assert!(
            root || std::env::var_os("REQUIRE_ROOT").is_none(),
            "REQUIRE_ROOT is set and this is not root"
        );
        if !root {
            let _ = writeln!(std::io::stderr(), "skipped: needs root");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("ct-{}-{name}", std::process::id()));
        std::fs::create_dir_all(dir.join("ns")).unwrap();
        let ns = NetNs::create(&dir.join("ns/node")).unwrap();
        Some(Self { dir, ns })
    }

    fn pod(&self, name: &str) -> Pod {
        let path = self.dir.join("ns").join(name);
        let ns = NetNs::create(&path).unwrap();
        let attachment = Attachment {
            container_id: format!("{name:0>64}"),
            ifname: "eth0".into(),
            netns: Some(path.clone()),
        };
        Pod {
            ns,
            attachment,
            path,
        }
    }

    fn conf(&self) -> NetConf {
        let json = serde_json::json!({
            "cniVersion": "1.0.0", "name": "test", "type": "coracle-cni", "bridge": "br0", "mtu": 1400, "ipMasq": true,
            "noMasquerade": ["10.77.0.0/16"],
            "ipam": {"subnet": "10.77.1.0/24", "dataDir": self.dir.join("networks")}
        });
        NetConf::parse(json.to_string().as_bytes()).unwrap()
    }

    fn add(&self, pod: &Pod) -> Ipv4Addr {
        let result = self
            .ns
            .run(|| coracle_cni::add(&pod.attachment, &self.conf()))
            .unwrap()
            .unwrap();
        assert_eq!(result.ips.len(), 1);
        let std::net::IpAddr::V4(address) = result.addresses()[0] else {
            panic!("IPv6")
        };
        address
    }

    fn del(&self, attachment: &Attachment) {
        self.ns
            .run(|| coracle_cni::del(attachment, &self.conf()))
            .unwrap()
            .unwrap();
    }

    fn ports(&self) -> Vec<String> {
        let links = self
            .ns
            .run(|| Netlink::open().unwrap().links().unwrap())
            .unwrap();
        links
            .into_iter()
            .filter(|link| link.name.starts_with("veth"))
            .map(|link| link.name)
            .collect()
    }

    fn reservations(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.dir.join("networks/test")) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| name.parse::<Ipv4Addr>().is_ok())
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.dir.join("ns"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = unpin(&entry.path());
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Pod {
    ns: NetNs,
    attachment: Attachment,
    path: PathBuf,
}

/// Whether `from` gets an answer of a listener in `to` at `address`; returns the address that the
/// listener saw.
fn talk(from: &NetNs, to: &NetNs, address: Ipv4Addr) -> Ipv4Addr {
    let listener = to
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080)).unwrap())
        .unwrap();
    let client = from
        .run(|| {
            TcpStream::connect_timeout(&SocketAddr::from((address, 8080)), Duration::from_secs(3))
        })
        .unwrap()
        .unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    server.write_all(b"x").unwrap();
    (&client).read_exact(&mut [0]).unwrap();
    let std::net::IpAddr::V4(seen) = peer.ip() else {
        panic!("IPv6")
    };
    seen
}

#[test]
fn pods_reach_each_other_the_node_and_themselves_without_nat() {
    let Some(node) = Node::new("reach") else {
        return;
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let started = Instant::now();
    let address_a = node.add(&a);
    let first = started.elapsed();
    let started = Instant::now();
    let address_b = node.add(&b);
    let _ = writeln!(
        std::io::stderr(),
        "ADD: first {first:?}, second {:?}",
        started.elapsed()
    );
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    assert_eq!(
        talk(&node.ns, &b.ns, address_b),
        Ipv4Addr::new(10, 77, 1, 1)
    );
    assert_eq!(
        talk(&b.ns, &node.ns, Ipv4Addr::new(10, 77, 1, 1)),
        address_b
    );
    assert_eq!(talk(&a.ns, &a.ns, address_a), address_a);
}

#[test]
fn add_is_idempotent_and_check_agrees() {
    let Some(node) = Node::new("idem") else {
        return;
    };
    let pod = node.pod("a");
    let address = node.add(&pod);
    assert_eq!(node.add(&pod), address);
    node.ns
        .run(|| coracle_cni::check(&pod.attachment, &node.conf()))
        .unwrap()
        .unwrap();
    // A sandbox that was made anew under the same id: the old pair leads nowhere.
    unpin(&pod.path).unwrap();
    let again = node.pod("a");
    assert_eq!(node.add(&again), address);
    assert_eq!(
        talk(&node.ns, &again.ns, address),
        Ipv4Addr::new(10, 77, 1, 1)
    );
    drop(pod);
}

#[test]
fn del_leaves_nothing_and_succeeds_again_and_without_namespace() {
    let Some(node) = Node::new("del") else { return };
    let (a, b) = (node.pod("a"), node.pod("b"));
    node.add(&a);
    node.add(&b);
    assert_eq!((node.ports().len(), node.reservations().len()), (2, 2));
    let started = Instant::now();
    node.del(&a.attachment);
    let _ = writeln!(std::io::stderr(), "DEL with link: {:?}", started.elapsed());
    node.del(&a.attachment);
    unpin(&b.path).unwrap();
    drop(b.ns);
    node.del(&Attachment {
        netns: None,
        ..b.attachment
    });
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
    assert!(
        node.ns
            .run(|| coracle_cni::check(&a.attachment, &node.conf()))
            .unwrap()
            .is_err()
    );
    node.ns
        .run(|| {
            let iptables = Iptables::find().unwrap();
            masquerade::remove(&iptables, &node.conf()).unwrap();
            for table in ["nat", "filter"] {
                let left = plan::parse(&iptables.save(table).unwrap());
                assert!(
                    !left.keys().any(|chain| chain.contains("CORACLE")),
                    "{left:?}"
                );
                assert!(left.values().all(Vec::is_empty), "{left:?}");
            }
            bridge::remove(&mut Netlink::open().unwrap(), "br0").unwrap();
        })
        .unwrap();
}

#[test]
fn a_failed_add_leaves_nothing() {
    let Some(node) = Node::new("fail") else {
        return;
    };
    let pod = node.pod("a");
    // Its end of the pair cannot be made: there is one of that name.
    pod.ns
        .run(|| {
            let run =
                |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
            run(&["link", "add", "eth0", "type", "bridge"]);
        })
        .unwrap();
    let error = node
        .ns
        .run(|| coracle_cni::add(&pod.attachment, &node.conf()))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.code(), 100);
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
}

#[test]
fn gc_removes_links_and_addresses_of_vanished_sandboxes() {
    let Some(node) = Node::new("gc") else { return };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let kept = node.add(&a);
    node.add(&b);
    let mut conf = node.conf();
    conf.valid_attachments = vec![coracle_cni::conf::ValidAttachment {
        container_id: a.attachment.container_id.clone(),
        ifname: "eth0".into(),
    }];
    node.ns.run(|| coracle_cni::gc(&conf)).unwrap().unwrap();
    assert_eq!(
        node.ports(),
        [veth::host_name(&a.attachment.container_id, "eth0")]
    );
    assert_eq!(node.reservations(), [kept.to_string()]);
}

#[test]
fn a_flushed_masquerade_chain_is_written_again() {
    let Some(node) = Node::new("masq") else {
        return;
    };
    let pod = node.pod("a");
    node.add(&pod);
    node.ns
        .run(|| {
            let iptables = Iptables::find().unwrap();
            let before = plan::parse(&iptables.save("nat").unwrap());
            iptables.restore("*nat\n-F CORACLE-MASQ\nCOMMIT\n").unwrap();
            masquerade::ensure(&iptables, &node.conf()).unwrap();
            assert_eq!(plan::parse(&iptables.save("nat").unwrap()), before);
            // Written as they are read: a second look finds nothing to do.
            for nft in [true, false] {
                let iptables = Iptables::variant(nft).unwrap();
                masquerade::ensure(&iptables, &node.conf()).unwrap();
                let once = iptables.save("nat").unwrap();
                masquerade::ensure(&iptables, &node.conf()).unwrap();
                assert_eq!(
                    plan::parse(&iptables.save("nat").unwrap()),
                    plan::parse(&once)
                );
            }
        })
        .unwrap();
}

#[test]
fn the_binary_speaks_the_protocol() {
    let Some(node) = Node::new("bin") else { return };
    let pod = node.pod("a");
    let conf = serde_json::to_vec(&node.conf()).unwrap();
    let call = |command: &str| {
        node.ns
            .run(|| {
                let mut child = Command::new(env!("CARGO_BIN_EXE_coracle-cni"))
                    .env("CNI_COMMAND", command)
                    .env("CNI_CONTAINERID", &pod.attachment.container_id)
                    .env("CNI_IFNAME", "eth0")
                    .env("CNI_NETNS", &pod.path)
                    .env("CNI_PATH", "/nonexistent")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                child.stdin.take().unwrap().write_all(&conf).unwrap();
                child.wait_with_output().unwrap()
            })
            .unwrap()
    };
    let added = call("ADD");
    assert!(
        added.status.success(),
        "{}",
        String::from_utf8_lossy(&added.stdout)
    );
    let result: serde_json::Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.77.1.2/24");
    assert_eq!(
        result["interfaces"][2]["sandbox"],
        pod.path.display().to_string()
    );
    assert!(call("CHECK").status.success());
    assert!(call("DEL").stdout.is_empty());
    assert!(!call("CHECK").status.success());
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
}

#[test]
fn a_missing_namespace_is_an_unknown_container() {
    let environment: HashMap<String, String> = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/nonexistent/netns"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect();
    let conf = br#"{"cniVersion":"1.0.0","name":"n","type":"coracle-cni","ipam":{"subnet":"10.1.0.0/24"}}"#;
    let Output::Failure(error) = dispatch(&environment, conf) else {
        panic!("succeeded")
    };
    assert_eq!(error.code, 3);
    assert!(!Path::new("/nonexistent/netns").exists());
}

#[test]
fn a_pod_cannot_send_under_anothers_address() {
    let Some(node) = Node::new("spoof") else {
        return;
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (address_a, address_b) = (node.add(&a), node.add(&b));
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    let ip = |pod: &Pod, args: &[&str]| {
        pod.ns
            .run(|| assert!(Command::new("ip").args(args).status().unwrap().success()))
            .unwrap();
    };
    // An address of its own choice.
    ip(&a, &["addr", "add", "10.77.1.99/24", "dev", "eth0"]);
    let from = |source: [u8; 4]| {
        let listener =
            b.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9999)).unwrap())
                .unwrap();
        listener
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        a.ns.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::from(source), 0)).unwrap();
            socket.send_to(b"x", (address_b, 9999)).unwrap();
        })
        .unwrap();
        listener.recv(&mut [0]).is_ok()
    };
    assert!(from(address_a.octets()));
    assert!(!from([10, 77, 1, 99]), "a foreign IPv4 source arrived");
    // A MAC address of its own choice.
    ip(&a, &["link", "set", "eth0", "address", "0a:58:0a:4d:01:63"]);
    assert!(!from(address_a.octets()), "a foreign MAC arrived");
}

#[test]
fn the_generation_changes_with_the_rules_and_only_then() {
    let Some(node) = Node::new("gen") else { return };
    node.ns
        .run(|| {
            let iptables = Iptables::variant(true).unwrap();
            let before = iptables.generation();
            iptables.save("nat").unwrap();
            assert!(before.is_some());
            assert_eq!(iptables.generation(), before);
            iptables.restore("*nat\n:X - [0:0]\nCOMMIT\n").unwrap();
            assert_ne!(iptables.generation(), before);
            assert_eq!(Iptables::variant(false).unwrap().generation(), None);
        })
        .unwrap();
}

/// An Ethernet frame with one UDP packet, after `tag`.
fn udp_frame(from: Ipv4Addr, to: Ipv4Addr, port: u16, tag: &[u8]) -> Vec<u8> {
    let mut frame = [bridge::mac(to), bridge::mac(from)].concat();
    frame.extend_from_slice(tag);
    frame.extend_from_slice(&[0x08, 0x00]);
    let mut header = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(folded).unwrap();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&header);
    // UDP: ports, length, no checksum; one byte.
    frame.extend_from_slice(&[
        0x10,
        0,
        port.to_be_bytes()[0],
        port.to_be_bytes()[1],
        0,
        9,
        0,
        0,
        b'x',
    ]);
    frame
}

#[test]
fn a_tagged_frame_does_not_pass_the_guard() {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};

    let Some(node) = Node::new("vlan") else {
        return;
    };
    let mut conf = node.conf();
    conf.anti_spoof = true;
    let (a, b) = (node.pod("a"), node.pod("b"));
    let attach = |pod: &Pod| {
        let result = node
            .ns
            .run(|| coracle_cni::add(&pod.attachment, &conf))
            .unwrap()
            .unwrap();
        let std::net::IpAddr::V4(address) = result.addresses()[0] else {
            panic!("IPv6")
        };
        address
    };
    let (address_a, address_b) = (attach(&a), attach(&b));
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    let arrives = |tag: &[u8]| {
        let listener =
            b.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9999)).unwrap())
                .unwrap();
        listener
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        a.ns.run(|| {
            let links = nix::ifaddrs::getifaddrs()
                .unwrap()
                .filter(|link| link.interface_name == "eth0");
            let link = links
                .filter_map(|link| link.address?.as_link_addr().copied())
                .next()
                .unwrap();
            let raw = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::empty(),
                None,
            )
            .unwrap();
            let frame = udp_frame(address_a, address_b, 9999, tag);
            sendto(raw.as_raw_fd(), &frame, &link, MsgFlags::empty()).unwrap();
        })
        .unwrap();
        listener.recv(&mut [0]).is_ok()
    };
    assert!(arrives(&[]), "the frame itself is right");
    // Priority 0, VLAN 0: the receiver would take it for untagged, the node's rules would not see
    // it at all.
    assert!(
        !arrives(&[0x81, 0x00, 0x00, 0x00]),
        "a priority-tagged frame arrived"
    );
    assert!(
        !arrives(&[0x88, 0xa8, 0x00, 0x00, 0x81, 0x00, 0x00, 0x00]),
        "a twice tagged frame arrived"
    );
}

#[test]
fn more_requests_than_a_receive_buffer_holds_answers_for_are_all_answered() {
    use coracle_cni::netlink::{Request, Route, RouteNetlinkMessage};

    let Some(node) = Node::new("batch") else {
        return;
    };
    node.ns
        .run(|| {
            assert!(
                Command::new("ip")
                    .args(["link", "set", "lo", "up"])
                    .status()
                    .unwrap()
                    .success()
            );
            let route = |n: u32| Route {
                destination: ipnet::Ipv4Net::new(Ipv4Addr::from(0x0b00_0000 + n * 256), 24)
                    .unwrap(),
                gateway: None,
                interface: Some(1),
                source: None,
                protocol: 67,
            };
            let requests = |n| RouteNetlinkMessage::NewRoute(route(n).message());
            let mut netlink = Netlink::open().unwrap();
            netlink
                .batch(
                    (0..1000)
                        .map(|n| Request::create("add", requests(n)))
                        .collect(),
                )
                .unwrap();
            assert_eq!(
                netlink
                    .routes()
                    .unwrap()
                    .iter()
                    .filter(|route| route.protocol == 67)
                    .count(),
                1000
            );
            // A refusal in the middle stops nothing, and is the answer.
            let again = (990..1010)
                .map(|n| Request::create("add", requests(n)))
                .collect();
            assert_eq!(
                netlink.batch(again).unwrap_err().errno(),
                Some(nix::errno::Errno::EEXIST)
            );
            assert_eq!(
                netlink
                    .routes()
                    .unwrap()
                    .iter()
                    .filter(|route| route.protocol == 67)
                    .count(),
                1010
            );
        })
        .unwrap();
}
