//! A pod cannot send under another's address: neither IPv4, nor ARP, nor MAC.
//!
//! A classifier of two dozen instructions at the node's end of the pod's link passes IPv4 from the
//! pod's address and ARP that announces it (or nothing), from the pod's MAC, and drops everything
//! else. IPv6 is dropped too: pods have none, and a router advertisement of a pod must not reach
//! the node (CVE-2020-10749). So are frames with a VLAN or a priority tag: the bridge would carry
//! them past every rule of the node, and the receiver takes the tag off. Made with rtnetlink and
//! bpf(2) instead of a packet filter rule, because that would be an exec and a search through all
//! rules a pod.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd as _, OwnedFd},
};

use coracle_bpf::{Instruction, ProgramType};
use nix::errno::Errno;
use rtnetlink::{
    packet_core::DefaultNla,
    packet_route::{
        RouteNetlinkMessage,
        tc::{TcAttribute, TcHandle, TcHeader, TcMessage},
    },
};

use crate::netlink::{Netlink, Request, attribute};

const ETH_IPV4: i32 = 0x0800;
const ETH_ARP: i32 = 0x0806;
const ETH_ALL: u16 = 0x0003;
/// Where `struct __sk_buff` has `vlan_present`: the kernel takes the tag off before the classifier
/// sees the packet.
const VLAN_PRESENT: i32 = 20;
/// `TC_ACT_UNSPEC`: the next filter is asked, if there is one. `TC_ACT_SHOT`.
const PASS: i32 = -1;
const DROP: i32 = 2;
/// `TCA_OPTIONS`, `TCA_BPF_FD`, `TCA_BPF_NAME`, `TCA_BPF_FLAGS`, `TCA_BPF_FLAG_ACT_DIRECT`.
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const ACT_DIRECT: u32 = 1;

/// Lets only `address` and `mac` through the port with index `port`.
///
/// # Errors
/// EPERM where programs may not be loaded, ENOENT or EOPNOTSUPP where the kernel lacks the
/// classifier.
pub fn guard(netlink: &mut Netlink, port: u32, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
    let program = program(address, mac);
    let program = coracle_bpf::load(ProgramType::Classifier, "coracle_port", &program)?;
    let index = i32::try_from(port).map_err(io::Error::other)?;
    Ok(netlink.batch(vec![
        ingress_queue(index),
        Request::replace(
            "add the port's filter",
            RouteNetlinkMessage::NewTrafficFilter(filter(index, &program)),
        ),
    ])?)
}

/// The classifier. r6 holds the packet for the load instructions, r0 what they loaded.
fn program(address: Ipv4Addr, mac: [u8; 6]) -> Vec<Instruction> {
    let [m0, m1, m2, m3, m4, m5] = mac;
    let source = i32::from_be_bytes([m0, m1, m2, m3]);
    let source_rest = i32::from(u16::from_be_bytes([m4, m5]));
    let own = i32::from_be_bytes(address.octets());
    // Targets of jumps, by position in the list below.
    let (arp, pass, drop) = (11, 14, 16);
    let list: [(Op, i32); 18] = [
        (Op::Context, 0),
        (Op::Field, VLAN_PRESENT), // also of a tag that names no VLAN
        (Op::UnlessEqual(drop), 0),
        (Op::Word, 6), // source MAC
        (Op::UnlessEqual(drop), source),
        (Op::Half, 10),
        (Op::UnlessEqual(drop), source_rest),
        (Op::Half, 12), // type
        (Op::UnlessEqual(arp), ETH_IPV4),
        (Op::Word, 26), // IPv4 source
        (Op::Jump(13), 0),
        (Op::UnlessEqual(drop), ETH_ARP),
        (Op::ArpSender(pass), 28), // ARP sender; nothing passes, as probes have it
        (Op::UnlessEqual(drop), own),
        (Op::Answer, PASS),
        (Op::Exit, 0),
        (Op::Answer, DROP),
        (Op::Exit, 0),
    ];
    assemble(&list)
}

