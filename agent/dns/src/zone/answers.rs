//! Records of the zone, in no order that a reader could rely on. Pure but for chance.

use std::{collections::BTreeSet, net::IpAddr};

use hickory_proto::rr::{
    Name, RData, Record, RecordType,
    rdata::{A, AAAA, CNAME, PTR, SRV},
};
use rand::seq::SliceRandom as _;

use super::{Found, TTL};

/// One place where a Service is, as a record of type SRV needs it.
pub(super) struct Target {
    pub(super) name: Name,
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

pub(super) fn records(name: &Name, targets: Vec<Target>, of: RecordType) -> Found {
    if of != RecordType::SRV {
        return addresses(name, targets.into_iter().map(|target| target.address), of);
    }
    let mut places: Vec<(Name, u16)> = targets
        .iter()
        .filter(|target| target.port != 0)
        .map(|target| (target.name.clone(), target.port))
        .collect();
    places.sort();
    places.dedup();
    if places.is_empty() {
        return Found::NoData;
    }
    places.shuffle(&mut rand::rng());
    let weight = u16::try_from(100 / places.len()).unwrap_or(0).max(1);
    let answers = places.into_iter().map(|(target, port)| {
        let data = RData::SRV(SRV::new(0, weight, port, target));
        Record::from_rdata(name.clone(), TTL, data)
    });
    let mut additionals: Vec<Record> = Vec::new();
    let mut seen = BTreeSet::new();
    for target in &targets {
        if target.port != 0 && seen.insert((target.name.clone(), target.address)) {
            additionals.push(address_record(&target.name, target.address));
        }
    }
    Found::Records {
        answers: answers.collect(),
        additionals,
    }
}

pub(super) fn addresses(name: &Name, all: impl Iterator<Item = IpAddr>, of: RecordType) -> Found {
    let mut all: Vec<IpAddr> = all
        .filter(|address| match of {
            RecordType::A => address.is_ipv4(),
            RecordType::AAAA => address.is_ipv6(),
            _ => false,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Found::NoData;
    }
    all.shuffle(&mut rand::rng());
    Found::Records {
        answers: all
            .into_iter()
            .map(|one| address_record(name, one))
            .collect(),
        additionals: Vec::new(),
    }
}

pub(super) fn alias(name: &Name, other: &str, wanted: RecordType) -> Found {
    // An address in a field for names is no name.
    let target = Name::from_ascii(other.trim_end_matches('.')).ok();
    let target = target.filter(|_| other.parse::<IpAddr>().is_err());
    match (target, wanted) {
        (Some(mut target), RecordType::A | RecordType::AAAA | RecordType::CNAME) => {
            target.set_fqdn(true);
            let data = RData::CNAME(CNAME(target.clone()));
            Found::Alias {
                record: Box::new(Record::from_rdata(name.clone(), TTL, data)),
                target,
            }
        }
        (Some(_), _) => Found::NoData,
        (None, _) => Found::NoName,
    }
}

pub(super) fn one(name: &Name, data: RData) -> Found {
    Found::Records {
        answers: vec![Record::from_rdata(name.clone(), TTL, data)],
        additionals: Vec::new(),
    }
}

/// In their order.
pub(super) fn pointers(name: &Name, targets: Vec<Name>) -> Found {
    let pointer = |target| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(target)));
    Found::Records {
        answers: targets.into_iter().map(pointer).collect(),
        additionals: Vec::new(),
    }
}

pub(super) fn address_record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), TTL, data)
}

/// A name below another one. What is too long for a name is cut at its left: nobody can ask for it.
pub(super) fn below(labels: &[&str], origin: &Name) -> Name {
    labels.iter().rev().fold(origin.clone(), |name, label| {
        name.prepend_label(label.as_bytes()).unwrap_or(name)
    })
}
