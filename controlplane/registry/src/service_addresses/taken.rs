//! Who has which address and which port, and what a Service uses of them.

use std::{collections::HashMap, net::Ipv4Addr};

use serde_json::Value;

/// Who has what.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) addresses: HashMap<Ipv4Addr, Holder>,
    pub(super) ports: HashMap<u16, Holder>,
}

/// Who has an address or a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// The Service of this key, as the cache shows it.
    Stored(String),
    /// A write under way.
    Reserved(u64),
}

/// Who asks: the stored Service that is changed, if it is none that is made, and the write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) key: Option<&'a str>,
    pub(super) reservation: u64,
}

impl Asker<'_> {
    pub(super) fn is(self, holder: &Holder) -> bool {
        match holder {
            Holder::Stored(key) => self.key == Some(key),
            Holder::Reserved(reservation) => self.reservation == *reservation,
        }
    }
}

/// What one Service uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    pub(super) addresses: Vec<Ipv4Addr>,
    pub(super) ports: Vec<u16>,
}

impl Taken {
    pub(super) fn take(&mut self, holder: &Holder, uses: &Uses) {
        for address in &uses.addresses {
            self.addresses.insert(*address, holder.clone());
        }
        for port in &uses.ports {
            self.ports.insert(*port, holder.clone());
        }
    }

    /// Frees what of `uses` is still the holder's.
    pub(super) fn release(&mut self, holder: &Holder, uses: &Uses) {
        for address in &uses.addresses {
            if self.addresses.get(address) == Some(holder) {
                self.addresses.remove(address);
            }
        }
        for port in &uses.ports {
            if self.ports.get(port) == Some(holder) {
                self.ports.remove(port);
            }
        }
    }

    pub(super) fn has_any(&self, holder: &Holder, uses: &Uses) -> bool {
        uses.addresses
            .iter()
            .any(|address| self.addresses.get(address) == Some(holder))
            || uses
                .ports
                .iter()
                .any(|port| self.ports.get(port) == Some(holder))
    }
}

/// What an encoded Service uses.
pub(super) fn parse(json: &[u8]) -> Uses {
    let service: Value = serde_json::from_slice(json).unwrap_or_default();
    let spec = &service["spec"];
    let mut uses = Uses::default();
    uses.addresses.extend(
        spec["clusterIP"]
            .as_str()
            .and_then(|address| address.parse::<Ipv4Addr>().ok()),
    );
    let ports = spec["ports"].as_array().into_iter().flatten();
    uses.ports.extend(
        ports
            .filter_map(|port| u16::try_from(port["nodePort"].as_i64()?).ok())
            .filter(|port| *port > 0),
    );
    uses
}
