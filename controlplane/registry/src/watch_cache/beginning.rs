//! What a watch begins with: the objects that were there, a piece at a time.
//!
//! A client may take its time, or nothing at all, and what it was to see is kept alive by then for
//! it alone. So the state is on loan: when too much of it has been superseded, the cache takes it
//! back, and the watch ends as one that was too slow for the ring does.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use coracle_store::Revision;
use parking_lot::Mutex;

use super::{
    WatchCacheError,
    entry::{Entry, LINES_BYTES},
    event::EventKind,
    selection::Selection,
    snapshot::Snapshot,
};

type Loan = Mutex<Option<Snapshot>>;

/// The objects of a selection as a watch begins with them, in key order. Each is given out once.
pub struct Beginning {
    loan: Arc<Loan>,
    revision: Revision,
    selection: Selection,
    prefix: String,
    /// The smallest key that has not been given out.
    next: String,
    /// Bytes of the line of its object that have been.
    begun: usize,
}

impl Beginning {
    pub(super) fn new(prefix: &str, selection: Selection, snapshot: Snapshot) -> Self {
        Self {
            revision: snapshot.revision(),
            loan: Arc::new(Mutex::new(Some(snapshot))),
            selection,
            prefix: prefix.to_owned(),
            next: String::new(),
            begun: 0,
        }
    }

    /// The revision of the state.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The next object; `None` at the end.
    ///
    /// # Errors
    /// [`WatchCacheError::TooSlow`]: close the client's stream.
    pub fn next_entry(&mut self) -> Result<Option<Arc<Entry>>, WatchCacheError> {
        let snapshot = self.snapshot()?;
        let mut entries = snapshot.select_from(&self.selection, &self.prefix, &self.next);
        let entry = entries.next().cloned();
        if let Some(entry) = &entry {
            self.next = after(entry);
        }
        Ok(entry)
    }

    /// The next lines of [`EventKind::Added`], as [`super::Watcher::next_lines`] gives those of
    /// events; empty at the end.
    ///
    /// # Errors
    /// As [`Beginning::next_entry`].
    pub fn next_lines(&mut self) -> Result<Vec<u8>, WatchCacheError> {
        let snapshot = self.snapshot()?;
        let (kind, mut lines) = (EventKind::Added, Vec::new());
        let mut last = None;
        for entry in snapshot.select_from(&self.selection, &self.prefix, &self.next) {
            let left = entry.line_len(kind) - self.begun;
            if !lines.is_empty() && lines.len() + left > LINES_BYTES {
                break;
            }
            entry.append_line(kind, self.begun, LINES_BYTES, &mut lines);
            if left > LINES_BYTES {
                self.next = entry.key().to_owned();
                self.begun += LINES_BYTES;
                return Ok(lines);
            }
            self.begun = 0;
            last = Some(entry);
        }
        if let Some(entry) = last {
            self.next = after(entry);
        }
        lines.shrink_to_fit();
        Ok(lines)
    }

    fn snapshot(&self) -> Result<Snapshot, WatchCacheError> {
        // Cloned, so that the feed does not wait for what is looked through.
        self.loan.lock().clone().ok_or(WatchCacheError::TooSlow)
    }
}

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beginning")
            .field("selection", &self.selection)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// The smallest key behind an object's: that key and a NUL.
fn after(entry: &Entry) -> String {
    format!("{}\0", entry.key())
}

/// The states that are on loan, oldest first, each with the bytes that had been superseded when it
/// was lent.
#[derive(Default)]
pub(super) struct Beginnings(VecDeque<(u64, Weak<Loan>)>);

impl Beginnings {
    pub(super) fn add(&mut self, superseded: u64, beginning: &Beginning) {
        // Most have been given back by then.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|(_, loan)| loan.strong_count() > 0);
        }
        self.0
            .push_back((superseded, Arc::downgrade(&beginning.loan)));
    }

    /// Takes back what was lent before so many bytes had been superseded.
    pub(super) fn end_before(&mut self, superseded: u64) {
        while let Some((_, loan)) = self.0.pop_front_if(|(before, _)| *before < superseded) {
            if let Some(loan) = loan.upgrade() {
                loan.lock().take();
            }
        }
    }
}
