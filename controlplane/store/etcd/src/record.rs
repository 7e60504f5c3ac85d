//! Whose data is under the prefix, and of which version: one key beside the objects.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use serde::{Deserialize, Serialize};

use crate::{
    error::{CallError, Cause, OpenError},
    keys::Keys,
    members::{Members, Repeat},
};

/// The form of keys and values. A release that changes it raises it.
pub(crate) const DATA_VERSION: u64 = 1;

/// What is written there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) data_version: u64,
    /// The cluster: its certificate authority's fingerprint.
    pub(crate) owner: String,
    /// The etcd it was written to.
    pub(crate) etcd_cluster: String,
    /// What revisions are counted from: see [`Keys`].
    #[serde(default)]
    pub(crate) past: u64,
    /// A store is being copied here; what there is of it is not all.
    #[serde(default)]
    pub(crate) is_copying: bool,
}

/// What there is under a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing at all.
    Nothing,
    /// Keys, and no record among them that can be read.
    Foreign,
    /// A cluster's data.
    Cluster(Record),
}

/// Looks, and writes nothing.
pub(crate) async fn find(keys: &Keys, members: &Members) -> Result<Found, CallError> {
    let (first, end) = keys.everything();
    let all = members
        .call(Repeat::Harmless, |member| {
            let (mut kv, first) = (member.kv.clone(), first.clone());
            let options = GetOptions::new().with_range(&*end).with_count_only();
            async move { kv.get(first, Some(options)).await }
        })
        .await?;
    if all.count() == 0 {
        return Ok(Found::Nothing);
    }
    // After that, not before: of what another server begins to write meanwhile the record is the
    // first.
    let key = keys.record();
    let response = members
        .call(Repeat::Harmless, |member| {
            let (mut kv, key) = (member.kv.clone(), key.clone());
            async move { kv.get(key, None).await }
        })
        .await?;
    let record = response.kvs().first();
    let record = record.and_then(|kv| serde_json::from_slice(kv.value()).ok());
    Ok(record.map_or(Found::Foreign, Found::Cluster))
}

impl Record {
    pub(crate) fn new(members: &Members, owner: &str) -> Self {
        Self {
            data_version: DATA_VERSION,
            owner: owner.to_owned(),
            etcd_cluster: id(members),
            past: 0,
            is_copying: false,
        }
    }
}

fn id(members: &Members) -> String {
    format!("{:x}", members.cluster().unwrap_or_default())
}

/// Sees that the prefix is `owner`'s: makes the record if there is nothing.
pub(crate) async fn claim(
    keys: &Keys,
    prefix: &str,
    members: &Members,
    owner: &str,
) -> Result<Record, OpenError> {
    let mut found = find(keys, members).await?;
    if found == Found::Nothing {
        write(keys, members, &Record::new(members, owner), None).await?;
        // Another server may have been first.
        found = find(keys, members).await?;
    }
    let record = judge(prefix, owner, found)?;
    let etcd_cluster = id(members);
    if record.etcd_cluster != etcd_cluster {
        tracing::warn!(
            was = record.etcd_cluster,
            is = etcd_cluster,
            "the data has come to another etcd, as by restoring a backup: if its revision went back, restart what watches"
        );
        let moved = Record {
            etcd_cluster,
            ..record.clone()
        };
        write(keys, members, &moved, Some(&record)).await?;
    }
    Ok(record)
}

/// Begins a copy: there must be nothing yet.
pub(crate) async fn begin_copy(
    keys: &Keys,
    prefix: &str,
    members: &Members,
    record: &Record,
) -> Result<(), OpenError> {
    let not_empty = || OpenError::NotEmpty {
        prefix: prefix.to_owned(),
    };
    if find(keys, members).await? != Found::Nothing {
        return Err(not_empty());
    }
    write(keys, members, record, None).await?;
    match find(keys, members).await? {
        Found::Cluster(found) if found == *record => Ok(()),
        _ => Err(not_empty()),
    }
}

/// The record, if it is `owner`'s and of this release's version.
fn judge(prefix: &str, owner: &str, found: Found) -> Result<Record, OpenError> {
    let prefix = prefix.to_owned();
    let Found::Cluster(record) = found else {
        return Err(OpenError::Foreign { prefix });
    };
    if record.data_version != DATA_VERSION {
        let advice = if record.data_version > DATA_VERSION {
            "run the release that wrote it, or a later one"
        } else {
            "start the release before this one once, which brings it up to date"
        };
        return Err(OpenError::OtherVersion {
            prefix,
            found: record.data_version,
            ours: DATA_VERSION,
            advice,
        });
    }
    if record.is_copying {
        return Err(OpenError::Unfinished { prefix });
    }
    if record.owner != owner {
        return Err(OpenError::OtherOwner {
            prefix,
            found: record.owner,
            ours: owner.to_owned(),
        });
    }
    Ok(record)
}

/// Writes the record where nobody has meanwhile: over `before`, or where there is none.
pub(crate) async fn write(
    keys: &Keys,
    members: &Members,
    record: &Record,
    before: Option<&Record>,
) -> Result<(), CallError> {
    let text = |record: &Record| {
        serde_json::to_vec(record)
            .map_err(|error| CallError::new("", Cause::Failed(error.to_string())))
    };
    let unchanged = match before {
        Some(before) => Compare::value(keys.record(), CompareOp::Equal, text(before)?),
        None => Compare::create_revision(keys.record(), CompareOp::Equal, 0),
    };
    let put = TxnOp::put(keys.record(), text(record)?, None);
    let txn = Txn::new().when([unchanged]).and_then([put]);
    // Twice does no harm: the second time finds it changed.
    members
        .call(Repeat::Harmless, |member| {
            let (mut kv, txn) = (member.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            data_version: DATA_VERSION,
            owner: "sha256:ours".to_owned(),
            etcd_cluster: "cdf8".to_owned(),
            past: 0,
            is_copying: false,
        }
    }

    fn said(found: Found) -> String {
        match judge("/coracle", "sha256:ours", found) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_our_own_data_is_taken() {
        assert_eq!(said(Found::Cluster(record())), "");
        let theirs = Record {
            owner: "sha256:theirs".to_owned(),
            ..record()
        };
        let newer = Record {
            data_version: 2,
            ..record()
        };
        let older = Record {
            data_version: 0,
            ..record()
        };
        let half = Record {
            is_copying: true,
            ..record()
        };
        for (found, expected) in [
            (Found::Cluster(half), "was not finished"),
            (Found::Foreign, "something else than Coracle"),
            (
                Found::Cluster(theirs),
                "another cluster, with certificate authority sha256:theirs",
            ),
            (Found::Cluster(newer), "or a later one"),
            (Found::Cluster(older), "the release before this one"),
        ] {
            let said = said(found);
            assert!(said.contains(expected), "{said}");
        }
    }
}
