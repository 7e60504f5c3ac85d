//! Addresses of one node's subnet.
//!
//! [`allocator`] decides (pure), [`store`] remembers. There is no daemon and no database: the truth
//! is one file per reserved address. Two calls never get the same address, also when one of them is
//! killed at any point.

pub mod allocator;
pub mod store;

use std::{collections::HashSet, net::Ipv4Addr};

use crate::{conf::NetConf, error::CniError};
use store::{Owner, Store};

/// Reserves an address of `conf`'s subnet for `owner`, the one that is asked for or the next; the
/// same one again if it has one already.
///
/// # Errors
/// [`CniError::Exhausted`] when none is left: permanent until a pod goes. [`CniError::Taken`] when
/// another has the one that is asked for. [`CniError::Io`]: retry.
pub fn reserve(conf: &NetConf, owner: &Owner) -> Result<Ipv4Addr, CniError> {
    let store = Store::open(&conf.ipam.directory(&conf.name))?;
    let asked = conf.runtime_config.address();
    if let Some(address) = store.find(owner)? {
        if conf.ipam.subnet.contains(&address) {
            return match asked.filter(|asked| *asked != address) {
                None => Ok(address),
                Some(asked) => Err(CniError::Taken {
                    address: asked,
                    why: format!("{} has {address}", owner.container_id),
                }),
            };
        }
        // The node got another podCIDR since.
        store.release(owner)?;
    }
    if let Some(address) = asked {
        return reserve_asked(&store, address, owner);
    }
    let range = allocator::Range {
        first: conf.ipam.first(),
        last: conf.ipam.last(),
        gateway: conf.ipam.gateway(),
    };
    for candidate in range.candidates(store.last()?) {
        if !store.is_reserved(candidate) && store.try_reserve(candidate, owner)? {
            return Ok(candidate);
        }
    }
    Err(CniError::Exhausted {
        range: format!("{} ({} to {})", conf.ipam.subnet, range.first, range.last),
    })
}

fn reserve_asked(store: &Store, address: Ipv4Addr, owner: &Owner) -> Result<Ipv4Addr, CniError> {
    if store.try_reserve(address, owner)? {
        return Ok(address);
    }
    // What was noted for it would be in the way of its DEL.
    store.release(owner)?;
    let holder = store.owner(address)?;
    let holder = holder.map_or_else(|| "nobody known".to_owned(), |one| one.container_id);
    Err(CniError::Taken {
        address,
        why: format!("{holder} has it"),
    })
}

/// Gives back what `owner` has. Succeeds if it has nothing.
///
/// # Errors
/// [`CniError::Io`].
pub fn release(conf: &NetConf, owner: &Owner) -> Result<(), CniError> {
    match Store::open_existing(&conf.ipam.directory(&conf.name))? {
        Some(store) => store.release(owner),
        None => Ok(()),
    }
}

/// The address that `owner` has.
///
/// # Errors
/// [`CniError::Io`].
pub fn find(conf: &NetConf, owner: &Owner) -> Result<Option<Ipv4Addr>, CniError> {
    match Store::open_existing(&conf.ipam.directory(&conf.name))? {
        Some(store) => store.find(owner),
        None => Ok(None),
    }
}

/// Everybody who has an address.
///
/// # Errors
/// [`CniError::Io`].
pub fn owners(conf: &NetConf) -> Result<Vec<Owner>, CniError> {
    let all = match Store::open_existing(&conf.ipam.directory(&conf.name))? {
        Some(store) => store.list()?,
        None => Vec::new(),
    };
    Ok(all.into_iter().filter_map(|(_, owner)| owner).collect())
}

/// Releases every reservation whose owner is not in `valid`. Returns the freed addresses.
///
/// # Errors
/// [`CniError::Io`].
pub fn gc(conf: &NetConf, valid: &HashSet<Owner>) -> Result<Vec<Ipv4Addr>, CniError> {
    match Store::open_existing(&conf.ipam.directory(&conf.name))? {
        Some(store) => store.retain(valid),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
