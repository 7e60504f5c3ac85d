//! The kernel's side: sends transactions, lists what is there. Blocks, in the calling thread's
//! namespace.

use std::{collections::BTreeMap, io, os::fd::AsFd};

use nix::sys::socket::{
    setsockopt,
    sockopt::{RcvBufForce, SndBufForce},
};

use super::{
    batch::{Batch, Data, Key, kind, verb},
    expression::Verdict,
    table::Table,
};
use crate::netlink::{
    self, Attributes, DONE, DUMP, ERROR, Head, Messages, REQUEST, Received, find, find_number,
    find_text, message,
};

/// What the kernel says to a transaction that it does not take. Nothing of it is written.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    #[error("talk to the kernel's nftables")]
    Io(#[source] io::Error),
    /// By number of the message.
    #[error("the kernel refuses a change of nftables: {}", .0.values().next().map_or_else(String::new, ToString::to_string))]
    Refused(BTreeMap<u32, io::Error>),
}

/// So often is a list begun anew because others changed what was listed.
const TRIES: usize = 8;
/// The kernel counts more than the bytes of a message.
const OVERHEAD: usize = 2;
/// `NFT_TABLE_F_DORMANT`.
const DORMANT: u32 = 1;
/// A usual send buffer.
const SEND_BYTES: usize = 128 * 1024;

/// Sends a transaction and waits for what becomes of it.
pub(super) fn commit(batch: Batch) -> Result<(), CommitError> {
    let last = batch.last_number();
    if batch.is_empty() {
        return Ok(());
    }
    let bytes = batch.finish();
    let mut socket = netlink::open().map_err(CommitError::Io)?;
    if bytes.len() > SEND_BYTES {
        let size = bytes.len() * OVERHEAD;
        // What is said of messages that are refused has no more room than this.
        setsockopt(&socket.as_fd(), SndBufForce, &size)
            .and_then(|()| setsockopt(&socket.as_fd(), RcvBufForce, &size))
            .map_err(|errno| CommitError::Io(errno.into()))?;
    }
    // Without it, each error would bring the whole message back.
    socket.set_cap_ack(true).map_err(CommitError::Io)?;
    socket.send(&bytes, 0).map_err(CommitError::Io)?;
    let mut refused = BTreeMap::new();
    loop {
        let answer = netlink::receive(&mut socket).map_err(CommitError::Io)?;
        for one in Messages(&answer).filter(|one| one.kind == ERROR) {
            match one.outcome() {
                Ok(()) => {}
                // The beginning stands for all.
                Err(error) if one.sequence == 0 => return Err(CommitError::Io(error)),
                Err(error) => {
                    refused.entry(one.sequence).or_insert(error);
                }
            }
            if one.sequence == last {
                return if refused.is_empty() {
                    Ok(())
                } else {
                    Err(CommitError::Refused(refused))
                };
            }
        }
    }
}

/// The elements of a set of a table; none if it is not there.
pub(super) fn elements(table: &Table, set: &str) -> io::Result<BTreeMap<Key, Data>> {
    let ask = |body: &mut Vec<u8>| {
        netlink::text(body, 1, &table.name);
        netlink::text(body, 2, set);
    };
    list(
        table,
        verb::GET_ELEMENT,
        ask,
        |all: &mut BTreeMap<_, _>, one| {
            let list = find(one.attributes(), 3).unwrap_or_default();
            all.extend(Attributes(list).filter_map(|(_, element)| parse_element(element)));
        },
    )
}

/// Flags, number and length of the key of a set, and the number of its values.
pub(super) type Shape = [u32; 4];

/// Where the kernel calls a chain, when, what becomes of packets after it, and the kind of chain.
pub(super) type Hooked = (u32, u32, u32, String);

/// What is there of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// Its chains are not called, whatever they are.
    pub(super) is_dormant: bool,
    pub(super) sets: BTreeMap<String, Shape>,
    /// The rules of each chain, as the kernel has them.
    pub(super) chains: BTreeMap<String, Vec<Vec<u8>>>,
    /// Of chains that the kernel calls.
    pub(super) hooks: BTreeMap<String, Hooked>,
}

/// What removes a table; nothing, if it is not there.
pub(super) fn removal(table: &Table) -> io::Result<Batch> {
    let mut batch = Batch::new();
    if is_there(table)? {
        batch.delete_table(table);
    }
    Ok(batch)
}

/// In a kernel without nftables there is no table.
pub(super) fn is_there(table: &Table) -> io::Result<bool> {
    flags(table).map(|flags| flags.is_some())
}

/// Of a table; `None` if it is not there.
fn flags(table: &Table) -> io::Result<Option<u32>> {
    let all = |_: &mut Vec<u8>| {};
    let found = list(
        table,
        verb::GET_TABLE,
        all,
        |found: &mut Option<u32>, one| {
            if find_text(one.attributes(), 1).as_deref() == Some(&*table.name) {
                *found = Some(find_number(one.attributes(), 2).unwrap_or_default());
            }
        },
    );
    match found {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        found => found,
    }
}

/// Names of tables that start so.
pub(super) fn tables(family: netlink::Family, prefix: &str) -> io::Result<Vec<String>> {
    let any = Table {
        family,
        name: "".into(),
    };
    let all = |_: &mut Vec<u8>| {};
    let found = list(
        &any,
        verb::GET_TABLE,
        all,
        |found: &mut Vec<String>, one| {
            let name = find_text(one.attributes(), 1);
            found.extend(name.filter(|name| name.starts_with(prefix)));
        },
    );
    match found {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Vec::new()),
        found => found,
    }
}

