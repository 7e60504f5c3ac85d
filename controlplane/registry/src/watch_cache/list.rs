//! LIST: which entries of a snapshot make one answer, and where the next chunk begins.

use std::sync::Arc;

use coracle_store::Revision;

use super::{
    entry::Entry,
    selection::{KeyScope, Selection},
    snapshot::{Snapshot, first_key},
};

/// Which state a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListAt {
    /// The present state of the cache. For a consistent read call [`super::WatchCache::catch_up`]
    /// before, for `resourceVersionMatch=NotOlderThan` [`super::WatchCache::wait_for`].
    Latest,
    /// Exactly this revision: `resourceVersionMatch=Exact`, and every chunk but the first.
    Exact(Revision),
}

/// What to list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// Which objects.
    pub selection: Selection,
    /// Of which state.
    pub at: ListAt,
    /// At most so many; `None` is all.
    pub limit: Option<usize>,
    /// Where an earlier chunk ended: [`Continue::after`] of it.
    pub after: Option<String>,
    /// [`Continue::remaining`] of the earlier chunk, if known: saves counting.
    pub remaining: Option<usize>,
}

impl ListRequest {
    /// All of a selection, now.
    #[must_use]
    pub fn all(selection: Selection) -> Self {
        Self {
            selection,
            at: ListAt::Latest,
            limit: None,
            after: None,
            remaining: None,
        }
    }
}

/// One answer.
#[derive(Debug, Clone)]
pub struct ListResult {
    /// In key order.
    pub entries: Vec<Arc<Entry>>,
    /// The list's `resourceVersion`.
    pub revision: Revision,
    /// Where to go on, if there is more.
    pub next: Option<Continue>,
}

/// What a continue token has to carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continue {
    /// The state that all chunks show: pass it as [`ListAt::Exact`].
    pub revision: Revision,
    /// Full key of the last object of this chunk: pass it as [`ListRequest::after`].
    pub after: String,
    /// `remainingItemCount`; `None` with a filter, as upstream.
    pub remaining: Option<usize>,
}

/// Takes one answer out of a snapshot, whose scope has `total` objects if that is known.
pub(super) fn cut(
    snapshot: &Snapshot,
    request: &ListRequest,
    prefix: &str,
    total: Option<usize>,
) -> ListResult {
    let selection = &request.selection;
    let scope = first_key(&selection.scope, prefix);
    if let KeyScope::Key(key) = &selection.scope {
        let entries = snapshot
            .get(key)
            .filter(|entry| selection.selects(entry))
            .cloned()
            .into_iter()
            .collect();
        return ListResult {
            entries,
            revision: snapshot.revision(),
            next: None,
        };
    }
    let first = match &request.after {
        // The smallest key after another is that key and a NUL.
        Some(after) if *after >= scope => format!("{after}\0"),
        _ => scope.clone(),
    };
    let mut candidates = snapshot.select_from(selection, prefix, &first);
    let limit = request
        .limit
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX);
    let total = total.filter(|_| request.after.is_none() && selection.filter.is_none());
    let mut entries = Vec::with_capacity(total.unwrap_or_default().min(limit));
    entries.extend(candidates.by_ref().take(limit).cloned());
    let mut next = None;
    if entries.len() == limit && candidates.next().is_some() {
        let remaining = selection
            .filter
            .is_none()
            .then(|| match total.or(request.remaining) {
                Some(before) => before.saturating_sub(entries.len()),
                None => 1 + candidates.count(),
            });
        let after = entries
            .last()
            .map(|entry| entry.key().to_owned())
            .unwrap_or_default();
        next = Some(Continue {
            revision: snapshot.revision(),
            after,
            remaining,
        });
    }
    ListResult {
        entries,
        revision: snapshot.revision(),
        next,
    }
}
