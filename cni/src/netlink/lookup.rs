//! What the kernel says is there: links, addresses, routes and neighbours. Changes nothing.

use std::net::IpAddr;

use ipnet::Ipv4Net;
use nix::errno::Errno;
use rtnetlink::{
    LinkUnspec,
    packet_core::{NLM_F_REQUEST, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage},
        link::{LinkAttribute, LinkExtentMask, LinkMessage},
        neighbour::{NeighbourMessage, NeighbourState},
        route::RouteMessage,
        tc::TcMessage,
    },
};

use super::{
    Link, Neighbour, Netlink, NetlinkError, Route,
    types::{parse_link, parse_neighbour, parse_token_bucket},
};

impl Netlink {
    /// The link with this name, if there is one.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let mut request = LinkUnspec::new_with_name(name).build();
        // Leaves out the statistics, which make up most of the answer.
        request
            .attributes
            .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut bytes = Vec::new();
        self.append(
            &mut bytes,
            RouteNetlinkMessage::GetLink(request),
            NLM_F_REQUEST,
        );
        self.socket.send(&bytes, 0).map_err(NetlinkError::Socket)?;
        for message in self.receive()? {
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    return Ok(Some(parse_link(&link)));
                }
                NetlinkPayload::Error(answer) => {
                    let errno = answer.code.map_or(Errno::UnknownErrno, |c| {
                        Errno::from_raw(c.get().saturating_neg())
                    });
                    if errno == Errno::ENODEV {
                        return Ok(None);
                    }
                    return Err(NetlinkError::Refused {
                        what: "look a link up",
                        source: errno.into(),
                    });
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// All links of the namespace.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let all = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(all
            .iter()
            .filter_map(|m| {
                if let RouteNetlinkMessage::NewLink(link) = m {
                    Some(parse_link(link))
                } else {
                    None
                }
            })
            .collect())
    }

    /// All IPv4 addresses: `(interface index, address with prefix)`.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn addresses(&mut self) -> Result<Vec<(u32, Ipv4Net)>, NetlinkError> {
        self.addresses_that(|_| true)
    }

    /// Those that were given this label.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn labelled(&mut self, label: &str) -> Result<Vec<(u32, Ipv4Net)>, NetlinkError> {
        self.addresses_that(|address| {
            let mut attributes = address.attributes.iter();
            attributes.any(|one| matches!(one, AddressAttribute::Label(own) if own == label))
        })
    }

    fn addresses_that(
        &mut self,
        are_meant: impl Fn(&AddressMessage) -> bool,
    ) -> Result<Vec<(u32, Ipv4Net)>, NetlinkError> {
        let mut request = AddressMessage::default();
        request.header.family = AddressFamily::Inet;
        let all = self.dump(RouteNetlinkMessage::GetAddress(request))?;
        Ok(all
            .iter()
            .filter_map(|m| {
                let RouteNetlinkMessage::NewAddress(address) = m else {
                    return None;
                };
                let local = address.attributes.iter().find_map(|a| match a {
                    AddressAttribute::Local(IpAddr::V4(ip)) => Some(*ip),
                    _ => None,
                })?;
                are_meant(address).then_some(())?;
                Some((
                    address.header.index,
                    Ipv4Net::new(local, address.header.prefix_len).ok()?,
                ))
            })
            .collect())
    }

    /// All IPv4 routes of the main table.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet;
        let all = self.dump(RouteNetlinkMessage::GetRoute(request))?;
        Ok(all
            .iter()
            .filter_map(|m| {
                if let RouteNetlinkMessage::NewRoute(route) = m {
                    Route::parse(route)
                } else {
                    None
                }
            })
            .collect())
    }

    /// The links that have a token bucket, and its rate in bytes a second.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn token_buckets(&mut self) -> Result<Vec<(u32, u64)>, NetlinkError> {
        let all = self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
        Ok(all
            .iter()
            .filter_map(|m| {
                if let RouteNetlinkMessage::NewQueueDiscipline(queue) = m {
                    parse_token_bucket(queue)
                } else {
                    None
                }
            })
            .collect())
    }

    /// The permanent neighbours (or, of the bridge family, forwarding entries) of the link
    /// `interface`.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn neighbours(
        &mut self,
        interface: u32,
        family: AddressFamily,
    ) -> Result<Vec<Neighbour>, NetlinkError> {
        let mut request = NeighbourMessage::default();
        request.header.family = family;
        let all = self.dump(RouteNetlinkMessage::GetNeighbour(request))?;
        Ok(all
            .iter()
            .filter_map(|m| {
                if let RouteNetlinkMessage::NewNeighbour(one) = m {
                    Some(one)
                } else {
                    None
                }
            })
            .filter(|one| {
                one.header.ifindex == interface && one.header.state == NeighbourState::Permanent
            })
            .filter_map(parse_neighbour)
            .collect())
    }
}