/// Whether any table of IPv4 has a chain whose name starts so.
pub(super) fn has_chains(prefix: &str) -> io::Result<bool> {
    let any = Table {
        family: netlink::Family::Ipv4,
        name: "".into(),
    };
    let all = |_: &mut Vec<u8>| {};
    let found = list(&any, verb::GET_CHAIN, all, |found: &mut bool, one| {
        let name = find_text(one.attributes(), 3);
        *found |= name.is_some_and(|name| name.starts_with(prefix));
    });
    match found {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
        found => found,
    }
}

/// Sets, chains and rules of a table; `None` if it is not there.
pub(super) fn present(table: &Table) -> io::Result<Option<Present>> {
    let named = |body: &mut Vec<u8>| netlink::text(body, 1, &table.name);
    let Some(flags) = flags(table)? else {
        return Ok(None);
    };
    let all = |_: &mut Vec<u8>| {};
    let sets = list(
        table,
        verb::GET_SET,
        named,
        |sets: &mut BTreeMap<_, _>, one| {
            let number = |kind| find_number(one.attributes(), kind).unwrap_or_default();
            if let Some(name) = of_table(&one, table, 2) {
                sets.insert(name, [3, 4, 5, 6].map(number));
            }
        },
    )?;
    type Chains = BTreeMap<String, Vec<Vec<u8>>>;
    type Both = (Chains, BTreeMap<String, Hooked>);
    let (mut chains, hooks) = list(table, verb::GET_CHAIN, all, |found: &mut Both, one| {
        if let Some(name) = of_table(&one, table, 3) {
            found.1.extend(hooked(&one).map(|how| (name.clone(), how)));
            found.0.insert(name, Vec::new());
        }
    })?;
    let rules = list(table, verb::GET_RULE, named, |chains: &mut Chains, one| {
        if let Some(chain) = of_table(&one, table, 2) {
            let expressions = find(one.attributes(), 4).unwrap_or_default().to_vec();
            chains.entry(chain).or_default().push(expressions);
        }
    })?;
    chains.extend(rules);
    Ok(Some(Present {
        is_dormant: flags & DORMANT != 0,
        sets,
        chains,
        hooks,
    }))
}

fn hooked(chain: &Received<'_>) -> Option<Hooked> {
    let hook = find(chain.attributes(), 4)?;
    let policy = find_number(chain.attributes(), 5)?;
    let kind = find_text(chain.attributes(), 7)?;
    Some((find_number(hook, 1)?, find_number(hook, 2)?, policy, kind))
}

/// The name, under this kind, of something of the table.
fn of_table(one: &Received<'_>, table: &Table, kind: u16) -> Option<String> {
    let of = find_text(one.attributes(), 1)?;
    (of == table.name).then(|| find_text(one.attributes(), kind))?
}

/// Lists; what is not there has nothing to list.
fn list<T: Default>(
    table: &Table,
    verb: u16,
    ask: impl Fn(&mut Vec<u8>),
    mut take: impl FnMut(&mut T, Received<'_>),
) -> io::Result<T> {
    for _ in 0..TRIES {
        let mut request = Vec::new();
        let head = Head {
            kind: kind(verb),
            flags: REQUEST | DUMP,
            sequence: 1,
            family: table.family.number(),
            resource: 0,
        };
        message(&mut request, head, &ask);
        let mut socket = netlink::open()?;
        socket.send(&request, 0)?;
        let mut all = T::default();
        match read_list(&mut socket, |one| take(&mut all, one)) {
            Ok(false) => {}
            Ok(true) => return Ok(all),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("others change nftables all the time"))
}

/// Says whether the list is whole.
fn read_list(
    socket: &mut rtnetlink::sys::Socket,
    mut take: impl FnMut(Received<'_>),
) -> io::Result<bool> {
    let mut whole = true;
    loop {
        let answer = netlink::receive(socket)?;
        for one in Messages(&answer) {
            whole &= !one.is_interrupted;
            match one.kind {
                DONE => return one.outcome().map(|()| whole),
                ERROR => one.outcome()?,
                _ => take(one),
            }
        }
    }
}

fn parse_element(element: &[u8]) -> Option<(Key, Data)> {
    let value = |kind| find(find(element, kind)?, 1).map(<[u8]>::to_vec);
    let key = Key {
        first: value(1)?,
        last: value(10),
    };
    let data = match find(element, 2) {
        None => Data::None,
        Some(data) => match find(data, 2) {
            Some(verdict) => Data::Verdict(parse_verdict(verdict)?),
            None => Data::Value(find(data, 1)?.to_vec()),
        },
    };
    Some((key, data))
}

fn parse_verdict(verdict: &[u8]) -> Option<Verdict> {
    let chain = || find_text(verdict, 2);
    Some(match find_number(verdict, 1)?.cast_signed() {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -3 => Verdict::Jump(chain()?),
        -4 => Verdict::Goto(chain()?),
        -5 => Verdict::Return,
        _ => return None,
    })
}

/// An element is the same when it is written again.
#[cfg(feature = "fuzzing")]
pub(super) fn check(listed: &Received<'_>) -> Vec<(Key, Data)> {
    let all = find(listed.attributes(), 3).unwrap_or_default();
    let all: Vec<(Key, Data)> = Attributes(all)
        .filter_map(|(_, element)| parse_element(element))
        .collect();
    for (key, data) in &all {
        let mut written = Vec::new();
        super::batch::write_element(&mut written, key, data);
        let again = parse_element(&written);
        assert_eq!(again.as_ref(), Some(&(key.clone(), data.clone())));
    }
    let name = find_text(listed.attributes(), 1).unwrap_or_default();
    assert!(!name.contains('\0'), "{name:?}");
    let _ = hooked(listed);
    all
}
