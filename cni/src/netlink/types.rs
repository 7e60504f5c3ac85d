//! Links, addresses, routes and neighbours: as this crate knows them, to and from rtnetlink's
//! messages. Pure.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use rtnetlink::{
    AddressMessageBuilder, RouteMessageBuilder,
    packet_core::{Nla as _, NlasIterator},
    packet_route::{
        RouteNetlinkMessage,
        address::AddressAttribute,
        link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope},
        tc::{TcAttribute, TcMessage, TcOption},
    },
};

/// A link as far as anyone here cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MAC address.
    pub address: Vec<u8>,
    /// MTU.
    pub mtu: u32,
    /// Index of the bridge it is a port of.
    pub controller: Option<u32>,
    /// Whether it is a bridge.
    pub is_bridge: bool,
    /// UDP port of a VXLAN link.
    pub vxlan_port: Option<u16>,
    /// Administratively up.
    pub up: bool,
}

/// Who has an IPv4 address, or behind which one a hardware address is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// The IPv4 address.
    pub destination: Ipv4Addr,
    /// The hardware address.
    pub address: Vec<u8>,
}

/// A queue that lets pass so many bytes a second (`tbf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst: u32,
    /// Bytes that may wait.
    pub limit: u32,
}

/// The link that such a queue is on, and its rate.
pub(super) fn parse_token_bucket(message: &TcMessage) -> Option<(u32, u64)> {
    let is_bucket = |one: &TcAttribute| matches!(one, TcAttribute::Kind(kind) if kind == "tbf");
    message.attributes.iter().find(|one| is_bucket(one))?;
    let options = message.attributes.iter().find_map(|one| match one {
        TcAttribute::Options(options) => options.iter().find_map(|option| match option {
            TcOption::Other(nested) => {
                let mut bytes = vec![0; nested.value_len()];
                nested.emit_value(&mut bytes);
                Some(bytes)
            }
            _ => None,
        }),
        _ => None,
    })?;
    let mut rate = None;
    for option in NlasIterator::new(options.as_slice()).flatten() {
        match (option.kind(), option.value()) {
            // Of `struct tc_tbf_qopt` the rate's last part.
            (1, parms) => {
                let bytes = <[u8; 4]>::try_from(parms.get(8..12)?).ok()?;
                rate = rate.or(Some(u64::from(u32::from_ne_bytes(bytes))));
            }
            (4, large) => rate = Some(u64::from_ne_bytes(<[u8; 8]>::try_from(large).ok()?)),
            _ => {}
        }
    }
    Some((u32::try_from(message.header.index).ok()?, rate?))
}

pub(super) fn parse_neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut destination, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => destination = Some(*ip),
            // Of a forwarding entry the family says nothing about the address.
            NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
                destination = <[u8; 4]>::try_from(bytes.as_slice())
                    .ok()
                    .map(Ipv4Addr::from);
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => address = Some(bytes.clone()),
            _ => {}
        }
    }
    Some(Neighbour {
        destination: destination?,
        address: address?,
    })
}

/// An IPv4 route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: Ipv4Net,
    /// Through whom.
    pub gateway: Option<Ipv4Addr>,
    /// Out of which interface.
    pub interface: Option<u32>,
    /// Source address of the node's own packets.
    pub source: Option<Ipv4Addr>,
    /// Who made it.
    pub protocol: u8,
}

impl Route {
    /// The message for a request.
    #[must_use]
    pub fn message(&self) -> RouteMessage {
        let mut builder = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(self.destination.network(), self.destination.prefix_len())
            .protocol(RouteProtocol::from(self.protocol));
        if let Some(gateway) = self.gateway {
            builder = builder.gateway(gateway);
        } else {
            builder = builder.scope(RouteScope::Link);
        }
        if let Some(index) = self.interface {
            builder = builder.output_interface(index);
        }
        if let Some(source) = self.source {
            builder = builder.pref_source(source);
        }
        builder.build()
    }

    pub(super) fn parse(route: &RouteMessage) -> Option<Self> {
        const MAIN: u32 = 254;
        let mut table = u32::from(route.header.table);
        let mut destination = Ipv4Addr::UNSPECIFIED;
        let (mut gateway, mut interface, mut source) = (None, None, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Table(id) => table = *id,
                RouteAttribute::Destination(RouteAddress::Inet(ip)) => destination = *ip,
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => gateway = Some(*ip),
                RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => source = Some(*ip),
                RouteAttribute::Oif(index) => interface = Some(*index),
                _ => {}
            }
        }
        let destination = Ipv4Net::new(destination, route.header.destination_prefix_length).ok()?;
        let protocol = u8::from(route.header.protocol);
        (table == MAIN).then_some(Self {
            destination,
            gateway,
            interface,
            source,
            protocol,
        })
    }
}

/// The message that puts `address` on the link `index`. IPv4 knows no duplicate address detection
/// to wait for.
#[must_use]
pub fn address_message(index: u32, address: Ipv4Net) -> RouteNetlinkMessage {
    let mut message = AddressMessageBuilder::<Ipv4Addr>::new()
        .index(index)
        .address(address.addr(), address.prefix_len())
        .build();
    message
        .attributes
        .retain(|a| !matches!(a, AddressAttribute::Broadcast(_)));
    message
        .attributes
        .push(AddressAttribute::Broadcast(address.broadcast()));
    RouteNetlinkMessage::NewAddress(message)
}

/// Removes an address.
#[must_use]
pub fn address_removal(index: u32, address: Ipv4Net) -> RouteNetlinkMessage {
    let message = AddressMessageBuilder::<Ipv4Addr>::new()
        .index(index)
        .address(address.addr(), address.prefix_len())
        .build();
    RouteNetlinkMessage::DelAddress(message)
}

/// The same address, to be known again by its label: the link's name, a colon and a word, 15 bytes
/// together.
#[must_use]
pub fn labelled(message: RouteNetlinkMessage, label: &str) -> RouteNetlinkMessage {
    match message {
        RouteNetlinkMessage::NewAddress(mut address) => {
            address
                .attributes
                .push(AddressAttribute::Label(label.to_owned()));
            RouteNetlinkMessage::NewAddress(address)
        }
        other => other,
    }
}

pub(super) fn parse_link(link: &LinkMessage) -> Link {
    let mut parsed = Link {
        index: link.header.index,
        name: String::new(),
        address: Vec::new(),
        mtu: 0,
        controller: None,
        is_bridge: false,
        vxlan_port: None,
        up: link.header.flags.contains(LinkFlags::Up),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => parsed.name.clone_from(name),
            LinkAttribute::Address(address) => parsed.address.clone_from(address),
            LinkAttribute::Mtu(mtu) => parsed.mtu = *mtu,
            LinkAttribute::Controller(index) => parsed.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                parsed.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
                parsed.vxlan_port = infos.iter().find_map(vxlan_port);
            }
            _ => {}
        }
    }
    parsed
}

fn vxlan_port(info: &LinkInfo) -> Option<u16> {
    let LinkInfo::Data(InfoData::Vxlan(settings)) = info else {
        return None;
    };
    settings.iter().find_map(|one| {
        if let InfoVxlan::Port(port) = one {
            Some(*port)
        } else {
            None
        }
    })
}
