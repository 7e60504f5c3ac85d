//! From one engine to another, while no server runs on either: `coracle store copy`.
//!
//! Keys and values go over as they are, oldest write first, so that objects keep their order by
//! resourceVersion. Their revisions are new, and greater than any that the old store gave: whoever
//! made the new store saw to that. History stays behind, so nothing older can be asked for.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    backend::Backend,
    error::StoreError,
    types::{Compare, KeyValue, MAX_OPS, Op, RangeRequest, Revision, Txn, TxnOutcome},
};

/// What all objects are under.
const ROOT: &str = "/registry/";
/// Keys read at once.
const PAGE: usize = 500;
/// Bytes written at once: etcd takes 1.5 MiB in one request.
const BATCH_BYTES: usize = 1 << 20;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Keys.
    pub keys: usize,
    /// Bytes of their values.
    pub bytes: usize,
    /// The revision of the old store that was copied.
    pub from: Revision,
    /// Where the new one is now.
    pub to: Revision,
}

/// Why a copy is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The old store cannot be read.
    #[error("cannot read the store that is copied")]
    Read(#[source] StoreError),
    /// The new store cannot be written.
    #[error("cannot write the copy")]
    Write(#[source] StoreError),
    /// The new store has something in it.
    #[error("the store to copy to is not empty: it has {keys} keys")]
    NotEmpty {
        /// How many.
        keys: usize,
    },
    /// The new store would give revisions a second time.
    #[error(
        "the store to copy to is at revision {to}, before the other one's {from}: clients would see revisions twice"
    )]
    Behind {
        /// Of the old store.
        from: Revision,
        /// Of the new one.
        to: Revision,
    },
    /// Somebody else writes the new store.
    #[error("somebody else writes to the store that is copied to: {key} appeared meanwhile")]
    Disturbed {
        /// What was not there before.
        key: String,
    },
    /// What was written is not what is there.
    #[error("the copy differs at {key}: nothing of it can be relied on")]
    Differs {
        /// The first key that does.
        key: String,
    },
}

/// Copies all that `from` holds into `to`, which is empty and not behind it, and compares.
///
/// # Errors
/// See [`CopyError`]; what `to` holds then is a part.
pub async fn copy(from: &dyn Backend, to: &dyn Backend) -> Result<Copied, CopyError> {
    let at = from.current_revision().await.map_err(CopyError::Read)?;
    let start = to.current_revision().await.map_err(CopyError::Write)?;
    if start < at {
        return Err(CopyError::Behind {
            from: at,
            to: start,
        });
    }
    let there = read_all(to, start).await.map_err(CopyError::Write)?;
    if !there.is_empty() {
        return Err(CopyError::NotEmpty { keys: there.len() });
    }
    let mut entries = read_all(from, at).await.map_err(CopyError::Read)?;
    entries.sort_by_key(|kv| kv.mod_revision);
    for batch in batches(&entries) {
        write(to, batch).await?;
    }
    let end = to.current_revision().await.map_err(CopyError::Write)?;
    let written = read_all(to, end).await.map_err(CopyError::Write)?;
    compare(&entries, &written)?;
    to.compact(end).await.map_err(CopyError::Write)?;
    Ok(Copied {
        keys: entries.len(),
        bytes: entries.iter().map(|kv| kv.value.len()).sum(),
        from: at,
        to: end,
    })
}

async fn read_all(store: &dyn Backend, at: Revision) -> Result<Vec<KeyValue>, StoreError> {
    let mut all: Vec<KeyValue> = Vec::new();
    loop {
        let request = RangeRequest {
            prefix: ROOT.to_owned(),
            start: all.last().map(|last| format!("{}\0", last.key)),
            limit: Some(PAGE),
            at: Some(at),
        };
        let page = store.range(request).await?;
        all.extend(page.items);
        if page.remaining == 0 {
            return Ok(all);
        }
    }
}

/// As many as one transaction takes, and no more bytes than etcd does, unless one alone has more.
fn batches(entries: &[KeyValue]) -> Vec<&[KeyValue]> {
    let (mut batches, mut rest) = (Vec::new(), entries);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take(MAX_OPS).take_while(|kv| {
            bytes += kv.key.len() + kv.value.len();
            bytes <= BATCH_BYTES
        });
        let (batch, others) = rest.split_at(fitting.count().max(1));
        batches.push(batch);
        rest = others;
    }
    batches
}

async fn write(to: &dyn Backend, batch: &[KeyValue]) -> Result<(), CopyError> {
    let txn = Txn {
        compare: batch
            .iter()
            .map(|kv| Compare::Absent(kv.key.clone()))
            .collect(),
        ops: batch
            .iter()
            .map(|kv| Op::Put {
                key: kv.key.clone(),
                value: kv.value.clone(),
            })
            .collect(),
        ..Txn::default()
    };
    match to.txn(txn).await.map_err(CopyError::Write)? {
        TxnOutcome::Committed(_) => Ok(()),
        TxnOutcome::Conflict(found) => {
            let key = found.into_iter().flatten().next().map(|kv| kv.key);
            Err(CopyError::Disturbed {
                key: key.as_deref().unwrap_or_default().to_owned(),
            })
        }
    }
}

fn compare(expected: &[KeyValue], found: &[KeyValue]) -> Result<(), CopyError> {
    let mut missing: BTreeMap<&str, &Bytes> =
        expected.iter().map(|kv| (&*kv.key, &kv.value)).collect();
    let stranger = found
        .iter()
        .find(|kv| missing.remove(&*kv.key) != Some(&kv.value))
        .map(|kv| &*kv.key);
    match stranger.or_else(|| missing.keys().next().copied()) {
        Some(key) => Err(CopyError::Differs {
            key: key.to_owned(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
