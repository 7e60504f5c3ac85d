//! One node with its pods: namespaces of the test, without an uplink.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use coracle_cni::{Attachment, NetConf, netlink::Netlink};
use coracle_ground::{Ground, is_root_or_skip};
use coracle_netns::NetNs;

/// Namespaces and reservations of one test; gone with it.
pub(crate) struct Node {
    pub(crate) dir: PathBuf,
    pub(crate) ns: NetNs,
    _ground: Ground,
}

impl Node {
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !is_root_or_skip() {
            return None;
        }
        let ground = Ground::named(name);
        let dir = ground.path().to_owned();
        std::fs::create_dir_all(dir.join("ns")).unwrap();
        let ns = NetNs::create(&dir.join("ns/node")).unwrap();
        Some(Self {
            dir,
            ns,
            _ground: ground,
        })
    }

    /// The plugin as a program, as a runtime or `cnitool` calls it.
    pub(crate) fn call(&self, pod: &Pod, command: &str, conf: &[u8]) -> Output {
        let run = || {
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
            child.stdin.take().unwrap().write_all(conf).unwrap();
            child.wait_with_output().unwrap()
        };
        self.ns.run(run).unwrap()
    }

    pub(crate) fn pod(&self, name: &str) -> Pod {
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

    pub(crate) fn conf(&self) -> NetConf {
        let json = serde_json::json!({
            "cniVersion": "1.0.0", "name": "test", "type": "coracle-cni", "bridge": "br0", "mtu": 1400, "ipMasq": true,
            "noMasquerade": ["10.77.0.0/16"],
            "ipam": {"subnet": "10.77.1.0/24", "dataDir": self.dir.join("networks")}
        });
        NetConf::parse(json.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn add(&self, pod: &Pod) -> Ipv4Addr {
        let result = self
            .ns
            .run(|| coracle_cni::add(&pod.attachment, &self.conf()))
            .unwrap()
            .unwrap();
        assert_eq!(result.ips.len(), 1);
        let IpAddr::V4(address) = result.addresses()[0] else {
            panic!("IPv6")
        };
        address
    }

    pub(crate) fn del(&self, attachment: &Attachment) {
        self.ns
            .run(|| coracle_cni::del(attachment, &self.conf()))
            .unwrap()
            .unwrap();
    }

    pub(crate) fn ports(&self) -> Vec<String> {
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

    pub(crate) fn reservations(&self) -> Vec<String> {
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

pub(crate) struct Pod {
    pub(crate) ns: NetNs,
    pub(crate) attachment: Attachment,
    pub(crate) path: PathBuf,
}

/// Whether `from` gets an answer of a listener in `to` at `address`; returns the address that the
/// listener saw.
pub(crate) fn talk(from: &NetNs, to: &NetNs, address: Ipv4Addr) -> Ipv4Addr {
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
    let IpAddr::V4(seen) = peer.ip() else {
        panic!("IPv6")
    };
    seen
}
