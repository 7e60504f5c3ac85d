//! LIST of a state that the cache has forgotten and the store has not, in chunks: another server
//! has given the continue token, or the client has taken long.

use coracle_store::{RangeRequest, Revision, StoreError};

use super::{
    ResourceCache, WatchCache, WatchCacheError,
    event::EventKind,
    list::{Continue, ListAt, ListRequest, ListResult},
    snapshot::first_key,
};

/// Most objects in one answer, whatever the client asks for: unlike the cache's they are a copy.
const MOST: usize = 500;
/// Objects of one read, whatever the client asks for: each may be large, or be filtered out.
const PAGE: usize = 20;
/// An answer ends once its objects take so many bytes.
const BYTES: usize = 8 << 20;
/// An answer ends after so many reads, however few objects they have found.
const READS: usize = 50;
/// Most answers that are made at the same time. Others wait, until their requests' deadlines.
pub(super) const AT_ONCE: usize = 2;

impl WatchCache {
    /// As [`ResourceCache::list`]. What that finds too old is read from the store if it is asked
    /// for in chunks: all of it at once would be too much to hold.
    ///
    /// # Errors
    /// As there, and [`WatchCacheError::Store`].
    pub async fn list(
        &self,
        resource: &ResourceCache,
        request: &ListRequest,
    ) -> Result<ListResult, WatchCacheError> {
        let limit = request.limit.filter(|limit| *limit > 0);
        match (resource.list(request), request.at, limit) {
            (Err(WatchCacheError::TooOld { .. }), ListAt::Exact(at), Some(limit)) => {
                self.list_stored(resource, request, at, limit.min(MOST))
                    .await
            }
            (result, ..) => result,
        }
    }

    async fn list_stored(
        &self,
        resource: &ResourceCache,
        request: &ListRequest,
        at: Revision,
        limit: usize,
    ) -> Result<ListResult, WatchCacheError> {
        let turn = self.stored_lists.acquire().await;
        let _turn = turn.map_err(|_| WatchCacheError::Closed)?;
        let selection = &request.selection;
        let scope = first_key(&selection.scope, &resource.config().prefix);
        let mut passed = request.after.clone().filter(|after| *after >= scope);
        let (mut bytes, mut left) = (0, 0);
        let mut result = ListResult {
            entries: Vec::new(),
            revision: at,
            next: None,
        };
        'reads: for _ in 0..READS {
            let range = RangeRequest {
                prefix: scope.clone(),
                start: passed.as_ref().map(|passed| format!("{passed}\0")),
                limit: Some(PAGE),
                at: Some(at),
            };
            let page = self.backend.range(range).await.map_err(too_old)?;
            left = page.items.len() + page.remaining;
            for stored in &page.items {
                let entry = resource.decode(stored, EventKind::Added, None);
                if let Some(entry) = entry.filter(|entry| selection.selects(entry)) {
                    if result.entries.len() == limit || bytes >= BYTES {
                        break 'reads;
                    }
                    bytes += stored.value.len();
                    result.entries.push(entry);
                }
                passed = Some(stored.key.to_string());
                left -= 1;
            }
            if page.remaining == 0 || page.items.is_empty() {
                return Ok(result);
            }
        }
        result.next = passed.map(|after| Continue {
            revision: at,
            after,
            remaining: selection.filter.is_none().then_some(left),
        });
        Ok(result)
    }
}

fn too_old(error: StoreError) -> WatchCacheError {
    match error {
        StoreError::Compacted { asked, oldest } => WatchCacheError::TooOld { asked, oldest },
        error => error.into(),
    }
}
