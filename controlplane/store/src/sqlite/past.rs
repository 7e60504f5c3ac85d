//! What has changed since a revision that is read in pages: looked through once, not once a page.
//!
//! The state at a revision never changes; what supersedes it only grows. So the first page looks
//! through the log from there to the present, each later one through what has come meanwhile, and
//! all kinds that are read at one revision share it. Nothing here is needed to be right: what is
//! dropped is looked up again.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rusqlite::{Connection, params};

use super::index::{Outline, Row, RowId, Unchanged};
use crate::types::{RangeRequest, Revision};

/// Revisions that are remembered: a start, and as many lists of the past as are made at one time.
const PASTS: usize = 4;
/// How long one is that nobody reads.
const IDLE: Duration = Duration::from_secs(60);
/// Listings of one revision whose next page is expected.
const LISTINGS: usize = 16;

/// The revisions that are read, the last used at the end.
#[derive(Default)]
pub(super) struct Pasts(Mutex<VecDeque<(Instant, Arc<Past>)>>);

/// One of them.
pub(super) struct Past {
    at: Revision,
    changes: Mutex<Changes>,
}

/// What is known to have changed.
struct Changes {
    /// Everything up to here has been looked through.
    until: Revision,
    /// By key, the first change.
    first: BTreeMap<Arc<str>, Change>,
    /// The last pages of listings.
    listings: VecDeque<Listing>,
    #[cfg(test)]
    looked_at: usize,
}

/// The first change of a key.
struct Change {
    row: RowId,
    /// What was there; `None` if nothing was.
    before: Option<RowId>,
}

/// A listing that goes on at `start`.
struct Listing {
    prefix: String,
    start: String,
    /// Keys from there on. They stay as many.
    left: usize,
}

impl Pasts {
    /// The one of a revision.
    pub(super) fn of(&self, at: Revision) -> Arc<Past> {
        let mut pasts = self.0.lock();
        let known = pasts.iter().position(|(_, past)| past.at == at);
        let past = match known.and_then(|index| pasts.remove(index)) {
            Some((_, past)) => past,
            None => Arc::new(Past::new(at)),
        };
        pasts.retain(|(used, _)| used.elapsed() < IDLE);
        if pasts.len() == PASTS {
            pasts.pop_front();
        }
        pasts.push_back((Instant::now(), Arc::clone(&past)));
        past
    }

    /// Drops what cannot be read any more, and what nobody reads.
    pub(super) fn compact(&self, to: Revision) {
        self.0
            .lock()
            .retain(|(used, past)| past.at >= to && used.elapsed() < IDLE);
    }
}

impl Past {
    fn new(at: Revision) -> Self {
        Self {
            at,
            changes: Mutex::new(Changes {
                until: at,
                first: BTreeMap::new(),
                listings: VecDeque::new(),
                #[cfg(test)]
                looked_at: 0,
            }),
        }
    }

    /// What is known of a page of it.
    pub(super) fn outline(&self, request: &RangeRequest) -> Outline {
        let changes = self.changes.lock();
        let last = request.limit.and_then(|limit| limit.checked_sub(1));
        Outline {
            bound: last.and_then(|last| {
                let superseded = changes.superseded(request, changes.until).nth(last);
                superseded.map(|(key, _)| Arc::clone(key))
            }),
            left: changes.left(request),
        }
    }

    /// A page, and how many keys there are from its start on: what has not changed until
    /// `current`, and what has, as it was. `snapshot` is of `current` or later.
    pub(super) fn page(
        &self,
        snapshot: &Connection,
        request: &RangeRequest,
        (outline, unchanged): (&Outline, Unchanged),
        current: Revision,
    ) -> rusqlite::Result<(Vec<Row>, usize)> {
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut changes = self.changes.lock();
        changes.look_through(snapshot, current)?;
        let superseded = || changes.superseded(request, current);
        let left = match outline.left {
            Some(left) => left,
            None => unchanged.count + superseded().count(),
        };
        let mut rows = unchanged.rows;
        rows.extend(
            superseded()
                .take(limit)
                .map(|(key, row)| (Arc::clone(key), None, row)),
        );
        rows.sort_unstable_by(|(a, ..), (b, ..)| a.cmp(b));
        rows.truncate(limit);
        if let Some((last, ..)) = rows.last()
            && left > rows.len()
        {
            let start = format!("{last}\0");
            changes.expect(request, start, left - rows.len());
        }
        Ok((rows, left))
    }
}

impl Changes {
    fn look_through(&mut self, snapshot: &Connection, current: Revision) -> rusqlite::Result<()> {
        if self.until >= current {
            return Ok(());
        }
        let mut statement = snapshot.prepare_cached(
            "SELECT id, prev_id, key FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id",
        )?;
        let (from, to) = (RowId::last_of(self.until), RowId::last_of(current));
        let mut rows = statement.query(params![from.0, to.0])?;
        while let Some(row) = rows.next()? {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let key = row.get_ref(2)?.as_str()?;
            if !self.first.contains_key(key) {
                let before = Some(row.get(1)?).filter(|before| *before != 0).map(RowId);
                let row = RowId(row.get(0)?);
                self.first.insert(key.into(), Change { row, before });
            }
        }
        self.until = current;
        Ok(())
    }

    /// Keys of a range that were there and have changed until `current`, with the rows they had.
    fn superseded<'a>(
        &'a self,
        request: &'a RangeRequest,
        current: Revision,
    ) -> impl Iterator<Item = (&'a Arc<str>, RowId)> {
        // Another reader may have looked further; to this one that key has not changed.
        let seen = RowId::last_of(current);
        self.first
            .range::<str, _>((Bound::Included(request.first_key()), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&*request.prefix))
            .filter(move |(_, change)| change.row <= seen)
            .filter_map(|(key, change)| Some((key, change.before?)))
    }

    fn left(&self, request: &RangeRequest) -> Option<usize> {
        let start = request.start.as_deref()?;
        let mut listings = self.listings.iter();
        listings
            .find(|listing| listing.start == start && listing.prefix == request.prefix)
            .map(|listing| listing.left)
    }

    fn expect(&mut self, request: &RangeRequest, start: String, left: usize) {
        if self.listings.len() == LISTINGS {
            self.listings.pop_front();
        }
        let prefix = request.prefix.clone();
        self.listings.push_back(Listing {
            prefix,
            start,
            left,
        });
    }
}

#[cfg(test)]
mod tests;
