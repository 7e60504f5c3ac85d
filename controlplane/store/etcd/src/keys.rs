//! Keys and revisions: the store's and etcd's.

use std::sync::Arc;

use bytes::Bytes;
use coracle_store::{KeyValue, Revision};

/// What keys of our own begin with, which are none of the store's. They come before all others, so
/// that the first page of a range has them, and how many remain is right.
const HIDDEN: &str = "/.";

/// Where a cluster's keys are, and how its revisions are counted.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// Begins with a slash, ends without.
    prefix: Arc<str>,
    /// What etcd's revisions are counted from: the last revision of the store that was copied here,
    /// so that clients never see a revision for a second time.
    past: u64,
}

impl Keys {
    pub(crate) fn under(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            past: 0,
        }
    }

    pub(crate) fn counted_from(self, past: Revision) -> Self {
        Self {
            past: past.0,
            ..self
        }
    }

    /// What the store calls a revision of etcd.
    pub(crate) fn revision(&self, of_etcd: i64) -> Revision {
        Revision(self.past + u64::try_from(of_etcd).unwrap_or_default())
    }

    /// What etcd calls a revision of the store; 0 if it is of before there was anything.
    pub(crate) fn of_etcd(&self, revision: Revision) -> i64 {
        // No revision of etcd's is beyond its own type.
        i64::try_from(revision.0.saturating_sub(self.past)).unwrap_or(i64::MAX)
    }

    /// The same where something is asked for: to etcd 0 is "now", and an empty store is at 1.
    pub(crate) fn asked(&self, revision: Revision) -> i64 {
        self.of_etcd(revision).max(1)
    }

    /// The store's key `key`, or the prefix of keys, in etcd.
    pub(crate) fn full(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// All that is the cluster's: first key, and the end.
    pub(crate) fn everything(&self) -> (Vec<u8>, Vec<u8>) {
        let first = self.full("/");
        let end = end_of(&first);
        (first, end)
    }

    /// Whose data it is.
    pub(crate) fn record(&self) -> Vec<u8> {
        self.full("/.cluster")
    }

    /// Written where nothing else is, to bring watches on.
    pub(crate) fn progress(&self) -> Vec<u8> {
        self.full("/.progress")
    }

    /// What the store calls a key of etcd; `None` for what is no key of the store.
    pub(crate) fn own<'a>(&self, full: &'a [u8]) -> Option<&'a str> {
        let key = full.strip_prefix(self.prefix.as_bytes())?;
        let key = std::str::from_utf8(key).ok()?;
        (!key.starts_with(HIDDEN)).then_some(key)
    }

    /// An entry in the store's terms.
    pub(crate) fn entry(&self, kv: etcd_client::KeyValue) -> Option<KeyValue> {
        let key = self.own(kv.key())?.into();
        let (create_revision, mod_revision) = (
            self.revision(kv.create_revision()),
            self.revision(kv.mod_revision()),
        );
        let (_, value) = kv.into_key_value();
        Some(KeyValue {
            key,
            value: Bytes::from(value),
            create_revision,
            mod_revision,
        })
    }
}

/// The first key after all that start with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // As etcd says "to the very end".
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_were() {
        let keys = Keys::under("/coracle");
        let full = keys.full("/registry/pods/default/a");
        assert_eq!(full, b"/coracle/registry/pods/default/a");
        assert_eq!(keys.own(&full), Some("/registry/pods/default/a"));
        assert_eq!(keys.own(b"/other/registry"), None);
        assert_eq!(keys.own(b"/coracle/\xff"), None);
        assert_eq!(keys.own(&keys.record()), None);
        assert_eq!(keys.own(&keys.progress()), None);
    }

    #[test]
    fn revisions_go_on_where_the_copied_store_was() {
        let keys = Keys::under("/coracle").counted_from(Revision(5000));
        assert_eq!(keys.revision(3), Revision(5003));
        assert_eq!(keys.of_etcd(Revision(5003)), 3);
        assert_eq!(keys.asked(Revision(5003)), 3);
        assert_eq!(
            (keys.of_etcd(Revision(4999)), keys.asked(Revision(4999))),
            (0, 1)
        );
    }

    #[test]
    fn a_prefix_ends_before_its_neighbour() {
        assert_eq!(end_of(b"/registry/pods/"), b"/registry/pods0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
        let (first, end) = Keys::under("/coracle").everything();
        assert_eq!((&*first, &*end), (&b"/coracle/"[..], &b"/coracle0"[..]));
    }
}
