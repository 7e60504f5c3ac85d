//! Which servers run on a store that several share: a key for each, written by its server every
//! 10 s and removed as it ends.
//!
//! ```text
//! /servers/alive/apiserver-HASH   {"host": "s1", "holder": "s1_UUID", "address": "10.0.0.11:6443"}
//! ```
//! They are under no kind: nobody makes or changes one through the API, as upstream's own
//! `/masterleases` (`pkg/controlplane/reconcilers/lease.go` at v1.37). Whether a server lives is
//! told by its key being written again, and never by a time in it: clocks of machines differ.

use std::{net::SocketAddr, time::Duration};

use coracle_store::{
    Backend, Compare, KeyValue, Op, RangeRequest, Revision, StoreError, Txn, TxnOutcome,
};
use coracle_telemetry::ErrorChain;
use serde::{Deserialize, Serialize};
#[cfg(feature = "etcd")]
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::identity::{self, Identity};

/// What all of them are under.
const KEYS: &str = "/servers/alive/";
const RENEW: Duration = Duration::from_secs(10);
/// After one that failed: others wait for it.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// For one renewal.
const DEADLINE: Duration = Duration::from_secs(5);
/// Between two looks of who waits to see which servers renew.
#[cfg(feature = "etcd")]
const LOOK: Duration = Duration::from_millis(500);
/// Who has not renewed for so long is no more. Upstream's TTL, for renewals every 10 s.
pub(crate) const ALIVE: Duration = Duration::from_secs(15);

/// What a server writes of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    host: String,
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
}

/// A server's key, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// That of its identity Lease.
    pub(crate) name: String,
    /// The machine's name.
    #[cfg_attr(
        not(feature = "etcd"),
        allow(dead_code, reason = "who copies a store is told of it")
    )]
    pub(crate) host: String,
    /// Where it is reached, if it is by others than its machine.
    pub(crate) address: Option<SocketAddr>,
    /// When it was renewed last.
    pub(crate) renewed: Revision,
}

/// Why a key was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error("the store does not take it")]
    Store(#[from] StoreError),
    #[error("another server with the host name {host} has written it")]
    Taken { host: String },
    #[error("it cannot be written down")]
    Encode(#[from] serde_json::Error),
}

fn key_of(name: &str) -> String {
    format!("{KEYS}{name}")
}

/// Keeps the key of a server until `stop`; [`withdraw`] removes it.
pub(crate) async fn renew(backend: &dyn Backend, identity: &Identity, stop: &CancellationToken) {
    let (mut known, mut told) = (None, false);
    loop {
        let renewed = tokio::time::timeout(DEADLINE, renew_once(backend, identity, known));
        known = match stop.run_until_cancelled(renewed).await {
            None => return,
            Some(Ok(Ok(revision))) => Some(revision),
            Some(Ok(Err(error))) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(error = %ErrorChain(&error), "cannot tell the other API servers of this one");
                }
                None
            }
            Some(Err(_)) => None,
        };
        told &= known.is_none();
        let pause = if known.is_some() { RENEW } else { RENEW_AGAIN };
        if stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Compared with what is known: a renewal that is still on its way does not come after
/// [`withdraw`].
async fn renew_once(
    backend: &dyn Backend,
    identity: &Identity,
    known: Option<Revision>,
) -> Result<Revision, RenewError> {
    let key: std::sync::Arc<str> = key_of(&identity::name(&identity.host)).into();
    let there = match known {
        Some(revision) => Some(revision),
        None => backend.get(&key).await?.map(|found| found.mod_revision),
    };
    let unchanged = match there {
        Some(revision) => Compare::ModRevision(key.clone(), revision),
        None => Compare::Absent(key.clone()),
    };
    let told = Told {
        host: identity.host.clone(),
        holder: identity.holder.clone(),
        address: identity.address,
    };
    let value = serde_json::to_vec(&told)?.into();
    let written = backend
        .txn(Txn {
            compare: vec![unchanged],
            ops: vec![Op::Put { key, value }],
            may_use_disk_reserve: true,
        })
        .await?;
    match written {
        TxnOutcome::Committed(revision) => Ok(revision),
        TxnOutcome::Conflict(_) => Err(RenewError::Taken {
            host: identity.host.clone(),
        }),
    }
}

/// Says that a server is no more.
///
/// # Errors
/// What the store said: others find out by the key that is not renewed.
pub(crate) async fn withdraw(backend: &dyn Backend, identity: &Identity) -> Result<(), StoreError> {
    remove(backend, &identity::name(&identity.host), None).await
}

/// Removes the key of a server that nobody has renewed since.
///
/// # Errors
/// What the store said.
pub(crate) async fn forget(
    backend: &dyn Backend,
    name: &str,
    renewed: Revision,
) -> Result<(), StoreError> {
    remove(backend, name, Some(renewed)).await
}

async fn remove(
    backend: &dyn Backend,
    name: &str,
    renewed: Option<Revision>,
) -> Result<(), StoreError> {
    let key: std::sync::Arc<str> = key_of(name).into();
    let unchanged = renewed.map(|renewed| Compare::ModRevision(key.clone(), renewed));
    let removal = Txn {
        compare: unchanged.into_iter().collect(),
        ops: vec![Op::Delete { key }],
        may_use_disk_reserve: true,
    };
    backend.txn(removal).await.map(drop)
}

/// The keys of all servers. One that cannot be read says that there is one, and not where.
///
/// # Errors
/// What the store said.
pub(crate) async fn find(backend: &dyn Backend) -> Result<Vec<Found>, StoreError> {
    let all = RangeRequest {
        prefix: KEYS.to_owned(),
        ..RangeRequest::default()
    };
    let found = backend.range(all).await?;
    Ok(found.items.iter().map(parse).collect())
}

fn parse(kv: &KeyValue) -> Found {
    let name = kv.key.strip_prefix(KEYS).unwrap_or(&kv.key);
    let told: Option<Told> = serde_json::from_slice(&kv.value).ok();
    // What is at another server's key, or is none, leads nowhere.
    let told = told.filter(|told| identity::name(&told.host) == name);
    let (host, address) = match told {
        Some(told) => (told.host, told.address),
        None => (name.to_owned(), None),
    };
    Found {
        name: name.to_owned(),
        host,
        address,
        renewed: kv.mod_revision,
    }
}

/// A server that runs on the store, if one does. One that has ended without saying so is waited for
/// until it would have renewed.
///
/// # Errors
/// What the store said.
#[cfg(feature = "etcd")]
pub(crate) async fn running(backend: &dyn Backend) -> Result<Option<Found>, StoreError> {
    let before = find(backend).await?;
    if before.is_empty() {
        return Ok(None);
    }
    tracing::info!("a server runs on this store or was killed: wait whether it says that it lives");
    let end = Instant::now() + ALIVE;
    while Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        if let Some(changed) = changed(&before, find(backend).await?) {
            return Ok(Some(changed));
        }
    }
    Ok(None)
}

/// One that has renewed since, or come.
#[cfg(feature = "etcd")]
fn changed(before: &[Found], now: Vec<Found>) -> Option<Found> {
    now.into_iter().find(|found| !before.contains(found))
}

#[cfg(test)]
mod tests;