/// What the program is made of.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// r6 = packet.
    Context,
    /// r0 = what the kernel knows of the packet, at the immediate in `struct __sk_buff`.
    Field,
    /// r0 = 32 bits of the packet, from the immediate on.
    Word,
    /// r0 = 16 bits of the packet.
    Half,
    /// Goes on there unless r0 is the immediate.
    UnlessEqual(usize),
    /// Goes on there.
    Jump(usize),
    /// r0 = 32 bits of the packet; goes on there if they are 0. Two instructions.
    ArpSender(usize),
    /// r0 = immediate.
    Answer,
    /// Ends with r0.
    Exit,
}

fn assemble(list: &[(Op, i32)]) -> Vec<Instruction> {
    let size = |op: &Op| if matches!(op, Op::ArpSender(_)) { 2 } else { 1 };
    let position = |at: usize| list[..at].iter().map(|(op, _)| size(op)).sum::<usize>();
    let mut program: Vec<Instruction> = Vec::new();
    for (op, immediate) in list {
        // Jumps are relative to the next instruction.
        let to = |at: usize, here: usize| {
            i16::try_from(position(at) - here - 1).expect("two dozen instructions")
        };
        let here = program.len();
        let plain = |code, registers| Instruction {
            code,
            registers,
            offset: 0,
            immediate: *immediate,
        };
        match *op {
            Op::Context => program.push(Instruction {
                code: 0xbf,
                registers: 0x16,
                offset: 0,
                immediate: 0,
            }),
            Op::Field => {
                let offset = i16::try_from(*immediate).expect("a field of the packet");
                program.push(Instruction {
                    code: 0x61,
                    registers: 0x60,
                    offset,
                    immediate: 0,
                });
            }
            Op::Word => program.push(plain(0x20, 0)),
            Op::Half => program.push(plain(0x28, 0)),
            // 32-bit comparison: the 64-bit one extends the sign of the immediate.
            Op::UnlessEqual(at) => program.push(Instruction {
                offset: to(at, here),
                ..plain(0x56, 0)
            }),
            Op::Jump(at) => program.push(Instruction {
                offset: to(at, here),
                ..plain(0x05, 0)
            }),
            Op::ArpSender(at) => {
                program.push(plain(0x20, 0));
                program.push(Instruction {
                    code: 0x16,
                    registers: 0,
                    offset: to(at, here + 1),
                    immediate: 0,
                });
            }
            Op::Answer => program.push(plain(0xb7, 0)),
            Op::Exit => program.push(plain(0x95, 0)),
        }
    }
    program
}

/// Where filters of what comes from the pod are.
pub(crate) fn ingress_queue(index: i32) -> Request {
    Request::create(
        "add the port's ingress queue",
        RouteNetlinkMessage::NewQueueDiscipline(queue(index)),
    )
    .tolerate(&[Errno::EEXIST])
}

fn queue(index: i32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header = TcHeader {
        index,
        handle: TcHandle {
            major: 0xffff,
            minor: 0,
        },
        parent: TcHandle::INGRESS,
        ..TcHeader::default()
    };
    message.attributes = vec![TcAttribute::Kind("ingress".into())];
    message
}

fn filter(index: i32, program: &OwnedFd) -> TcMessage {
    let mut message = TcMessage::default();
    message.header = TcHeader {
        index,
        handle: TcHandle { major: 0, minor: 1 },
        parent: TcHandle {
            major: 0xffff,
            minor: 0,
        },
        // Priority 1, and the protocol in network order.
        info: (1 << 16) | u32::from(ETH_ALL.to_be()),
        ..TcHeader::default()
    };
    let mut options = Vec::new();
    attribute(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
    attribute(&mut options, TCA_BPF_NAME, b"coracle-anti-spoof\0");
    attribute(&mut options, TCA_BPF_FLAGS, &ACT_DIRECT.to_ne_bytes());
    message.attributes = vec![
        TcAttribute::Kind("bpf".into()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)),
    ];
    message
}
