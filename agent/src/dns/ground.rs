//! The address that names are asked for at, and the rules around it. Blocks.

use std::net::IpAddr;

use coracle_cni::netlink::{Netlink, NetlinkError, Request, address_message, labelled};
use coracle_netfilter::{
    ProxyMode,
    engine::{EngineError, UntrackedEngine},
    remove_untracked, untracked_engine,
};
use ipnet::Ipv4Net;
use nix::errno::Errno;

/// The link, and by what the address is known as ours.
const LINK: &str = "lo";
const LABEL: &str = "lo:coracle-dns";

/// Why the address cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroundError {
    /// The kernel refuses the address.
    #[error("give link {LINK} the address {address} for names")]
    Address {
        address: IpAddr,
        #[source]
        source: NetlinkError,
    },
    /// The addresses that are there cannot be read, or removed.
    #[error("take the address for names from link {LINK}")]
    Remove(#[source] NetlinkError),
    /// Rules cannot be removed.
    #[error("remove the rules for names")]
    Rules(#[source] EngineError),
}

/// The rules that have the kernel follow nothing that goes to the address. Without them each
/// question is a connection to it: slower, and no less right.
#[derive(Debug)]
pub(super) struct Rules {
    mode: ProxyMode,
    /// Chosen with the first rule that is written.
    engine: Option<Box<dyn UntrackedEngine>>,
}

impl Rules {
    /// Writes nothing yet.
    pub(super) fn new(mode: ProxyMode) -> Self {
        Self { mode, engine: None }
    }

    /// Whether somebody may have changed them. Costs microseconds.
    pub(super) fn is_disturbed(&self) -> bool {
        let engine = self.engine.as_ref();
        engine.is_some_and(|engine| engine.is_disturbed())
    }

    /// Writes what is missing.
    pub(super) fn ensure(&mut self, address: IpAddr) {
        if let Err(error) = self.try_ensure(address) {
            tracing::debug!(
                error = %coracle_telemetry::ErrorChain(&error),
                "questions for names are followed as connections"
            );
        }
    }

    fn try_ensure(&mut self, address: IpAddr) -> Result<bool, EngineError> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(untracked_engine(self.mode)?),
        };
        engine.ensure(address)
    }
}

/// Takes the address. Idempotent.
pub(super) fn take(address: IpAddr) -> Result<(), GroundError> {
    let failed = |source| GroundError::Address { address, source };
    let IpAddr::V4(v4) = address else {
        return Ok(());
    };
    let mut netlink = Netlink::open().map_err(failed)?;
    let ours = netlink.labelled(LABEL).map_err(GroundError::Remove)?;
    let wanted = Ipv4Net::from(v4);
    let others = ours.iter().filter(|(_, net)| *net != wanted);
    let mut requests: Vec<Request> = others.map(|(index, net)| removal(*index, *net)).collect();
    if ours.len() == requests.len() {
        let link = netlink.link(LINK).map_err(failed)?;
        let index = link.map_or(1, |link| link.index);
        let message = labelled(address_message(index, wanted), LABEL);
        let add = Request::create("add an address", message);
        // Somebody else's is as good.
        requests.push(add.tolerate(&[Errno::EEXIST]));
    }
    if !requests.is_empty() {
        netlink.batch(requests).map_err(failed)?;
    }
    Ok(())
}

/// Leaves the address, and the rules, to others.
pub(crate) fn give_back() -> Result<(), GroundError> {
    let mut netlink = Netlink::open().map_err(GroundError::Remove)?;
    let ours = netlink.labelled(LABEL).map_err(GroundError::Remove)?;
    let requests = ours.iter().map(|(index, net)| removal(*index, *net));
    let requests: Vec<Request> = requests.collect();
    if requests.is_empty() {
        return Ok(());
    }
    // The address last: as long as it is there, what is left of the rules is known as ours. They
    // would keep whoever has the address next from being translated to.
    remove_untracked().map_err(GroundError::Rules)?;
    netlink.batch(requests).map_err(GroundError::Remove)
}

fn removal(index: u32, net: Ipv4Net) -> Request {
    let message = coracle_cni::netlink::address_removal(index, net);
    Request::change("remove an address", message).tolerate(&[Errno::EADDRNOTAVAIL])
}
