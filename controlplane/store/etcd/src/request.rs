//! From the store's terms to etcd's, and back. Pure.

use coracle_store::{Compare, KeyValue, Op, RangeRequest, Txn, TxnOutcome};
use etcd_client::{CompareOp, GetOptions, TxnOp, TxnOpResponse, TxnResponse};

use crate::keys::{Keys, end_of};

/// What no key's revision is. A comparison with the store's revision 0 holds for no key; etcd's
/// revision 0 is that of an absent one.
const NEVER: i64 = -1;

/// The transaction, with reads of what is compared in case it does not hold.
pub(crate) fn txn(keys: &Keys, txn: &Txn) -> etcd_client::Txn {
    let compares: Vec<etcd_client::Compare> = txn
        .compare
        .iter()
        .map(|compare| comparison(keys, compare))
        .collect();
    let finds: Vec<TxnOp> = txn
        .compare
        .iter()
        .map(|compare| TxnOp::get(keys.full(compare.key()), None))
        .collect();
    let mut ops: Vec<TxnOp> = txn.ops.iter().map(|op| write(keys, op)).collect();
    if ops.is_empty() {
        // Of a transaction without operations etcd answers with what the one member knows.
        ops.push(TxnOp::get(
            keys.record(),
            Some(GetOptions::new().with_keys_only()),
        ));
    }
    etcd_client::Txn::new()
        .when(compares)
        .and_then(ops)
        .or_else(finds)
}

fn comparison(keys: &Keys, compare: &Compare) -> etcd_client::Compare {
    match compare {
        Compare::Absent(key) => {
            etcd_client::Compare::create_revision(keys.full(key), CompareOp::Equal, 0)
        }
        Compare::Present(key) => {
            etcd_client::Compare::create_revision(keys.full(key), CompareOp::Greater, 0)
        }
        Compare::ModRevision(key, revision) => {
            let revision = match keys.of_etcd(*revision) {
                0 => NEVER,
                revision => revision,
            };
            etcd_client::Compare::mod_revision(keys.full(key), CompareOp::Equal, revision)
        }
    }
}

fn write(keys: &Keys, op: &Op) -> TxnOp {
    match op {
        Op::Put { key, value } => TxnOp::put(keys.full(key), &**value, None),
        Op::Delete { key } => TxnOp::delete(keys.full(key), None),
    }
}

/// How it ended; `None` for an answer that is none.
pub(crate) fn outcome(keys: &Keys, response: &TxnResponse) -> Option<TxnOutcome> {
    if response.succeeded() {
        let header = response.header()?;
        return Some(TxnOutcome::Committed(keys.revision(header.revision())));
    }
    let found = response.op_responses().into_iter().map(|response| {
        let TxnOpResponse::Get(mut found) = response else {
            return None;
        };
        Some(found.take_kvs().into_iter().next())
    });
    let found: Option<Vec<Option<etcd_client::KeyValue>>> = found.collect();
    let found: Vec<Option<KeyValue>> = found?.into_iter().map(|kv| keys.entry(kv?)).collect();
    Some(TxnOutcome::Conflict(found))
}

/// First key and options of a range.
pub(crate) fn range(keys: &Keys, request: &RangeRequest) -> (Vec<u8>, GetOptions) {
    let end = match request.prefix.as_str() {
        // Not "all that begins with the prefix": that is the prefixes of others, too.
        "" => keys.everything().1,
        prefix => end_of(&keys.full(prefix)),
    };
    let mut options = GetOptions::new().with_range(end);
    if let Some(at) = request.at {
        options = options.with_revision(keys.asked(at));
    }
    match request.limit {
        // To etcd 0 is all.
        Some(0) => options = options.with_count_only(),
        Some(limit) => options = options.with_limit(i64::try_from(limit).unwrap_or(i64::MAX)),
        None => {}
    }
    let first = match request.first_key() {
        "" => keys.everything().0,
        first => keys.full(first),
    };
    (first, options)
}
